package relay

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// drops counts the queries with which a dropper begins.
type drops struct{ n atomic.Int64 }

func (d *drops) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "pg_has_role") {
		d.n.Add(1)
	}
	return ctx
}

func (*drops) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// An operator who grants a role no more than the documented rights has decided this, so it is no failure to log every five minutes.
func TestARelayThatDoesNotOwnTheOutboxLogsOnceThatItDropsNoPartitions(t *testing.T) {
	t.Parallel()
	var asked drops
	cfg := grantstest.New(t, testkit.Database(t), grants.Relay).Pool().Config()
	cfg.ConnConfig.Tracer = &asked
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer pool.Close()
	var log bytes.Buffer
	r, err := New(Config{Pool: pool, Brokers: []string{"127.0.0.1:1"}, Service: "shop", Log: zerolog.New(&log), Source: Poll})
	require.NoError(t, err)
	r.pool = pool
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.retain(ctx, time.Millisecond)
	}()
	testkit.Wait(t, "three attempts", func() (bool, error) { return asked.n.Load() >= 3, nil })
	stop()
	<-ended
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "this relay drops no partitions")
}
