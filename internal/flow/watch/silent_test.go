package watch_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/flow/watch"
)

// silent is a connection whose server answers nothing more after the first statement with a text, and that stays open.
type silent struct {
	net.Conn
	text     []byte
	began    *atomic.Bool // by one of the pool's connections
	silenced atomic.Bool
}

func (c *silent) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.text) && c.began.CompareAndSwap(false, true) {
		c.silenced.Store(true)
	}
	if c.silenced.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestTheWatcherGoesOnAfterAServerFellSilent lets the database server fall silent once, where records are stored or judged.
func TestTheWatcherGoesOnAfterAServerFellSilent(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"at the start": "INSERT INTO troupe.watch_offsets", "at a judgement": "INSERT INTO troupe.watch_marks", "at its end": "SET seen_at",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.send(order("o-1")...)
			var fell atomic.Bool
			cfg := s.pool.Config()
			dial := cfg.ConnConfig.DialFunc
			cfg.ConnConfig.DialFunc = func(ctx context.Context, kind, address string) (net.Conn, error) {
				conn, err := dial(ctx, kind, address)
				return &silent{Conn: conn, text: []byte(text), began: &fell}, err
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			config := s.config()
			config.Pool = pool
			w, err := watch.New(config)
			require.NoError(t, err)
			w.StepLimit(2 * time.Second)
			s.run(w)
			s.judged()
			require.True(t, fell.Load())
			require.Len(t, s.show("o-1").Messages, len(order("o-1")))
		})
	}
}
