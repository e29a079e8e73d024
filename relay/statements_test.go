package relay

import (
	"context"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/testkit"
)

func TestEveryStatementFitsTheTables(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	files, err := fs.Glob(statementFiles, "sql/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, "sql/"), ".sql")
		text, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn.Conn(), statement(name), nil)
		require.NoError(t, err)
		_, err = conn.Conn().Prepare(t.Context(), name, text)
		require.NoError(t, err, name)
	}
}

// tenure returns a lease of the first term, on a database of the test's own.
func tenure(t *testing.T) (*pgxpool.Pool, *lease) {
	t.Helper()
	pool := testkit.Database(t)
	l := &lease{holder: "h", length: time.Hour, since: time.Now()}
	err := pool.QueryRow(t.Context(), claimLease, l.args(pg.Args{"length": l.length})).Scan(&l.term)
	require.NoError(t, err)
	return pool, l
}

// The condition is in two statements. A look that returns true when the claim finds no row costs forever; one that returns
// false hides rows.
func TestALookAndAClaimAgree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		key     any // of the row that is looked at, at position 2
		failure string
		want    int
	}{
		{"a free row", "k", "", 1},
		{"a row without a key", nil, "", 1},
		{"it is parked", "k", "(2, 'k', 'parked', NULL)", 0},
		{"it waits for its next try", "k", "(2, 'k', 'retrying', now() + interval '1 hour')", 0},
		{"its next try is due", "k", "(2, 'k', 'retrying', now() - interval '1 hour')", 1},
		{"behind a parked row of its key", "k", "(1, 'k', 'parked', NULL)", 0},
		{"behind a row of its key that is due", "k", "(1, 'k', 'retrying', now() - interval '1 hour')", 0},
		{"behind a parked row of another key", "k", "(1, 'x', 'parked', NULL)", 1},
		{"behind a parked row without a key", nil, "(1, NULL, 'parked', NULL)", 1},
		{"before a parked row of its key", "k", "(3, 'k', 'parked', NULL)", 1},
		{"another row of its position was parked", "k", "(2, 'x', 'parked', NULL)", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pool, l := tenure(t)
			exec := func(sql string, args ...any) {
				_, err := pool.Exec(t.Context(), sql, args...)
				require.NoError(t, err)
			}
			exec("INSERT INTO troupe.outbox (position, topic, key, type) OVERRIDING SYSTEM VALUE VALUES (2, 't', $1, 'T')", c.key)
			if c.failure != "" {
				exec(`INSERT INTO troupe.outbox_failures (position, order_key, status, next_try, id, topic, attempts, max_attempts, last_error)
					SELECT n, k::bytea, s, t::timestamptz, coalesce(o.id, troupe.uuidv7()), 't', 1, 1, 'e'
					FROM (VALUES ` + c.failure + `) AS x (n, k, s, t)
					LEFT JOIN troupe.outbox o ON o.position = n AND o.key IS NOT DISTINCT FROM k`)
			}
			found, err := l.renew(t.Context(), pool, scope{})
			require.NoError(t, err)
			require.Equal(t, c.want == 1, found)
			p := &poll{session: session{pool: pool}, lease: l, batch: 10}
			defer p.close()
			items, err := p.claim(t.Context(), 0)
			require.NoError(t, err)
			require.Len(t, items, c.want)
			blind, err := l.renew(t.Context(), pool, nothing)
			require.NoError(t, err)
			require.False(t, blind)
		})
	}
}

// The cost of a claim must not grow with the backlog: no plan may read all of it, whatever the statistics are.
func TestAClaimReadsNoMoreThanItTakes(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type) SELECT 't', 'k', 'T' FROM generate_series(1, 20000)")
	require.NoError(t, err)
	p := &poll{session: session{pool: pool}, lease: l, batch: 100}
	defer p.close()
	for _, statistics := range []string{"none", "some"} {
		items, err := p.claim(t.Context(), 0)
		require.NoError(t, err)
		require.Len(t, items, 100)
		p.join(t.Context())
		_, err = p.conn.Exec(t.Context(), "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET min_parallel_index_scan_size = 0")
		require.NoError(t, err)
		for _, statement := range []string{claimRows, readOn} {
			rows, err := p.conn.Query(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF) "+statement,
				p.pass.args(p.scope().args(l.args(pg.Args{"rows": 100, "retried": 50, "bytes": claimBytes}))))
			require.NoError(t, err)
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			for _, line := range plan {
				require.NotRegexp(t, `Sort|Seq Scan|Bitmap|Hash|Gather|rows=20000 loops`, line, statistics)
			}
		}
		_, err = pool.Exec(t.Context(), "ANALYZE troupe.outbox, troupe.outbox_failures")
		require.NoError(t, err)
	}
}

