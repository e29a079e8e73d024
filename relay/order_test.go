package relay_test

import (
	"crypto/rand"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// A relay that followed the highest position would lose the first row: when it commits, later ones are already deleted.
func TestARowThatCommitsLateIsNotLost(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.start(s.config())
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'late', 'Thing', 'late')`, s.topic)
	require.NoError(t, err)
	committed := s.fill(s.topic, 10, 100)
	consumer := testkit.Consume(t, s.brokers, s.topic)
	consumer.WaitN(1000)
	s.waitEmpty()
	began := time.Now()
	require.NoError(t, tx.Commit(t.Context()))
	records := consumer.WaitN(1001)
	require.Less(t, time.Since(began), 20*time.Second, "by the next claim, not by the look from the first row once a minute")
	require.Equal(t, "late", string(records[1000].Value))
	judge(records[:1000], committed).requireSound(t)
}

func TestRowsThatRolledBackAreNeverSent(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.start(s.config())
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'k', 'Thing', 'never')`, s.topic)
	require.NoError(t, err)
	s.insert(s.topic, "k", "before")
	require.NoError(t, tx.Rollback(t.Context()))
	s.insert(s.topic, "k", "after")
	s.waitEmpty()
	require.Equal(t, []string{"before", "after"}, values(testkit.Consume(t, s.brokers, s.topic).WaitN(2)))
}

// A22: order is per key, through every retry; it is not global.
func TestARowThatIsTooLargeParksOnlyItsKey(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	small := s.flow + ".small.commands"
	limit := "20000"
	s.provision(kafka.Topic{Name: small, Partitions: 1, Config: map[string]string{"max.message.bytes": limit}})
	for _, c := range []struct {
		name  string
		topic string
		size  int
	}{
		{"for any batch", s.topic, 1_200_000},
		{"for the topic, which only the broker knows", small, 30_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.insert(c.topic, "big", "first")
			s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'big', 'Thing', $2)`, c.topic, incompressible(c.size))
			s.insert(c.topic, "big", "behind")
			committed := s.fill(c.topic, 3, 100)
			var parked atomic.Int64
			cfg := s.config()
			cfg.Hooks.PublishFailed = func(failure relay.PublishFailure) {
				if failure.Parked {
					parked.Add(1)
				}
			}
			r := s.start(cfg)
			testkit.Wait(t, "only the large row and the one behind it", func() (bool, error) {
				return s.count(s.left()) == 2 && parked.Load() == 1, nil
			})
			require.Equal(t, 1, s.count(`SELECT count(*) FROM troupe.outbox_status WHERE key = 'big' AND status = 'parked'
				AND attempts = 1 AND last_error LIKE '%MESSAGE_TOO_LARGE%'`))
			require.NoError(t, r.Ready(), "parked rows are a person's work, not the relay's")

			// The operator discards the row; its key continues, still in order.
			s.exec("DELETE FROM troupe.outbox WHERE position = (SELECT position FROM troupe.outbox_failures WHERE status = 'parked')")
			s.exec("DELETE FROM troupe.outbox_failures WHERE status = 'parked'")
			records := s.collect(302, c.topic)
			var of []string
			for _, record := range records {
				if string(record.Key) == "big" {
					of = append(of, string(record.Value))
				}
			}
			require.Equal(t, []string{"first", "behind"}, of)
			rest := records[:0]
			for _, record := range records {
				if string(record.Key) != "big" {
					rest = append(rest, record)
				}
			}
			judge(rest, committed).requireSound(t)
			require.NoError(t, r.stop())
		})
	}
}

// incompressible, since the broker measures the size after compression
func incompressible(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.Read(b)
	return b
}
