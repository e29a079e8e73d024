package relay

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// A restored row may have a low position and be young, and may have any xid. It hides no old row, and its age counts from the
// transaction that restored it.
func TestOldRowsAreRemovedBehindAndAmongRestoredRows(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	r, err := New(Config{Pool: pool, Brokers: []string{"127.0.0.1:1"}, Service: "shop", Source: Poll})
	require.NoError(t, err)
	r.pool, r.oldTransactions = pool, 10_000
	db, err := bindNow(t.Context(), pool)
	require.NoError(t, err)
	defer db.Close()

	const restored = `INSERT INTO troupe.outbox (position, xid, topic, type) OVERRIDING SYSTEM VALUE
		SELECT n, '9000000000', 't', 'T' FROM generate_series($1::bigint, $2::bigint) AS n`
	exec("INSERT INTO troupe.outbox (position, topic, type) OVERRIDING SYSTEM VALUE VALUES (5000, 't', 'T')")
	exec(restored, 5001, 5001)
	// Other tests on the server begin transactions meanwhile, but fewer than these.
	exec("DO $$ BEGIN FOR n IN 1..20000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")
	exec(restored, 1, 1500)
	of := streamedRows{server: db.id}
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT pg_current_snapshot()::text").Scan(&of.published))
	require.NoError(t, r.removeOldOnce(t.Context(), l, of))
	var young, old int
	require.NoError(t, pool.QueryRow(t.Context(), `
		SELECT count(*) FILTER (WHERE position < 5000), count(*) FILTER (WHERE position >= 5000)
		FROM troupe.outbox`).Scan(&young, &old))
	require.Equal(t, []int{1500, 0}, []int{young, old})
}

func TestRemovingOldRowsIsNotLoggedAsWorkingAgainAtTheEndOfATerm(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	var log bytes.Buffer
	r, err := New(Config{Pool: pool, Brokers: []string{"127.0.0.1:1"}, Service: "shop", Source: Poll, Log: zerolog.New(&log)})
	require.NoError(t, err)
	r.pool = pool
	r.quiet.failed("old rows", errors.New("not now"))
	ended, end := context.WithCancel(t.Context())
	end()
	published := "1:1:"
	r.removeOldRows(ended, l, streamedRows{published: &published})
	require.NotContains(t, log.String(), "works again")
}
