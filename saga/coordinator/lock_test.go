package coordinator_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/testkit"
)

// TestALockOfAnyLengthIsGrantedToTheNext: the saga that has a lock ends while another one enters the queue for it.
func TestALockOfAnyLengthIsGrantedToTheNext(t *testing.T) {
	t.Parallel()
	pool, ctx := testkit.Database(t), t.Context()
	for _, name := range []string{"short", strings.Repeat("x", 300)} {
		begin := func() (pgx.Tx, *decisions.Postgres) {
			tx, err := pool.Begin(ctx)
			require.NoError(t, err)
			return tx, decisions.NewPostgres(tx, "order.order", "g")
		}
		first, next := "order/1-"+name[:1], "order/2-"+name[:1]
		tx, store := begin()
		granted, err := store.Lock(ctx, name, first)
		require.NoError(t, err)
		require.True(t, granted)
		require.NoError(t, tx.Commit(ctx))

		waits, store := begin()
		granted, err = store.Lock(ctx, name, next)
		require.NoError(t, err)
		require.False(t, granted)
		ends, ending := begin()
		told := make(chan []string, 1)
		go func() {
			all, err := ending.Unlock(context.WithoutCancel(ctx), first)
			if err == nil {
				err = ends.Commit(context.WithoutCancel(ctx))
			}
			if err != nil {
				t.Error(err)
			}
			told <- all
		}()
		var all []string
		ended := false
		testkit.Wait(t, "the end to wait for the queue", func() (blocked bool, err error) {
			select {
			case all = <-told:
				ended = true
				return true, nil
			default:
			}
			const waiting = `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`
			err = pool.QueryRow(ctx, waiting).Scan(&blocked)
			return blocked, err
		})
		require.NoError(t, waits.Commit(ctx))
		if !ended {
			all = <-told
		}
		require.Equal(t, []string{next}, all, "a lock of %d bytes", len(name))
	}
}
