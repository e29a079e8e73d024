package relay_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// TestTracedRowsAreReportedOnceTheyArePublished publishes rows among which one is too large for the broker. So under exactly-once delivery a
// transaction is aborted whose other rows were acknowledged.
func TestTracedRowsAreReportedOnceTheyArePublished(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*stage) relay.Config{
		"poll": func(s *stage) relay.Config {
			c := s.config()
			c.Source, c.Delivery = relay.Poll, relay.AtLeastOnce
			return c
		},
		"wal":          func(s *stage) relay.Config { return s.wal() },
		"exactly once": (*stage).exactly,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			small := s.flow + ".small.commands"
			s.provision(kafka.Topic{Name: small, Partitions: 1, Config: map[string]string{"max.message.bytes": "4096"}})
			cfg := set(s)
			var mu sync.Mutex
			var all []outbox.PublishedRow
			cfg.Hooks.Traced = func(one outbox.PublishedRow) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, one)
			}
			const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
			random := make([]byte, 10_000) // compression must not make it fit
			for i := range random {
				random[i] = byte(rand.N(256))
			}
			tx, err := s.pool.Begin(t.Context())
			require.NoError(t, err)
			insert := func(key, traceparent string, payload []byte) {
				_, err := tx.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, headers, payload)
					VALUES ($1, $2, 'Thing', jsonb_strip_nulls(jsonb_build_object('traceparent', nullif($3, ''), 'tracestate', 'vendor=1')), $4)`, small, key, traceparent, payload)
				require.NoError(t, err)
			}
			if cfg.Delivery == relay.ExactlyOnce {
				s.startStreaming(cfg)
			} else {
				s.start(cfg)
			}
			before := time.Now()
			for n := range 10 {
				insert(fmt.Sprint("sampled-", n), "00-"+trace+"-"+span+"-01", []byte("x"))
			}
			insert("too large", "00-"+trace+"-"+span+"-01", random)
			insert("not sampled", "00-"+trace+"-"+span+"-00", []byte("x"))
			insert("cut short", "00-"+trace+"-1", []byte("x"))
			insert("none", "", []byte("x"))
			insert("other flags", "00-"+trace+"-"+span+"-03", []byte("x"))
			require.NoError(t, tx.Commit(t.Context()))
			testkit.Wait(t, "a parked row", func() (bool, error) {
				return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'") == 1, nil
			})
			var records []*kgo.Record
			if cfg.Delivery == relay.ExactlyOnce {
				s.waitStreamed()
				records = s.committed(small)
			} else {
				records = s.gather(14, small)
			}
			testkit.Wait(t, "reports", func() (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				return len(all) >= 11, nil
			})
			offsets := make(map[string]int64)
			for _, r := range records {
				m, err := kafka.Message(r)
				require.NoError(t, err)
				if m.TraceParent == "00-"+trace+"-"+span+"-01" || m.TraceParent == "00-"+trace+"-"+span+"-03" {
					offsets[m.ID] = r.Offset
				}
			}
			require.Len(t, offsets, 11)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, 11, len(all), "each row once") // not Len, which would print them
			for _, one := range all {
				require.Contains(t, offsets, one.ID)
				require.Equal(t, offsets[one.ID], one.Offset, "the offset at which consumers read it")
				require.Equal(t, small, one.Topic)
				require.Equal(t, "vendor=1", one.TraceState)
				require.False(t, one.Written.Before(before))
				require.False(t, one.Sent.Before(one.Written))
				require.False(t, one.Published.Before(one.Sent))
			}
		})
	}
}
