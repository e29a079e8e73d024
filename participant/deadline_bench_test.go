package participant_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// BenchmarkDeadlines measures how late deadlines are while 10,000 are pending, by the database's clock: until their messages
// are in the outbox (fired), and until their handlers run, through relay and broker (met). An operation is ten seconds with as
// many due deadlines as the name gives.
func BenchmarkDeadlines(b *testing.B) {
	for _, rate := range []int{100, 1000} {
		b.Run(fmt.Sprintf("%d a second", rate), func(b *testing.B) { benchmarkDeadlines(b, rate) })
	}
}

func benchmarkDeadlines(b *testing.B, rate int) {
	const n = 10_000
	s := newDeadlineStage(b)
	_, err := s.pool.Exec(b.Context(), `
		CREATE TABLE lags (fired float8 NOT NULL);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO lags SELECT extract(epoch FROM NEW.fired_at - NEW.due_at) * 1000; RETURN NULL; END $$;
		CREATE TRIGGER note AFTER UPDATE ON troupe.deadlines FOR EACH ROW EXECUTE FUNCTION note()`)
	require.NoError(b, err)
	s.provision(4)
	s.relayed()
	p := s.new(func(c *participant.Config) { c.Batch, c.Log = 100, zerolog.Nop() })
	participant.OnDeadline(p, overdueName, overdue)
	s.start(p)
	waitFor(b, "ready", func() bool { return p.Ready() == nil })
	b.ResetTimer()
	for i := range b.N {
		s.pending(n, time.Second, n*time.Second/time.Duration(rate))
		enough := (i + 1) * rate * 10 * 99 / 100 // they come at random
		testkit.Wait(b, "deadlines met", func() (bool, error) { return s.count("SELECT count(*) FROM met") >= enough, nil })
		_, err := s.pool.Exec(context.Background(), "DELETE FROM troupe.deadlines WHERE fired_at IS NULL")
		require.NoError(b, err)
		s.waitCount(0, "SELECT count(*) FROM troupe.deadlines")
	}
	b.StopTimer()
	report := func(what, sql string) {
		rows, _ := s.pool.Query(context.Background(), sql)
		lags, err := pgx.CollectRows(rows, pgx.RowTo[float64])
		require.NoError(b, err)
		slices.Sort(lags)
		b.ReportMetric(lags[len(lags)/2], what+"-p50-ms")
		b.ReportMetric(lags[len(lags)*99/100], what+"-p99-ms")
		b.ReportMetric(lags[len(lags)-1], what+"-max-ms")
	}
	report("fired", "SELECT fired FROM lags")
	report("met", "SELECT (extract(epoch FROM met_at - due_at) * 1000)::float8 FROM met")
}

// BenchmarkLookingForDeadlines measures a poll, of which each member makes 20 a second: among 10,000 pending ones, and with as
// many that have fired and that an old snapshot keeps in the index.
func BenchmarkLookingForDeadlines(b *testing.B) {
	for _, old := range []bool{false, true} {
		name := map[bool]string{false: "pending", true: "old snapshot"}[old]
		b.Run(name, func(b *testing.B) {
			s := newDeadlineStage(b)
			p := s.expecting()
			s.pending(10_000, time.Hour, time.Hour)
			if old {
				snapshot, err := s.pool.BeginTx(b.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
				require.NoError(b, err)
				defer snapshot.Rollback(context.Background())
				_, err = snapshot.Exec(b.Context(), "SELECT 1")
				require.NoError(b, err)
				_, err = s.pool.Exec(b.Context(), "UPDATE troupe.deadlines SET due_at = due_at - interval '2 hours', scope = 'old ' || scope")
				require.NoError(b, err)
				_, err = s.pool.Exec(b.Context(), "UPDATE troupe.deadlines SET fired_at = now()")
				require.NoError(b, err)
				s.pending(10_000, 3*time.Hour, time.Hour)
			}
			_, err := s.pool.Exec(b.Context(), "ANALYZE troupe.deadlines")
			require.NoError(b, err)
			runtime.GC()
			for _, whole := range []bool{false, true} {
				b.Run(map[bool]string{false: "near", true: "all the way"}[whole], func(b *testing.B) {
					for range b.N {
						require.NoError(b, p.Look(whole))
					}
				})
			}
		})
	}
}
