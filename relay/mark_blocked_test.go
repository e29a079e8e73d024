package relay

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/pg"
)

// rowsRead returns the most rows that a node of a statement's plan returns or filters out in one loop.
func rowsRead(t *testing.T, conn *pgx.Conn, statement string, args pg.Args) (most int) {
	t.Helper()
	for _, node := range explain(t, conn, statement, args) {
		most = max(most, node.rows)
	}
	return most
}

// rowsReadInAll returns how many rows all nodes of a statement's plan return or filter out in all loops.
func rowsReadInAll(t *testing.T, conn *pgx.Conn, statement string, args pg.Args) (all int) {
	t.Helper()
	for _, node := range explain(t, conn, statement, args) {
		all += node.rows * node.loops
	}
	return all
}

// A planRows is a count of rows in a plan, each time that its node runs.
type planRows struct{ rows, loops int }

func explain(t *testing.T, conn *pgx.Conn, statement string, args pg.Args) (all []planRows) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF, COSTS OFF) "+statement, pgx.QueryExecModeCacheDescribe, args)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	loops := 1
	for _, line := range plan {
		if found := regexp.MustCompile(`rows=(\d+) loops=(\d+)`).FindStringSubmatch(line); found != nil {
			loops = number(found[2])
			all = append(all, planRows{number(found[1]), loops})
		}
		if found := regexp.MustCompile(`Rows Removed by .*: (\d+)`).FindStringSubmatch(line); found != nil {
			all = append(all, planRows{number(found[1]), loops})
		}
	}
	return all
}

// Rows behind a parked one are walked over once, and not again by each claim and look, until the rows that they wait behind
// change.
func TestClaimsPassOverRowsThatWaitBehindAParkedOne(t *testing.T) {
	t.Parallel()
	const behind = 3000
	pool, l := tenure(t)
	exec := func(sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	insert := func(key string, rows int) {
		exec(fmt.Sprintf("INSERT INTO troupe.outbox (topic, key, type) SELECT 't', '%s', 'T' FROM generate_series(1, %d)", key, rows))
	}
	failure := func(position int, key, status string) {
		exec(fmt.Sprintf(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, next_try, attempts, max_attempts, last_error)
			SELECT position, id, 't', '%s', '%s', CASE '%[2]s' WHEN 'retrying' THEN now() + interval '1 hour' END, 1, 1, 'e'
			FROM troupe.outbox WHERE position = %d`, key, status, position))
	}
	insert("hot", 1)
	insert("late", 1)
	insert("hot", behind)
	failure(1, "hot", "parked")
	failure(2, "late", "retrying")
	p := &poll{session: session{pool: pool}, lease: l, batch: 10, passLimit: time.Hour}
	defer p.close()
	mark := func() {
		t.Helper()
		for range 2 { // it begins and ends
			p.mark.beginNext()
			p.mark.looked = time.Time{}
			require.NoError(t, p.mark.advance(t.Context(), p.conn))
		}
	}
	read := func() int {
		t.Helper()
		s := p.scope()
		return max(
			rowsRead(t, p.conn, claimRows, s.args(l.args(pg.Args{"rows": 10, "retried": 5, "bytes": claimBytes}))),
			rowsRead(t, p.conn, renewLease, s.args(l.args(pg.Args{"length": l.length, "slot": nil}))),
			rowsRead(t, p.conn, lookStatement, pg.Args{
				"holder": l.holder, "length": l.length, "longest": longestLease(l.length), "shard_list": []int{0}, "terms": []int64{l.term},
				"lows": []int64{s.low}, "pasts": []int64{s.past}, "blockings": []string{s.blocking}, "published": []*string{nil},
			}))
	}
	require.Empty(t, claimedNow(t, p))
	require.GreaterOrEqual(t, read(), behind, "without a mark")
	mark()
	require.Less(t, read(), 100)
	insert("other", 1)
	require.Equal(t, []string{"other3003"}, claimedNow(t, p))

	p.lookedFull = time.Time{}
	require.Empty(t, claimedNow(t, p))
	require.Less(t, read(), 100, "a full look leaves the mark")

	exec("UPDATE troupe.outbox_failures SET next_try = now() WHERE status = 'retrying'")
	require.Equal(t, []string{"late2"}, claimedNow(t, p), "it is due, and below the mark")
	exec("DELETE FROM troupe.outbox_failures WHERE position = 2")
	require.GreaterOrEqual(t, read(), behind, "what others wait behind is another")
	mark()
	require.Less(t, read(), 100)

	exec("DELETE FROM troupe.outbox_failures WHERE position = 1")
	items, err := p.claim(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, items[0].row.Position)
	require.Len(t, items, 10, "nothing waits any more")
}

// A position that was set by hand may be below a mark: the full look finds it, and the mark is dropped.
func TestAFullLookFindsWhatIsBelowAMark(t *testing.T) {
	t.Parallel()
	for _, position := range []int{5, 150} { // no row is left there; rows wait there
		t.Run(strconv.Itoa(position), func(t *testing.T) {
			t.Parallel()
			pool, l := tenure(t)
			exec := func(sql string, args ...any) {
				t.Helper()
				_, err := pool.Exec(t.Context(), sql, args...)
				require.NoError(t, err)
			}
			exec("SELECT setval('troupe.outbox_position_seq', 100)")
			exec("INSERT INTO troupe.outbox (topic, key, type) SELECT 't', 'hot', 'T' FROM generate_series(1, 100)")
			exec(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, last_error)
				SELECT position, id, 't', 'hot', 'parked', 1, 1, 'e' FROM troupe.outbox WHERE position = 101`)
			p := &poll{session: session{pool: pool}, lease: l, batch: 10, passLimit: time.Hour}
			defer p.close()
			require.Empty(t, claimedNow(t, p))
			for range 2 {
				p.mark.beginNext()
				p.mark.looked = time.Time{}
				require.NoError(t, p.mark.advance(t.Context(), p.conn))
			}
			require.EqualValues(t, 100, p.mark.low)
			require.EqualValues(t, 200, p.mark.past)
			exec("DELETE FROM troupe.outbox WHERE position = $1", position)
			exec("INSERT INTO troupe.outbox (position, topic, key, type) OVERRIDING SYSTEM VALUE VALUES ($1, 't', 'k', 'T'), ($1 + 1000, 't', 'k', 'T')", position)
			p.lookedFull = time.Time{}
			items, err := p.claim(t.Context(), 0)
			require.NoError(t, err)
			require.EqualValues(t, position, items[0].row.Position)
			require.Less(t, max(p.mark.low, p.mark.past), int64(position)+100)
			require.NotEmpty(t, claimedNow(t, p), "though it was not settled")
		})
	}
}

