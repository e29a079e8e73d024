package relay_test

import (
	"cmp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/testkit"
)

// A relay that streams and is stopped within the rows that it has read finishes the transactions that it has begun to
// publish: its successor would begin them again.
func TestAStopWithinABacklogRepeatsNothing(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, map[string]string{"fsync": "off"})
	r := s.start(s.wal())
	s.waitStream()
	require.NoError(t, r.stop())
	s.exec(`DO $$ BEGIN
		FOR n IN 0..5999 LOOP
			INSERT INTO troupe.outbox (topic, key, type, payload)
			SELECT '` + s.topic + `', 'k' || k, 'Thing', convert_to(n::text, 'UTF8') FROM generate_series(1, 7) AS k;
			COMMIT;
		END LOOP;
	END $$`)
	committed := s.committedNow()
	var broke string
	for _, at := range []int64{1, 2, 1, 3, 1} {
		cfg := s.wal()
		cfg.Drain = 2 * time.Minute                              // how long a stop may take on a slow machine
		cfg.Kafka = []kgo.Opt{kgo.ProducerBatchMaxBytes(12_000)} // sends of less than a window
		reached := make(chan struct{})
		var sends atomic.Int64
		cfg.Hooks.Acked = func(int, time.Duration) {
			if sends.Add(1) == at {
				close(reached)
			}
		}
		r := s.start(cfg)
		<-reached
		require.NoError(t, r.stop())
		require.Zero(t, r.Status().InFlight)
		broke = cmp.Or(broke, r.Status().LastError)
	}
	r = s.start(s.wal())
	testkit.Wait(t, "the rest", func() (bool, error) { return r.Status().Published > 0, nil })
	v := judge(s.gather(42_000, s.topic), committed)
	v.requireSound(t)
	v.requireOnce(t, cmp.Or(broke, r.Status().LastError))
}
