package relay

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

const insertOne = "INSERT INTO troupe.outbox (topic, key, type) VALUES ('t', 'k', 'T')"

func TestTheLowMarkWaitsForWhoeverMayStillCommit(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	advance := func(m *mark) {
		m.removed, m.looked = markAfter, time.Time{}
		require.NoError(t, m.advance(t.Context(), conn.Conn()))
	}
	m := mark{lease: &lease{}}
	advance(&m)
	require.Zero(t, m.low, "a sequence that was never used")

	late, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = late.Exec(t.Context(), insertOne) // position 1
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), insertOne) // position 2
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "DELETE FROM troupe.outbox")
	require.NoError(t, err)
	for range 5 {
		advance(&m)
		require.Zero(t, m.low, "position 1 is still to come")
	}
	require.NoError(t, late.Commit(t.Context()))
	advance(&m)
	require.Zero(t, m.low, "position 1 has come and is not published")
	_, err = pool.Exec(t.Context(), "DELETE FROM troupe.outbox")
	require.NoError(t, err)
	advance(&m) // begins
	advance(&m) // ends
	require.EqualValues(t, 2, m.low)
}

// Under writers that commit in any order: no row ever appears at or below a mark.
func TestNoRowAppearsBelowTheLowMark(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for ctx.Err() == nil {
				writeAndLinger(t, pool)
			}
		})
	}
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	m := mark{lease: &lease{}}
	marks, rows := 0, 0
	for began := time.Now(); time.Since(began) < 2*time.Second || marks <= 10 && time.Since(began) < time.Minute; {
		before := m.low
		m.removed, m.looked = markAfter, time.Time{}
		require.NoError(t, m.advance(t.Context(), conn.Conn()))
		if m.low > before {
			marks++
		}
		gone, err := conn.Query(t.Context(), "DELETE FROM troupe.outbox RETURNING position")
		require.NoError(t, err)
		positions, err := pgx.CollectRows(gone, pgx.RowTo[int64])
		require.NoError(t, err)
		for _, p := range positions {
			require.Greater(t, p, m.low)
		}
		rows += len(positions)
	}
	cancel()
	writers.Wait()
	require.Greater(t, marks, 10)
	t.Logf("%d rows, %d marks", rows, marks)
}

func writeAndLinger(t *testing.T, pool *pgxpool.Pool) {
	err := pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(context.Background(), insertOne); err != nil {
			return err
		}
		_, err := tx.Exec(context.Background(), "SELECT pg_sleep($1)", rand.Float64()/50)
		return err
	})
	if err != nil {
		t.Errorf("write: %v", err)
	}
}
