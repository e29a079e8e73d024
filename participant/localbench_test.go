package participant_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// BenchmarkLocal handles a backlog of 100,000 entries: claim, inbox row, one upsert, one answer, commit. An operation is an
// entry, so that -benchtime=100000x empties it.
func BenchmarkLocal(b *testing.B) {
	for _, batch := range []int{1, 100} {
		for keys, of := range map[int]string{100_000: "each its own key", 10: "10 keys"} {
			b.Run(fmt.Sprintf("batch=%d/%s", batch, of), func(b *testing.B) { benchmarkLocal(b, batch, keys) })
		}
	}
}

func benchmarkLocal(b *testing.B, batch, keys int) {
	s := newLocalStage(b)
	s.makeLocal()
	_, err := s.pool.Exec(b.Context(), "DROP TRIGGER step ON troupe.local_work")
	require.NoError(b, err)
	_, err = s.pool.Exec(b.Context(), `
		INSERT INTO troupe.outbox (topic, key, type, payload)
		SELECT $1, 'k-' || n % $2::int, 'Count', '{"n":1}' FROM generate_series(1, 100000) AS n`, s.hop.Commands(), keys)
	require.NoError(b, err)
	var handled atomic.Int64
	done := make(chan struct{})
	p := s.new(func(c *participant.Config) {
		c.Log, c.Batch = zerolog.Nop(), batch
		c.Hooks.AfterCommit = func(participant.Delivery) {
			if handled.Add(1) == int64(min(b.N, 100_000)) {
				close(done)
			}
		}
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		err := participant.Queue(ctx, tx, `INSERT INTO counters AS c (key, total) VALUES ($1, 1) ON CONFLICT (key) DO UPDATE SET total = c.total + 1`,
			string(c.Message.Key))
		return participant.Succeed(Counted{N: c.Body.N}), err
	})
	b.ResetTimer()
	s.start(p)
	<-done
	b.ReportMetric(float64(handled.Load())/b.Elapsed().Seconds(), "entries/s")
}
