package erasure

// A table holds the data of keys. Its conditions are SQL about its row t, with these arguments:
//
//	@key    the key as text
//	@texts  the key, the ids of the sagas that have it, and each of these as package pgtext stores long ones
//	@bytes  the key and the ids as bytes
type table struct {
	name  string
	match string // selects the rows of the key
	// inTheWay selects the rows of the key that are work. remedy tells the operator how that work ends.
	inTheWay, remedy string
	// delete reports that all other rows of the key are deleted. Otherwise they stay, with the columns in kept, and blank has an
	// expression for each column with data. kept is empty if a row is deleted when its work ends.
	delete bool
	blank  map[string]string
	kept   string
	// holds selects the rows that are not blanked yet.
	holds string
}

const (
	sameKey   = "(t.key = ANY (@texts) OR t.key_bytes = ANY (@bytes))"
	sameText  = "t.key = ANY (@texts)"
	sameBytes = "t.key = ANY (@bytes)"
	sameOrder = "t.order_key = ANY (@bytes)"
)

// published selects rows of the outbox that the relay has published, as the relay decides. A state of another cluster says nothing about
// these rows.
const published = `NOT EXISTS (SELECT FROM troupe.outbox_failures AS f WHERE f.position = t.position AND f.id = t.id)
  AND EXISTS (
    SELECT
    FROM (SELECT system_id, published FROM troupe.relay_state ORDER BY updated_at DESC LIMIT 1) AS s
    WHERE s.system_id = (SELECT system_identifier::text FROM pg_control_system())
      AND (pg_visible_in_snapshot(t.xid, s.published) OR pg_visible_in_snapshot(troupe.outbox_inserted_by(t.xid, t.xmin), s.published))
      AND pg_visible_in_snapshot(troupe.outbox_inserted_by('9223372036854775807', t.xmin), s.published))`

// stashed selects stashed events that have not expired: see prune_stash.sql of package decisions.
const stashed = `(t.expires_at IS NULL
  OR t.expires_at > least(clock_timestamp(), (SELECT min(coordinated_at) + interval '1 minute' FROM troupe.inbox_groups))
  OR EXISTS (SELECT FROM troupe.saga_associations AS a WHERE a.saga = t.saga AND a.variable = t.variable AND a.value = t.value))`

// blankState keeps of a saga's state the fields by which it is identified, and its steps, without values. The lists of steps with ForEach
// keep their lengths, which the steps of a state depend on. A service may have written other JSON than a coordinator: that is blanked, too.
const blankState = `jsonb_strip_nulls(jsonb_build_object(
  'saga', t.state -> 'saga', 'key', t.state -> 'key', 'definition', t.state -> 'definition', 'version', t.state -> 'version',
  'status', t.state -> 'status', 'back', t.state -> 'back', 'cancel', t.state -> 'cancel', 'steps', t.state -> 'steps', 'data', '{}'::jsonb,
  'lists', (SELECT jsonb_object_agg(l.step, (SELECT jsonb_agg(NULL::text)
                                             FROM jsonb_array_elements(CASE jsonb_typeof(l.list) WHEN 'array' THEN l.list END)))
            FROM jsonb_each(CASE jsonb_typeof(t.state -> 'lists') WHEN 'object' THEN t.state -> 'lists' END) AS l (step, list)),
  'started_at', t.state -> 'started_at', 'ended_at', t.state -> 'ended_at', 'erased', to_jsonb(clock_timestamp())))`

// erased returns the condition that the state of a row of troupe.sagas is one of blankState. A service may have written other JSON with this name.
func erased(row string) string {
	return "coalesce(jsonb_typeof(" + row + ".state) = 'object' AND " + row + ".state ? 'erased' AND " + row + ".state -> 'data' = '{}', false)"
}

// blankEvent keeps of an entry its kind and its step, and the actor and the reason of an operator.
const blankEvent = `jsonb_strip_nulls(jsonb_build_object(
  'kind', t.event -> 'kind', 'step', t.event -> 'step', 'operation', t.event -> 'operation', 'epoch', t.event -> 'epoch',
  'outcome', t.event -> 'outcome', 'hop', t.event -> 'hop', 'type', t.event -> 'type', 'deadline', t.event -> 'deadline',
  'happened', t.event -> 'happened', 'message', t.event -> 'message', 'from', t.event -> 'from', 'to', t.event -> 'to',
  'actor', t.event -> 'actor', 'reason', CASE WHEN t.actor IS NOT NULL THEN t.event -> 'reason' END))`

const blankMoments = `coalesce(
  (SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object('what', m.moment -> 'what', 'step', m.moment -> 'step')) ORDER BY m.number)
   FROM jsonb_array_elements(CASE jsonb_typeof(t.moments) WHEN 'array' THEN t.moments END) WITH ORDINALITY AS m (moment, number)), '[]')`

