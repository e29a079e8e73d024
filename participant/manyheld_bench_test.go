package participant_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

const manyHeld = 100_000

// BenchmarkManyHeldKeys handles 20,000 messages of free keys in a partition, without held keys and with 100,000 keys that are
// held for an hour. An operation is one round of both; left is the share of the rate that remains.
func BenchmarkManyHeldKeys(b *testing.B) {
	for _, path := range []string{"Kafka", "local"} {
		b.Run(path, func(b *testing.B) {
			m := newManyHeld(b, path == "local")
			m.publish()
			var without, with time.Duration
			for b.Loop() {
				without += m.publish()
				m.hold()
				with += m.publish()
				m.clear()
			}
			rate := func(d time.Duration) float64 { return float64(b.N*20_000) / d.Seconds() }
			b.ReportMetric(rate(without), "messages/s-without")
			b.ReportMetric(rate(with), "messages/s-with")
			b.ReportMetric(rate(with)/rate(without), "left")
		})
	}
}

// manyHeldStage starts a participant for each step, since a participant reads the held keys when it starts.
type manyHeldStage struct {
	*stage
	handled atomic.Int64
	table   string // of held messages
}

func newManyHeld(b *testing.B, local bool) *manyHeldStage {
	m := &manyHeldStage{table: "troupe.local_work"}
	if local {
		m.stage = newLocalStage(b)
		m.makeLocal()
		_, err := m.pool.Exec(b.Context(), "DROP TRIGGER step ON troupe.local_work")
		require.NoError(b, err)
		return m
	}
	m.stage, m.table = newStage(b), "troupe.held"
	m.provision(1)
	return m
}

func (m *manyHeldStage) participant() *participant.Participant {
	p := m.new(onePartition, holdLong, func(c *participant.Config) {
		c.Log, c.Batch = zerolog.Nop(), 100
		c.Hooks.AfterCommit = func(participant.Delivery) { m.handled.Add(1) }
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if c.Body.Fail == "always" {
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	})
	return p
}

// publish starts a participant and returns how long it takes for 20,000 messages of 1,000 keys.
func (m *manyHeldStage) publish() time.Duration {
	stop := m.start(m.participant())
	defer stop()
	m.publishFree(1)
	began := time.Now()
	m.publishFree(20_000)
	return time.Since(began)
}

// publishFree publishes n messages and waits until they are handled.
func (m *manyHeldStage) publishFree(n int) {
	want := m.handled.Load() + int64(n)
	if m.local {
		m.exec(`INSERT INTO troupe.outbox (topic, key, type, payload)
			SELECT $1, 'k-' || n % 1000, 'Count', '{"n":1}' FROM generate_series(1, $2::int) AS n`, m.hop.Commands(), n)
	} else {
		m.send(m.commands(min(n, 1000), max(n/1000, 1))...)
	}
	waitFor(m.t, "free keys", func() bool { return m.handled.Load() >= want })
}

// hold makes a participant hold a key, and copies its row for the other keys.
func (m *manyHeldStage) hold() {
	stop := m.start(m.participant())
	defer stop()
	if m.local {
		m.write("held", Count{Fail: "always"})
		m.waitCount(1, "SELECT count(*) FROM troupe.local_work WHERE attempts = 1")
		m.exec(`INSERT INTO troupe.local_work
			SELECT (jsonb_populate_record(w, jsonb_build_object('position', nextval('troupe.outbox_position_seq'), 'id', troupe.uuidv7(), 'key', 'held-' || n,
				'hold_key', sha256(('held-' || n)::bytea)))).*
			FROM troupe.local_work AS w, generate_series(1, $1::int) AS n WHERE w.attempts = 1`, manyHeld-1)
		return
	}
	m.send(m.command("held", Count{Fail: "always"}))
	m.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
	m.exec(`INSERT INTO troupe.held (consumer_group, topic_id, partition, "offset", topic, hold_key, key, headers, payload, message_time,
			attempts, max_attempts, next_try, error_class, last_error, first_failed_at, last_failed_at, handler, hop, source)
		SELECT consumer_group, topic_id, partition, 1000000 + n, topic, sha256(('held-' || n)::bytea), ('held-' || n)::bytea, headers, payload,
			message_time, attempts, max_attempts, next_try, error_class, last_error, first_failed_at, last_failed_at, handler, hop, source
		FROM troupe.held, generate_series(1, $1::int) AS n`, manyHeld-1)
}

// clear deletes the held messages and updates the statistics.
func (m *manyHeldStage) clear() {
	m.exec("DELETE FROM " + m.table + " WHERE attempts > 0")
	m.exec("VACUUM ANALYZE " + m.table)
}
