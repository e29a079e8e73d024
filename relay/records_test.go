package relay

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

// TestTheActiveRelayRemovesClosedRecords if its role owns the tables. If not, it reports that once, and is no less ready.
func TestTheActiveRelayRemovesClosedRecords(t *testing.T) {
	t.Parallel()
	owner := testkit.Database(t)
	_, err := owner.Exec(t.Context(), `
		INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, state, started_at, ended_at)
		VALUES ('order/o-1', 'order', 'o-1', 'shop.order', 'shop.order', 'd', 1, 'completed', '', '{"steps": []}', now() - interval '91 days',
		        now() - interval '91 days')`)
	require.NoError(t, err)
	run := func(pool *pgxpool.Pool) *lines {
		log := &lines{}
		r, err := New(Config{Pool: pool, Brokers: []string{"127.0.0.1:1"}, Service: "shop", Source: Poll, Log: zerolog.New(log)})
		require.NoError(t, err)
		r.pool = pool
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.removeRecords(ctx, time.Millisecond) }()
		t.Cleanup(func() { stop(); <-done })
		return log
	}
	count := func() (n int) {
		require.NoError(t, owner.QueryRow(t.Context(), "SELECT count(*) FROM troupe.sagas").Scan(&n))
		return n
	}

	log := run(grantstest.New(t, owner, grants.Relay).Pool())
	testkit.Wait(t, "a log line", func() (bool, error) { return log.has("this relay removes no closed records"), nil })
	require.Equal(t, 1, count())

	log = run(owner)
	testkit.Wait(t, "the saga to be removed", func() (bool, error) { return log.has(`"kind":"sagas","records":1`), nil })
	require.Zero(t, count())
}