// tables lists all tables with data of keys, in the order in which they are erased: a table that is found through another comes before it.
var tables = []table{
	{
		name: "outbox", match: sameKey, inTheWay: "NOT (" + published + ")", delete: true,
		remedy: "not published yet: wait for the relay, or discard parked rows with outbox-relay parked discard; if no relay publishes this outbox, delete them",
	},
	{
		name: "outbox_failures", match: sameOrder, inTheWay: "true",
		remedy: "not published yet: retry or discard parked rows with outbox-relay parked",
	},
	{
		name: "outbox_repairs", match: sameOrder, holds: "true",
		blank: map[string]string{
			"order_key": "NULL", "last_error": "''", "headers": "NULL", "raw_headers": "NULL", "payload": "NULL", "mapped_row": "NULL",
		},
		kept: "position, at, actor, role, action, reason, table_name, row_position, row_id, topic, attempts, type, created_at, lsn",
	},
	{
		name: "mapped_failures", match: sameOrder, inTheWay: "true",
		remedy: "not published yet: retry or discard parked rows with outbox-relay parked",
	},
	{
		name: "held", match: sameBytes, inTheWay: "true",
		remedy: "held: troupe held retry, or troupe held dead-letter and then troupe dlq discard",
	},
	{
		name:  "repairs",
		match: "t.dead_letter_id IN (SELECT d.id FROM troupe.dead_letters AS d WHERE d.key = ANY (@bytes))",
		holds: "(t.payload_before IS NOT NULL OR t.payload_after IS NOT NULL)",
		blank: map[string]string{"payload_before": "NULL", "payload_after": "NULL"},
		kept:  `position, at, actor, role, action, reason, dead_letter_id, consumer_group, topic, partition, offset, message_id`,
	},
	{
		name: "dead_letters", match: sameBytes, inTheWay: "t.status = 'open'", holds: "true",
		remedy: "open dead letters: troupe dlq redrive or troupe dlq discard",
		blank: map[string]string{
			"key": "NULL", "headers": "''", "payload": "NULL", "edited_payload": "NULL", "error": "''", "correlation_id": "''",
		},
		kept: "id, consumer_group, handler, error_class, attempts, topic, topic_id, partition, offset, message_id, message_type, redrives, status, " +
			"first_failed_at, last_failed_at, created_at, cause",
	},
	{
		name: "deadlines", match: "(" + sameKey + " OR t.scope = ANY (@texts))", inTheWay: "true",
		remedy: "deadlines to come, or on their way: wait until they are handled, or let the service cancel them",
	},
	{
		name: "local_work", match: sameKey, inTheWay: "(t.ended_at IS NULL OR t.ended_at > clock_timestamp() - interval '1 hour')", delete: true,
		remedy: "local work that has not ended, or within the last hour, in which other groups may still get it: wait",
	},
	{
		name: "saga_events", match: "t.saga_id IN (SELECT s.id FROM troupe.sagas AS s WHERE s.key = @key AND NOT " + erased("s") + ")", holds: "true",
		blank: map[string]string{
			"event": blankEvent, "moments": blankMoments, "reason": "CASE WHEN t.actor IS NOT NULL THEN t.reason END",
		},
		kept: "saga_id, version, at, kind, actor, recorded_at, role",
	},
	{
		name: "sagas", match: "t.key = @key", inTheWay: "t.ended_at IS NULL", holds: "NOT " + erased("t"),
		remedy: "has not ended: wait, or end it with troupe saga cancel, compensate or abandon",
		blank:  map[string]string{"state": blankState, "reason": "NULL"},
		kept: "id, saga, key, hop, consumer_group, definition, version, status, steps, wake_at, started_at, updated_at, ended_at, " +
			"content_type",
	},
	{
		name: "saga_stash", match: "(t.variable = '' AND t.value = ANY (@texts) OR t.event ->> 'key' = ANY (@texts))", inTheWay: stashed, delete: true,
		remedy: "an event that waits for its saga: wait until the saga has ended, or until the event expires (docs/sagas.md, stash)",
	},
	{
		name: "joins", match: sameText, inTheWay: "t.status = 'open'",
		remedy: "joins that have not ended: wait",
		kept:   "consumer_group, name, key, status, arrived, broken_by, news, began_at, ended_at, forget_at",
	},
	{name: "join_parts", match: sameText, delete: true},
	{
		name: "expectations", match: sameText, inTheWay: "(t.forget_at IS NULL OR t.alert_at IS NOT NULL)",
		holds:  "(t.headers IS NOT NULL OR t.payload IS NOT NULL)",
		remedy: "expectations that have not ended, or whose alert is not sent yet: wait",
		blank:  map[string]string{"headers": "NULL", "payload": "NULL"},
		kept: "consumer_group, name, key, after_at, due_at, met_at, missed_at, raised_at, news, alert_id, alert_at, alerted_at, " +
			"forget_at",
	},
	{
		// A saga's command is stored under the saga's id, in the databases of all hops.
		name: "answers",
		match: "(t.idempotency_key = ANY (@texts) " +
			"OR t.command_key IS NOT NULL AND substr(t.idempotency_key, nullif(strpos(t.idempotency_key, '/'), 0) + 1) = @key)",
		holds: "(t.payload IS NOT NULL OR t.request_hash IS NOT NULL)",
		blank: map[string]string{"payload": "NULL", "request_hash": "NULL"},
		kept:  "consumer_group, message_type, idempotency_key, outcome, type, content_type, answered_at, command_key",
	},
	{
		name: "schedules", match: "t.key = @key", inTheWay: "true",
		remedy: "sends messages with the key: troupe schedule delete",
	},
	{
		// The key of a person's encrypted fields, wherever they are. The row stays, so that no service makes another key.
		name: "subject_keys", match: "t.subject = sha256(convert_to(@key, 'UTF8'))", holds: "t.forgotten_at IS NULL",
		blank: map[string]string{"wrapped_key": "NULL", "forgotten_at": "clock_timestamp()"},
		kept:  "subject, created_at",
	},
	{name: "watch_messages", match: "(" + sameText + " OR t.flow_text = ANY (@texts) OR t.id_text = ANY (@texts))", delete: true},
	{name: "watch_findings", match: "(" + sameText + " OR t.flow_text = ANY (@texts))", delete: true},
	{
		name: "watch_unexpected", match: "t.flow_text = ANY (@texts)", holds: "true",
		blank: map[string]string{"flow_text": "NULL"},
		kept:  "flow, topic, type, messages, first_at, last_at, correlation",
	},
}

