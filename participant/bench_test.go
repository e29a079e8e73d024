package participant_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
)

// BenchmarkRun measures the whole path of a message: fetch, inbox row, one upsert, one answer, commit, on four partitions. An
// operation is 1,000 messages.
func BenchmarkRun(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) { benchmarkRun(b, batch) })
	}
}

func benchmarkRun(b *testing.B, size int) {
	const batch = 1000
	s := newStage(b)
	s.provision(4)
	var handled atomic.Int64
	done := make(chan struct{}, 1)
	want := int64(0)
	p := s.new(func(c *participant.Config) {
		c.Log, c.Batch = zerolog.Nop(), size
		c.Hooks.AfterCommit = func(participant.Delivery) {
			if handled.Add(1) == atomic.LoadInt64(&want) {
				done <- struct{}{}
			}
		}
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		err := participant.Queue(ctx, tx, `INSERT INTO counters AS c (key, total) VALUES ($1, 1) ON CONFLICT (key) DO UPDATE SET total = c.total + 1`,
			string(c.Message.Key))
		return participant.Succeed(Counted{N: c.Body.N}), err
	})
	s.start(p)
	send := func() {
		records := make([]*kgo.Record, batch)
		for i := range records {
			records[i] = kafka.Record(s.command(fmt.Sprintf("k-%d", i%100), Count{N: i}))
		}
		atomic.AddInt64(&want, batch)
		require.NoError(b, s.client.ProduceSync(context.Background(), records...).FirstErr())
		<-done
	}
	send()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	for range b.N {
		send()
	}
	b.StopTimer()
	runtime.ReadMemStats(&after)
	messages := float64(b.N * batch)
	b.ReportMetric(messages/b.Elapsed().Seconds(), "messages/s")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/messages, "allocs/message") // the producer's and the broker's too
}
