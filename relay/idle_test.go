package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// statements counts the statements that are sent to the database.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A look at an idle outbox also renews the lease: 60 statements a minute at the default times, of which these are a fifth,
// and one or two more for maintenance.
func TestAnIdleRelayNeedsOneStatementPerInterval(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	count := &statements{}
	config := s.pool.Config()
	config.ConnConfig.Tracer = count
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	cfg := s.config()
	cfg.Source, cfg.Pool, cfg.Interval, cfg.Lease = relay.Poll, pool, 300*time.Millisecond, 3*time.Second
	r := s.start(cfg)
	waitRole(t, r, relay.Active)
	before, began := count.n.Load(), time.Now()
	testkit.Wait(t, "10 intervals of a statement each", func() (bool, error) {
		passed := time.Since(began)
		if passed < 10*cfg.Interval {
			return false, nil
		}
		n := count.n.Load() - before
		before, began = before+n, time.Now() // the waits have only begun to grow
		if n > int64(passed/cfg.Interval)+1 {
			return false, fmt.Errorf("%d statements in %s", n, passed)
		}
		return true, nil
	})
	require.NoError(t, r.Ready())
}
