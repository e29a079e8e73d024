package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// evil clears the screen, changes the direction of the text, and begins a line.
const evil = "a\x1b[2J\u009b2J\u202eb\r\nc"

// TestNoTextOfAProducerControlsTheTerminal prints rows whose texts a producer, a service or another operator chose.
func TestNoTextOfAProducerControlsTheTerminal(t *testing.T) {
	t.Parallel()
	s := newDocumentStage(t)
	s.exec(`UPDATE troupe.dead_letters SET consumer_group = $1, handler = $1, error_class = $1, error = $1, topic = $1, key = convert_to($1, 'UTF8'), message_id = $1, message_type = $1,
		correlation_id = $1, payload = convert_to($1, 'UTF8') WHERE id = $2`, evil, documentedLetter)
	s.exec(`INSERT INTO troupe.repairs (actor, action, reason, dead_letter_id, consumer_group, topic, partition, "offset", message_id)
		VALUES ($1, 'edit', $1, $2, $1, $1, 0, 0, $1)`, evil, documentedLetter)
	s.exec(`UPDATE troupe.held SET consumer_group = $1, topic = $1, key = convert_to($1, 'UTF8'), error_class = $1, last_error = $1`, evil)
	s.exec(`INSERT INTO troupe.expectations (consumer_group, name, key, after_at, due_at, alert_id, missed_at)
		VALUES ($1, $1, $1, now(), now(), gen_random_uuid(), now())`, evil)
	s.exec(`UPDATE troupe.unreadable_batches SET consumer_group = $1, topic = $1`, evil)
	s.exec(`UPDATE troupe.saga_events SET kind = $1, actor = $1, reason = $1, event = event || jsonb_build_object('actor', $1::text, 'step', $1::text, 'reason', $1::text, 'kind', $1::text),
		moments = (SELECT jsonb_agg(jsonb_build_object('what', $1::text, 'step', $1::text, 'why', $1::text)) FROM jsonb_array_elements(moments))
		WHERE saga_id = 'order/o-1001'`, evil)
	s.exec(`UPDATE troupe.sagas SET reason = $1, hop = $1, state = jsonb_set(jsonb_set(jsonb_set(state || jsonb_build_object('cancel', $1::text),
		'{data}', (state -> 'data') || jsonb_build_object('customer_id', $1::text, $1::text, 1)),
		'{steps,0,phase}', to_jsonb($1::text)), '{deadlines}', jsonb_build_array(jsonb_build_object('name', $1::text, 'at', '2026-11-21T12:00:00Z'))) WHERE id = 'order/o-1001'`, evil)
	s.exec(`INSERT INTO troupe.saga_locks (name, saga_id) VALUES ($1, 'order/o-1001')`, evil)
	s.exec(`INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ($1, $1, 1, $1)`, evil)
	s.exec("UPDATE troupe.rebuilds SET consumer_group = $1, handlers = ARRAY[$1]", evil)
	s.exec(`INSERT INTO troupe.rebuild_partitions (rebuild, topic, partition, topic_id, handlers, from_offset) VALUES (1, $1, 0, gen_random_uuid(), ARRAY[$1], 0)`, evil)
	s.exec("INSERT INTO troupe.rebuild_changes (actor, action, reason, rebuild, change) VALUES ($1, 'start', $1, 1, $1)", evil)
	s.exec("UPDATE troupe.schedules SET cron = $1, zone = $1, saga = $1, error = $1", evil)
	s.exec("INSERT INTO troupe.schedule_changes (actor, action, reason, name, change) VALUES ($1, 'set', $1, $1, $1)", evil)
	const heldID = "0199a5e0-7c1d-7d3a-9d0b-6f3b1c2d4e5f"
	s.exec("UPDATE troupe.held SET message_id = $1", heldID)
	s.exec("UPDATE troupe.watch_names SET name = name || $1 WHERE name LIKE '%shop.%'", evil)
	s.exec("UPDATE troupe.watch_messages SET key = $1, id_text = $1, flow_text = $1 WHERE key = 'o-1002'", evil)
	s.exec("INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ('order.payment.commands', 'o-1001', $1, '{}')", evil)
	s.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
		SELECT position, id, topic, '\x6f2d31', 'parked', 8, 8, $1 FROM troupe.outbox WHERE type = $1`, evil)
	env := []string{"DATABASE_URL=" + testkit.DatabaseURL(t, s.pool), "TROUPE_DATABASES=order=" + testkit.DatabaseURL(t, s.pool), "TROUPE_FLOW=" + s.watched, "KAFKA_BROKERS="}
	for _, args := range []string{
		"dlq list", "dlq list --letters", "dlq show " + documentedLetter, "held list", "expectation list", "expectation list --counts", "batch list", "saga list", "saga list --counts", "saga show order/o-1001", "saga locks",
		"saga replay --all", "watch list", "watch findings", "watch show o-1001",
		"trace o-1001", "trace o-1001 --payload", "doctor", "dlq redrive " + documentedLetter + " --dry-run", "dlq discard " + documentedLetter + " --dry-run --reason r",
		"saga retry order/o-1001 inventory --dry-run", "held retry --all --dry-run",
		"rebuild list", "rebuild show 1", "schedule list", "actions", "inbox find " + heldID,
		"dlq list --output yaml", "saga show order/o-1001 --output yaml", "trace o-1001 --output yaml", "dlq list --letters --output json",
	} {
		o := finish(t, command(t, env, strings.Fields(args)...))
		controls := []string{"\x1b", "\r", "\u009b", "\u202e"}
		if strings.HasSuffix(args, "json") || strings.HasSuffix(args, "yaml") { // for programs: the other two are text there
			controls = controls[:2]
		}
		for _, text := range controls {
			require.NotContains(t, o.stdout+o.stderr, text, args)
		}
		require.NotEmpty(t, o.stdout+o.stderr, args)
	}
}