// The shards of a process whose outbox is idle have one look for all of them, above their marks.
func TestAFullLookOfIdleShardsFindsWhatIsBelowAMark(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	r, err := New(Config{Pool: pool, Brokers: []string{"127.0.0.1:1"}, Service: "shop", Source: Poll, Shards: 2, Holder: l.holder})
	require.NoError(t, err)
	r.pool, r.looker.session.pool = pool, pool
	defer r.looker.session.close()
	r.looker.addLease(&holding{lease: l})
	p := &poll{session: session{pool: pool}, lease: l, batch: 10, passLimit: time.Hour, looker: r.looker}
	defer p.close()
	require.Empty(t, claimedNow(t, p))
	p.mark.low = 100
	_, err = pool.Exec(t.Context(), "INSERT INTO troupe.outbox (position, topic, key, type) OVERRIDING SYSTEM VALUE VALUES (5, 't', 'k', 'T')")
	require.NoError(t, err)
	rests := func() (rested chan struct{}, stop context.CancelFunc) {
		rested = make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			defer close(rested)
			p.awaitRows(ctx, time.Second)
		}()
		<-r.looker.restBegan
		return rested, stop
	}
	rested, stop := rests()
	for range 2 {
		found, err := r.looker.renewAndLook(t.Context())
		require.NoError(t, err)
		require.False(t, found)
	}
	stop()
	<-rested
	require.Empty(t, claimedNow(t, p), "it is below the mark")

	p.lookedFull = time.Now().Add(-fullLookEvery)
	rested, stop = rests()
	defer stop()
	<-rested
	require.Equal(t, []string{"k5"}, claimedNow(t, p))
}

// A claim that begins at the first row may read the table for longer than the lease lasts, which is renewed meanwhile.
func TestAFullLookLocksNoLease(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type) VALUES ('t', 'k', 'T')")
	require.NoError(t, err)
	l.length = time.Minute
	l.renewed(time.Now().Add(-l.length / 2))
	p := &poll{session: session{pool: pool}, lease: l, batch: 10, passLimit: time.Hour}
	defer p.close()
	renewal, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = renewal.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = renewal.Exec(t.Context(), "SELECT FROM troupe.relay_leases FOR UPDATE")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	items, err := p.claim(ctx, time.Second)
	require.NoError(t, err)
	require.Len(t, items, 1)
}