// without lists the columns of the tables that an erasure does not change. They hold no content of messages: ids, times, counters,
// names of topics and groups, settings, and texts of operators.
var without = map[string]string{
	"migrations":         "id, version_id, is_applied, tstamp",
	"outbox_partitions":  "name, lo, hi, state, done_at",
	"relay_leases":       "shard, holder, term, expires_at, slot, shards, layout, wanted, source, source_why, paused_at, paused_by, paused_why",
	"relay_state":        "slot, source, system_id, timeline, published, sweep, lsn, updated_at, publication",
	"relay_pauses":       "position, at, actor, role, action, reason, shard",
	"relay_slot_samples": "shard, minute, at, slot, retained",
	"mapped_tables":      "name, shard, source, system_id, timeline, published, sweep, lsn, updated_at, publication, slot",
	"leases":             "id, consumer_group, topic, partition, term, owner, taken_at, released_at, topic_id, watermark, watermark_epoch",
	"inbox_offsets":      "lease_id, topic_id, low, high, offsets, epoch",
	"inbox":              "consumer_group, message_id, redrive, handled_at",
	"inbox_recent":       "slot, id, consumer_group, redrive, handled_at",
	"inbox_slots":        "slot, day",
	"inbox_groups":       "consumer_group, days, barrier_forgotten, coordinated_at",
	"rate_limits":        "consumer_group, handler, next_start, calls, span, waiting_since, claimed_at",
	"started":            "lease_id, topic_id, offset, starts, started_at",
	"unreadable_batches": "consumer_group, topic, topic_id, partition, offset, next_offset, bytes, found_at, skipped_at",
	"local_topics":       "topic, consumer_group, created_at",
	"saga_definitions":   "hash, saga, version, definition, created_at",
	"saga_associations":  "saga, variable, value, saga_id", // deleted when the saga ends
	"saga_locks":         "name, saga_id, position, since", // deleted when the saga ends
	"outbox_posts":       "id, digest, at",
	"watch_names":        "id, name",
	"watch_flows":        "flow, declared, answer, seen_at",
	"watch_offsets":      "flow, topic, topic_id, partition, next",
	"watch_marks":        "flow, within, judged",
	"watch_days":         "slot, day",
	"retention":          "kind, keep, removed, passed_at",
	"schedule_changes":   "position, at, actor, role, action, reason, name, change",
	"handlers":           "consumer_group, topic, handler, refusal",
	"rebuilds":           "id, consumer_group, generation, handlers, from_time, emit, started_at, cancelled_at, finished_at",
	"rebuild_partitions": "rebuild, topic, partition, topic_id, handlers, from_offset, watermark, epoch, until, began_at, ended_low, ended_high, ended_epoch, undone_at",
	"rebuild_changes":    "position, at, actor, role, action, reason, rebuild, change",
	"erasures":           "position, at, actor, role, reason, key_digest, changed",
}
