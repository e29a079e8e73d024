package sagadesk_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// large fills a database with n sagas with a variable of almost a megabyte each, as a message may have it. The log of the first has
// entries that say the same.
func large(t *testing.T, n, entries int) (*pgxpool.Pool, *sagadesk.Desk) {
	t.Helper()
	pool := testkit.Database(t)
	d := order(t)
	started := saga.Event{Kind: saga.Started, Fields: map[string]any{
		"order_id": "o", "customer_id": strings.Repeat("c", largeSize), "amount_cents": 500, "title": 7, "quantity": 1,
	}}
	run := func(sql string, args ...any) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	run("INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ($1, 'order', 1, $2)", d.Hash(), string(d.JSON()))
	for i := range n {
		started.Fields["order_id"] = fmt.Sprintf("o-%02d", i)
		s, _ := saga.Decide(d, saga.State{}, started, noon)
		state, err := json.Marshal(s)
		require.NoError(t, err)
		event, err := json.Marshal(started)
		require.NoError(t, err)
		run(`INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, state, started_at, updated_at)
			VALUES ($1, 'order', $2, 'order.order', 'order.order', $3, 1, 'parked', '', $4, $5, $5)`, s.ID(), s.Key, d.Hash(), string(state), noon)
		run("INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments) VALUES ($1, 1, $2, 'started', $3, '[]')", s.ID(), noon, string(event))
		if i == 0 {
			run(`INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments)
				SELECT saga_id, n, at, kind, event, moments FROM troupe.saga_events, generate_series(2, $2) AS n WHERE saga_id = $1`, s.ID(), entries)
		}
	}
	desk, err := sagadesk.New(sagadesk.Config{Pool: pool})
	require.NoError(t, err)
	return pool, desk
}

const largeSize = 900_000

// TestLongLocksAreListedInPart: an index can hold the long key of a saga if it is compressible.
func TestLongLocksAreListedInPart(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	const size, sagas = 200_000, 20
	_, err := pool.Exec(t.Context(), `INSERT INTO troupe.saga_locks (name, saga_id)
		SELECT 'order/a', 'order/' || n || repeat('x', $1) FROM generate_series(1, $2) AS n`, size, sagas)
	require.NoError(t, err)
	desk, err := sagadesk.New(sagadesk.Config{Pool: pool})
	require.NoError(t, err)
	locks, more, err := desk.Locks(t.Context(), "", 1000)
	require.NoError(t, err)
	require.True(t, more)
	require.True(t, locks[0].Has)
	require.LessOrEqual(t, len(locks)*size, admin.PageBytes+size)
	locks, more, err = desk.Locks(t.Context(), "", 3)
	require.NoError(t, err)
	require.Len(t, locks, 3)
	require.True(t, more)
}

// Each entry has the fields of a message.
func TestALogOfLargeEntriesIsReadInPart(t *testing.T) {
	t.Parallel()
	const entries = 20
	_, desk := large(t, 1, entries)
	last, err := desk.LogEnd(t.Context(), "order/o-00", 1000)
	require.NoError(t, err)
	require.Equal(t, entries, last[len(last)-1].Version)
	require.Equal(t, entries-len(last)+1, last[0].Version)
	require.LessOrEqual(t, len(last)*largeSize, admin.PageBytes+largeSize)
	first, err := desk.Log(t.Context(), "order/o-00", 0, 1000)
	require.NoError(t, err)
	require.Equal(t, 1, first[0].Version)
	require.LessOrEqual(t, len(first)*largeSize, admin.PageBytes+largeSize)
	rest, err := desk.Log(t.Context(), "order/o-00", entries-1, 1000)
	require.NoError(t, err)
	require.Len(t, rest, 1)
	few, err := desk.LogEnd(t.Context(), "order/o-00", 2)
	require.NoError(t, err)
	require.Equal(t, []int{entries - 1, entries}, []int{few[0].Version, few[1].Version})
}

// A page of large states has fewer sagas, and no saga is left out or taken twice.
func TestSagasWithLargeStatesAreAllTaken(t *testing.T) {
	t.Parallel()
	const n = 7
	_, desk := large(t, n, 1)
	seen := make(map[string]int)
	require.NoError(t, desk.PlanRetry(t.Context(), "order", func(r sagadesk.RetriedSaga) error {
		seen[r.ID]++
		return nil
	}))
	require.NoError(t, desk.ReplayAll(t.Context(), "", func(r sagadesk.Replayed) error {
		require.Empty(t, r.Difference)
		seen[r.ID]++
		return nil
	}))
	require.Len(t, seen, n)
	for id, times := range seen {
		require.Equal(t, 2, times, id)
	}
}

// TestAValueThatWouldFillTheMemoryIsNotRead: the role of a coordinator can write a state and an entry of 250 MB, which have 3 MB on disk.
// Each reader of one saga, such as the console, reports the size.
func TestAValueThatWouldFillTheMemoryIsNotRead(t *testing.T) {
	t.Parallel()
	pool, desk := large(t, 2, 3)
	role := grantstest.New(t, pool, grants.Sagas).Pool()
	for _, sql := range []string{
		"UPDATE troupe.sagas SET state = state || jsonb_build_object('x', repeat('x', 40000000)) WHERE id = 'order/o-00'",
		"INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments) VALUES ('order/o-00', 4, now(), 'answered', jsonb_build_object('x', repeat('x', 40000000)), '[]')",
		"INSERT INTO troupe.saga_events (saga_id, version, at, kind, event, moments) VALUES ('order/o-01', 2, now(), 'answered', '{}', jsonb_build_array(repeat('x', 40000000)))",
	} {
		_, err := role.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	_, err := desk.Get(t.Context(), "order/o-00")
	require.ErrorContains(t, err, "saga order/o-00: the state: it has more than 32 MiB, and is not read")
	_, err = desk.Log(t.Context(), "order/o-00", 3, 10)
	require.ErrorContains(t, err, "version 4: it has more than 32 MiB, and is not read")
	_, err = desk.LogEnd(t.Context(), "order/o-01", 1)
	require.ErrorContains(t, err, "version 2: it has more than 32 MiB, and is not read")
	others, err := desk.Log(t.Context(), "order/o-00", 0, 3)
	require.NoError(t, err)
	require.NotEmpty(t, others)
	replayed, err := desk.Replay(t.Context(), "order/o-00")
	require.NoError(t, err)
	require.Equal(t, "the state: it has more than 32 MiB, and is not read", replayed.Difference)
	_, err = pool.Exec(t.Context(), "UPDATE troupe.sagas SET state = '{}' WHERE id = 'order/o-00'; DELETE FROM troupe.saga_events WHERE saga_id = 'order/o-00' AND version IN (1, 2, 3)")
	require.NoError(t, err)
	replayed, err = desk.Replay(t.Context(), "order/o-00")
	require.NoError(t, err)
	require.Equal(t, "entry 4: it has more than 32 MiB, and is not read", replayed.Difference)
}
