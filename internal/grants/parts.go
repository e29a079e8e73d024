package grants

import (
	"slices"
	"strconv"
	"strings"
)

// A Part is a program, or a part of one, that works with a role's rights.
type Part string

// The parts: the programs, then the operators' tools.
const (
	Writer        Part = "writer"         // a service that only writes to the outbox
	Relay         Part = "relay"          // outbox-relay run
	MappedRelay   Part = "mapped-relay"   // outbox-relay run, for a table of another shape
	Participant   Part = "participant"    // package participant, with Kafka
	LocalWork     Part = "local"          // package participant, with Config.Local
	Sagas         Part = "saga"           // package saga/coordinator; includes Participant
	Flow          Part = "flow"           // package flow; includes Participant
	Ambassador    Part = "ambassador"     // troupe ambassador; includes Participant
	Watch         Part = "watch"          // troupe watch, in a database of its own
	SubjectKeys   Part = "subject-keys"   // package schemas/personal, in the database with the keys
	Viewer        Part = "viewer"         // every page of the console, and every command that only reads
	Operator      Part = "operator"       // troupe dlq, held, inbox and batch
	SagaOperator  Part = "saga-operator"  // troupe saga
	RelayOperator Part = "relay-operator" // outbox-relay status, parked, pause and resume
)

// Parts returns all parts.
func Parts() []Part {
	return []Part{Writer, Relay, MappedRelay, Participant, LocalWork, Sagas, Flow, Ambassador, Watch, SubjectKeys, Viewer, Operator, SagaOperator, RelayOperator}
}

// Includes returns the part whose rights p also needs; "" for none.
func (p Part) Includes() Part {
	switch p {
	case Sagas, Flow, Ambassador:
		return Participant
	}
	return ""
}

// Of returns the rights of a part, without the rights of the part that it includes.
func Of(p Part) []Grant { return slices.Clone(rights[p]) }

func need(privileges, objects, reason string) Grant {
	return Grant{Privileges: list(privileges), Objects: list(objects), Reason: reason}
}

func (g Grant) columns(names string) Grant {
	g.Columns = list(names)
	return g
}

func (g Grant) optional() Grant {
	g.Optional = true
	return g
}

func (g Grant) audit() Grant {
	g.Audit = true
	return g
}

func (g Grant) sequence() Grant {
	g.Sequence = true
	return g
}

func list(text string) []string { return strings.Split(text, ", ") }

// ring lists the names of the partitions that are truncated in rotation.
func ring(slots int, names ...string) string {
	var all []string
	for _, name := range names {
		for slot := range slots {
			all = append(all, name+strconv.Itoa(slot))
		}
	}
	return strings.Join(all, ", ")
}

const (
	readWrite    = "SELECT, INSERT, UPDATE, DELETE"
	writeColumns = "id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at"
	sendColumns  = "id, topic, key, key_bytes, type, headers, raw_headers, payload"

	repairColumns = "actor, action, reason, dead_letter_id, consumer_group, topic, partition, offset, message_id, payload_before, payload_after"
	letterColumns = "id, consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, offset, key, headers, payload, " +
		"message_id, message_type, correlation_id, redrives, first_failed_at, last_failed_at"
	localColumns = "status, attempts, error_class, last_error, first_failed_at, last_failed_at, unhandled_since, next_try, locked_at, locked_by, ended_at"
	batchColumns = "consumer_group, topic, topic_id, partition, offset, next_offset, bytes"
	sagaColumns  = "id, saga, key, hop, consumer_group, content_type, definition, version, status, steps, reason, state, wake_at, " +
		"started_at, ended_at"
	changedColumns  = "version, status, steps, reason, state, wake_at, updated_at, ended_at, definition"
	eventColumns    = "saga_id, version, at, kind, event, moments, actor, reason"
	scheduleColumns = "next_at, last_at, ran_at, requested_at, error, tries, retry_at"
	parkedColumns   = "actor, action, reason, table_name, row_position, row_id, topic, order_key, attempts, last_error, type, headers, raw_headers, " +
		"payload, created_at, mapped_row"

	// discardColumns contain no data of a discarded row.
	discardColumns = "action, lsn, row_id, row_position, table_name"

	handlingTables = "leases, inbox, inbox_recent, inbox_offsets, inbox_slots, inbox_groups, answers, started, held, dead_letters, deadlines"
	watchTables    = "watch_names, watch_flows, watch_offsets, watch_marks, watch_findings, watch_unexpected"
)

