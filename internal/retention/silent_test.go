package retention_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/testkit"
)

// silent is a connection whose server answers nothing more after the first statement with a text, and that stays open.
type silent struct {
	net.Conn
	text []byte
	fell *atomic.Bool // any connection fell silent
	is   atomic.Bool
}

func (c *silent) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.text) && c.fell.CompareAndSwap(false, true) {
		c.is.Store(true)
	}
	if c.is.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestClosedRecordsAreRemovedAfterAServerFellSilent lets the database server fall silent once in a pass. The pass ends with an error, and the next
// one removes the records.
func TestClosedRecordsAreRemovedAfterAServerFellSilent(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"the rights":  "saga_events'::regclass",
		"the times":   "troupe.retention",
		"the removal": "Deletes locked sagas with their logs",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.saga("completed", "completed", "91 days")
			cfg := a.pool.Config()
			dial := cfg.ConnConfig.DialFunc
			var fell atomic.Bool
			cfg.ConnConfig.DialFunc = func(ctx context.Context, kind, address string) (net.Conn, error) {
				conn, err := dial(ctx, kind, address)
				return &silent{Conn: conn, text: []byte(text), fell: &fell}, err
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			records := retention.NewRecords(pool)
			records.Limit(2 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			for !fell.Load() {
				_, err = records.Remove(ctx)
				require.NoError(t, ctx.Err(), "the pass waited for ever")
			}
			require.Error(t, err)
			testkit.Wait(t, "the removal", func() (bool, error) { // the server may still end the session that fell silent, and its locks
				_, err := records.Remove(ctx)
				return len(a.list(ids)) == 0, err
			})
		})
	}
}