func TestAClaimEndsBehindItsBytesWithoutAGap(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload)
		SELECT 't', 'k', 'T', CASE WHEN n % 3 > 0 THEN convert_to(repeat('x', 1000000), 'UTF8') END FROM generate_series(1, 30) AS n`)
	require.NoError(t, err)
	p := &poll{session: session{pool: pool}, lease: l, batch: 1000}
	defer p.close()
	items, err := p.claim(t.Context(), 0)
	require.NoError(t, err)
	bytes := 0
	for n, i := range items {
		require.EqualValues(t, n+1, i.row.Position)
		bytes += len(i.row.Payload)
	}
	require.Greater(t, bytes, claimBytes)
	require.LessOrEqual(t, bytes, claimBytes+1_000_000)
}

// A frozen relay that wakes up must not delete in the name of its former term.
func TestNothingIsDeletedOrNotedUnderATermThatIsOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  string
	}{
		{"another term", "UPDATE troupe.relay_leases SET term = term + 1"},
		{"another holder", "UPDATE troupe.relay_leases SET holder = 'other'"},
		{"it ran out", "UPDATE troupe.relay_leases SET expires_at = now()"},
		{"there is none", "DELETE FROM troupe.relay_leases"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pool, l := tenure(t)
			_, err := pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type) VALUES ('t', 'k', 'T')")
			require.NoError(t, err)
			p := &poll{session: session{pool: pool}, lease: l, batch: 10}
			defer p.close()
			items, err := p.claim(t.Context(), 0)
			require.NoError(t, err)
			_, err = pool.Exec(t.Context(), c.end)
			require.NoError(t, err)
			require.ErrorIs(t, p.remove(t.Context(), items), errLost)
			failed := []failure{{item: items[0], PublishFailure: PublishFailure{Position: 1, ID: items[0].row.ID, Attempts: 1, Parked: true, Err: errLost}}}
			require.ErrorIs(t, p.recordFailures(t.Context(), failed), errLost)
			var rows, noted int
			require.NoError(t, pool.QueryRow(t.Context(),
				"SELECT (SELECT count(*) FROM troupe.outbox), (SELECT count(*) FROM troupe.outbox_failures)").Scan(&rows, &noted))
			require.Equal(t, 1, rows)
			require.Zero(t, noted)
		})
	}
}

// The check of the term waits for a new term whose transaction is just committing, and then sees it.
func TestADeleteWaitsForATermThatJustBegins(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type) VALUES ('t', 'k', 'T')")
	require.NoError(t, err)
	p := &poll{session: session{pool: pool}, lease: l, batch: 10}
	defer p.close()
	items, err := p.claim(t.Context(), 0)
	require.NoError(t, err)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "UPDATE troupe.relay_leases SET term = term + 1, holder = 'other'")
	require.NoError(t, err)
	result := make(chan error, 1)
	go func() { result <- p.remove(context.WithoutCancel(t.Context()), items) }()
	testkit.Wait(t, "the delete to wait", func() (bool, error) {
		var waiting int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return waiting == 1, err
	})
	require.NoError(t, tx.Commit(t.Context()))
	require.ErrorIs(t, <-result, errLost)
	var rows int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.outbox").Scan(&rows))
	require.Equal(t, 1, rows)
}

// A crash of the server can give a position out twice; an acknowledged row is distinguished from the one in its place by its
// id.
func TestARowThatTookAPublishedRowsPositionIsNotDeleted(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	const row = "INSERT INTO troupe.outbox (position, topic, type) OVERRIDING SYSTEM VALUE VALUES (7, 't', 'T')"
	_, err := pool.Exec(t.Context(), row)
	require.NoError(t, err)
	p := &poll{session: session{pool: pool}, lease: l, batch: 10}
	defer p.close()
	items, err := p.claim(t.Context(), 0)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "DELETE FROM troupe.outbox")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), row)
	require.NoError(t, err)
	require.NoError(t, p.remove(t.Context(), items))
	var rows int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.outbox").Scan(&rows))
	require.Equal(t, 1, rows)
}

// A redrive and the copy of a dead letter have the id of their message.
func TestARowWithTheIDOfAPublishedRowIsNotDeleted(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, type) SELECT 't', 'T' FROM generate_series(1, 200)")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "UPDATE troupe.outbox SET id = (SELECT id FROM troupe.outbox WHERE position = 1) WHERE position = 100")
	require.NoError(t, err)
	p := &poll{session: session{pool: pool}, lease: l, batch: 1000}
	defer p.close()
	items, err := p.claim(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, items, 200)
	require.NoError(t, p.remove(t.Context(), slices.Delete(items, 99, 100)))
	var left []int64
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT array_agg(position) FROM troupe.outbox").Scan(&left))
	require.Equal(t, []int64{100}, left)
}