// version lets a program check that the schema is up to date without the rights to migrate.
var version = need("SELECT", "migrations", "to see the version of the schema")

var rights = map[Part][]Grant{
	Writer: {
		need("INSERT", "outbox", "to write").columns(writeColumns), // by column, so that a service cannot forge xid or position
	},
	Relay: {
		version,
		need("SELECT, DELETE", "outbox", "to claim rows and remove them"),
		need("SELECT, INSERT, UPDATE", "relay_leases", "to lead"),
		need("SELECT", "relay_state", "to know what a stream has published"),
		need("INSERT, UPDATE", "relay_state", "to stream").optional(),
		need("SELECT", "mapped_tables", "to leave the slots of other outboxes alone").columns("name, slot, updated_at").optional(),
		need(readWrite, "outbox_failures", "to put rows off, park them and take them up again"),
		need("SELECT, INSERT, UPDATE", "relay_slot_samples", "to keep samples of the slot").optional(),
		need("SELECT", "outbox_repairs", "to pass over discarded rows that the log has once more").columns(discardColumns).optional(),
		need("SELECT", "outbox_partitions", "to see how many positions are left").optional(),
		need("SELECT", "outbox_position_seq", "to keep claims fast behind many dead rows").optional().sequence(),
		need("SELECT", "retention", "to report the number of removed records").optional(),
	},
	MappedRelay: {
		version,
		need("SELECT, INSERT, UPDATE", "relay_leases", "to lead"),
		need("SELECT, INSERT, UPDATE", "mapped_tables", "to stream"),
		need("SELECT", "relay_state", "to leave the slot of troupe.outbox alone").columns("slot, source, updated_at").optional(),
		need(readWrite, "mapped_failures", "to put rows off, park them and take them up again"),
		need("SELECT", "outbox_repairs", "to pass over discarded rows that the log has once more").columns(discardColumns).optional(),
		need("SELECT, INSERT, UPDATE", "relay_slot_samples", "to keep samples of the slot").optional(),
	},
	Participant: {
		version,
		need("INSERT", "outbox", "to answer").columns(writeColumns),
		need(readWrite, handlingTables, "to handle messages"),
		need("SELECT, INSERT, UPDATE", "rate_limits", "to limit the rates of handlers").optional(),
		need(readWrite, "handlers", "to list its handlers for rebuilds"),
		need("SELECT", "rebuilds, rebuild_partitions", "to run rebuilds"),
		need("SELECT", "repairs", "to run rebuilds").columns("dead_letter_id, action, at"),
		need("UPDATE", "rebuilds", "to run rebuilds").columns("finished_at"),
		need("UPDATE", "rebuild_partitions", "to run rebuilds").columns("began_at, watermark, epoch, until, ended_low, ended_high, ended_epoch, undone_at"),
		need("TRUNCATE", ring(32, "inbox_recent_"), "to forget old ones"),
		need("SELECT", "local_work", "to report local work that is not handled"),
		need("SELECT", "local_topics", "to report topics that do not reach Kafka"),
		need("SELECT", "unreadable_batches", "to go on behind a batch that an operator skipped"),
		need("INSERT", "unreadable_batches", "to record a batch that cannot be read").columns(batchColumns),
		need("SELECT", "outbox", "to report rows that no relay publishes").columns("position, created_at").optional(),
		need("SELECT", "relay_leases", "to report rows that no relay publishes").columns("shard, expires_at").optional(),
	},
	LocalWork: {
		version,
		need("INSERT", "outbox", "to answer").columns(writeColumns),
		need(readWrite, "inbox, inbox_recent, inbox_slots, inbox_groups, answers, dead_letters, deadlines", "to handle messages"),
		need("TRUNCATE", ring(32, "inbox_recent_"), "to forget old ones"),
		need("SELECT", "rebuilds", "to forget old ones").columns("consumer_group, generation, finished_at"),
		need("SELECT, UPDATE, DELETE", "local_work", "to take local work"),
		need("SELECT", "local_topics", "to know the local topics"),
		need("SELECT", "outbox_partitions", "to see how many positions are left"),
		need("SELECT", "outbox_position_seq", "to see how many positions are left").sequence(),
		need("SELECT", "held", "to report held messages that are not tried again"),
		need("SELECT", "leases", "to report held messages that are not tried again").columns("consumer_group, topic, partition, released_at"),
		need("USAGE", "local_members", "to take local work").sequence(),
		need("SELECT", "outbox", "to report rows that no relay publishes").columns("position, created_at").optional(),
		need("SELECT", "relay_leases", "to report rows that no relay publishes").columns("shard, expires_at").optional(),
	},
	Sagas: {
		need("SELECT, INSERT", "saga_definitions", "to keep definitions"),
		need("SELECT, INSERT, UPDATE", "sagas", "to keep sagas"),
		need("INSERT", "saga_events", "to log decisions").columns(eventColumns).audit(),
		need("SELECT, INSERT, DELETE", "saga_associations, saga_locks", "to find sagas and to lock"),
		need(readWrite, "saga_stash", "to keep events that come early"),
		need("SELECT", "schedules", "to run schedules").optional(),
		need("UPDATE", "schedules", "to run schedules").columns(scheduleColumns).optional(),
	},
	Flow: {
		need(readWrite, "joins, join_parts, expectations", "to join events and to expect some"),
	},
	Ambassador: {
		need("SELECT, INSERT, DELETE", "outbox_posts", "to take what a service posts").optional(),
	},
	Watch: {
		version,
		need(readWrite, watchTables, "to watch"),
		need("SELECT, INSERT", "watch_messages", "to watch"),
		need("SELECT, UPDATE", "watch_days", "to forget old days"),
		need("TRUNCATE", ring(16, "watch_messages_", "watch_findings_"), "to forget old days"),
		need("SELECT", "unreadable_batches", "to go on behind a batch that an operator skipped"),
		need("INSERT", "unreadable_batches", "to record a batch that cannot be read").columns(batchColumns),
	},
	SubjectKeys: {
		need("SELECT", "subject_keys", "to read keys").columns("subject, wrapped_key"),
		need("INSERT", "subject_keys", "to make keys").columns("subject, wrapped_key"),
	},
	Viewer: {
		version,
		need("SELECT", "outbox, outbox_partitions, outbox_posts, outbox_failures, outbox_status, outbox_repairs, mapped_tables, mapped_failures, "+
			"relay_leases, relay_pauses, relay_slot_samples, relay_state, retention", "to see the outbox and its relay"),
		need("SELECT", "outbox_position_seq", "to count waiting rows").sequence(),
		need("SELECT", "inbox, inbox_recent, inbox_offsets, inbox_slots, inbox_groups, answers, started, leases, held, dead_letters, deadlines, "+
			"repairs, unreadable_batches, local_topics, local_work, rate_limits, handlers, rebuilds, rebuild_partitions, rebuild_changes", "to see what participants handled and did not"),
		need("SELECT", "sagas, saga_definitions, saga_events, saga_log, saga_associations, saga_locks, saga_stash, joins, join_parts, expectations, "+
			"schedules, schedule_changes, erasures", "to see sagas, flows, schedules and erasures"),
		need("SELECT", "subject_keys", "to preview erasures").columns("subject, forgotten_at"),
		need("SELECT", watchTables+", watch_messages, watch_days", "to see what a watcher found"),
	},
	Operator: {
		need("SELECT", "dead_letters, held, local_work, inbox, inbox_recent, inbox_slots, inbox_groups, repairs, unreadable_batches, expectations", "to look"),
		need("INSERT", "repairs", "to act").columns(repairColumns).audit(),
		need("UPDATE", "dead_letters", "to edit, redrive and discard").columns("status, edited_payload"),
		need("INSERT", "outbox", "to redrive and release").columns(sendColumns),
		need("UPDATE", "held", "to retry and release").columns("next_try"),
		need("UPDATE", "local_work", "to retry and release").columns(localColumns),
		need("UPDATE", "unreadable_batches", "to skip a batch that cannot be read").columns("skipped_at"),
		need("DELETE", "held", "to release"),
		need("INSERT", "inbox", "to release").columns("consumer_group, message_id, redrive"),
		need("INSERT", "inbox_recent", "to release").columns("consumer_group, slot, id, redrive"),
		need("INSERT", "dead_letters", "to release").columns(letterColumns),
		need("SELECT", "handlers, rebuilds, rebuild_partitions, rebuild_changes, leases", "to see rebuilds").optional(),
		need("INSERT", "rebuilds", "to start rebuilds").columns("consumer_group, generation, handlers, from_time, emit").optional(),
		need("INSERT", "rebuild_partitions", "to start rebuilds").columns("rebuild, topic, partition, topic_id, handlers, from_offset").optional(),
		need("UPDATE", "rebuilds", "to cancel rebuilds").columns("cancelled_at, finished_at").optional(),
		need("INSERT", "rebuild_changes", "to start and cancel rebuilds").columns("actor, action, reason, rebuild, change").audit().optional(),
	},
	SagaOperator: {
		need("SELECT", "sagas, saga_definitions, saga_events, saga_log, saga_locks, saga_stash, saga_associations", "to look"),
		need("SELECT", "inbox_groups", "to act").columns("consumer_group, coordinated_at"),
		need("UPDATE", "sagas", "to act").columns(changedColumns),
		need("INSERT", "saga_events", "to act").columns(eventColumns).audit(),
		need("INSERT, DELETE", "saga_associations", "to act"),
		need("DELETE", "saga_locks, saga_stash", "to act"),
		need("UPDATE", "saga_stash", "to leave the events of a saga to the next one").columns("saga_id, expires_at"),
		need(readWrite, "deadlines", "to act"),
		need("INSERT", "outbox", "to act").columns(sendColumns),
		need("INSERT", "saga_definitions", "to migrate").columns("hash, saga, version, definition"),
		need("INSERT", "sagas", "to start one").columns(sagaColumns),
		need("INSERT", "saga_locks", "to start one").columns("name, saga_id"),
		need(readWrite, "schedules", "to set, pause and run schedules").optional(),
		need("SELECT", "schedule_changes", "to show the changes of schedules").optional(),
		need("INSERT", "schedule_changes", "to set, pause and run schedules").columns("actor, action, reason, name, change").audit().optional(),
	},
	RelayOperator: {
		version,
		need("SELECT", "outbox, outbox_partitions, outbox_failures, mapped_tables, mapped_failures, relay_leases, relay_pauses, relay_slot_samples, relay_state", "to look"),
		need("SELECT", "outbox_position_seq", "to count waiting rows").sequence(),
		need("INSERT", "relay_leases", "to pause").columns("shard, paused_at, paused_by, paused_why"),
		need("UPDATE", "relay_leases", "to pause and resume").columns("paused_at, paused_by, paused_why"),
		need("INSERT", "relay_pauses", "to pause and resume").columns("actor, action, reason, shard").audit(),
		need("UPDATE", "outbox_failures, mapped_failures", "to retry parked rows").columns("status, attempts, next_try, first_failed_at"),
		need("DELETE", "outbox, outbox_failures, mapped_failures", "to discard parked rows"),
		need("SELECT", "deadlines", "to discard the parked row of a deadline").columns("id, fired_at"),
		need("DELETE", "deadlines", "to discard the parked row of a deadline"),
		need("INSERT", "outbox_repairs", "to retry and discard parked rows").columns(parkedColumns).audit(),
	},
}
