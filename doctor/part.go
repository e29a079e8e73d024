package doctor

// A Part is what runs with a role's rights. Each has its own, which the package comments and pages named here say, too.
type Part string

// The parts.
const (
	Relay        Part = "relay"         // outbox-relay
	MappedRelay  Part = "mapped-relay"  // outbox-relay, for a table of another shape
	Participant  Part = "participant"   // package participant, with Kafka
	LocalWork    Part = "local"         // package participant, with Config.Local
	Sagas        Part = "saga"          // package saga/coordinator, beside its participant
	Flow         Part = "flow"          // package flow, beside its participant
	Watch        Part = "watch"         // package flow/watch
	Operator     Part = "operator"      // troupe dlq, held and inbox: docs/dead-letters.md
	SagaOperator Part = "saga-operator" // troupe saga: docs/operating-sagas.md
)

// Parts are all there are.
func Parts() []Part {
	return []Part{Relay, MappedRelay, Participant, LocalWork, Sagas, Flow, Watch, Operator, SagaOperator}
}

// A right is part of a GRANT on objects of the schema troupe.
type right struct {
	privileges string
	objects    string
	columns    string // "": on the whole table
	why        string
	spared     bool // the part works without it
	ofSequence bool
}

func need(privileges, objects, why string) right {
	return right{privileges: privileges, objects: objects, why: why}
}

func (r right) only(columns string) right {
	r.columns = columns
	return r
}

func (r right) useful() right {
	r.spared = true
	return r
}

func (r right) sequence() right {
	r.ofSequence = true
	return r
}

const (
	all          = "SELECT, INSERT, UPDATE, DELETE"
	writeColumns = "id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at"
	sendColumns  = "id, topic, key, key_bytes, type, headers, raw_headers, payload"

	repairColumns = "actor, action, reason, dead_letter_id, consumer_group, topic, partition, offset, message_id, payload_before, payload_after"
	letterColumns = "id, consumer_group, handler, error_class, error, attempts, topic, topic_id, partition, offset, key, headers, payload, " +
		"message_id, message_type, correlation_id, redrives, first_failed_at, last_failed_at"
	sagaColumns = "id, saga, key, hop, consumer_group, content_type, definition, version, status, steps, reason, state, wake_at, " +
		"started_at, ended_at"
	movedColumns = "version, status, steps, reason, state, wake_at, updated_at, ended_at, definition"

	handlingTables = "leases, inbox, inbox_recent, inbox_offsets, inbox_slots, inbox_groups, answers, started, held, dead_letters, deadlines"
)

// rights are what each part needs beside USAGE on the schema. A test holds them to what the packages and pages say.
var rights = map[Part][]right{
	Relay: {
		need("SELECT, DELETE", "outbox", "to claim rows and remove them"),
		need("SELECT, INSERT, UPDATE", "relay_leases", "to lead"),
		need("SELECT", "relay_state", "to know what a stream has published"),
		need("INSERT, UPDATE", "relay_state", "to stream").useful(),
		need(all, "outbox_trouble", "to put rows off, park them and take them up again"),
		need("SELECT, INSERT, UPDATE", "relay_slot_samples", "to keep how the slot stood").useful(),
		need("SELECT", "outbox_partitions", "to see how many positions are left").useful(),
		need("SELECT", "outbox_position_seq", "to keep claims fast behind many dead rows").useful().sequence(),
	},
	MappedRelay: {
		need("SELECT, INSERT, UPDATE", "relay_leases", "to lead"),
		need("SELECT, INSERT, UPDATE", "mapped_tables", "to stream"),
		need(all, "mapped_trouble", "to put rows off, park them and take them up again"),
		need("SELECT, INSERT, UPDATE", "relay_slot_samples", "to keep how the slot stood").useful(),
	},
	Participant: {
		need("INSERT", "outbox", "to answer").only(writeColumns),
		need(all, handlingTables, "to handle messages"),
		need("TRUNCATE", inboxRing, "to forget old ones"),
	},
	LocalWork: {
		need("INSERT", "outbox", "to answer").only(writeColumns),
		need(all, "inbox, inbox_recent, inbox_slots, inbox_groups, answers, dead_letters, deadlines", "to handle messages"),
		need("TRUNCATE", inboxRing, "to forget old ones"),
		need("SELECT, UPDATE, DELETE", "local_work", "to take local work"),
		need("SELECT", "local_topics", "to know what is local"),
		need("USAGE", "local_members", "to take local work").sequence(),
	},
	Sagas: {
		need("SELECT, INSERT", "saga_definitions", "to keep definitions"),
		need("SELECT, INSERT, UPDATE", "sagas", "to keep sagas"),
		need("INSERT", "saga_events", "to log what was decided"),
		need("SELECT, INSERT, DELETE", "saga_associations, saga_locks", "to find sagas and to lock"),
		need(all, "saga_stash", "to keep events that come early"),
	},
	Flow: {
		need(all, "joins, join_parts, expectations", "to join events and to expect some"),
	},
	Watch: {
		need(all, "watch_names, watch_flows, watch_offsets, watch_marks, watch_findings, watch_unexpected", "to watch"),
		need("SELECT, INSERT", "watch_messages", "to watch"),
		need("SELECT, UPDATE", "watch_days", "to forget old days"),
		need("TRUNCATE", watchRing, "to forget old days"),
	},
	Operator: {
		need("SELECT", "dead_letters, held, inbox, inbox_recent, repairs", "to look"),
		need("INSERT", "repairs", "to act").only(repairColumns),
		need("UPDATE", "dead_letters", "to edit, redrive and discard").only("status, edited_payload"),
		need("INSERT", "outbox", "to redrive and release").only(sendColumns),
		need("UPDATE", "held", "to retry and release").only("next_try"),
		need("DELETE", "held", "to release"),
		need("INSERT", "inbox", "to release").only("consumer_group, message_id, redrive"),
		need("INSERT", "dead_letters", "to release").only(letterColumns),
	},
	SagaOperator: {
		need("SELECT", "sagas, saga_definitions, saga_events, saga_log, saga_locks, saga_stash", "to look"),
		need("UPDATE", "sagas", "to act").only(movedColumns),
		need("INSERT", "saga_events", "to act"),
		need("SELECT, INSERT, DELETE", "saga_associations", "to act"),
		need("DELETE", "saga_locks, saga_stash", "to act"),
		need(all, "deadlines", "to act"),
		need("INSERT", "outbox", "to act").only(sendColumns),
		need("INSERT", "saga_definitions", "to migrate").only("hash, saga, version, definition"),
		need("INSERT", "sagas", "to start one").only(sagaColumns),
		need("INSERT", "saga_locks", "to start one").only("name, saga_id"),
	},
}
