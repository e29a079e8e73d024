package testkit

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// TestEveryStepOfATransactionIsCounted checks that all ways in which pgx sends a transaction have the same steps. Several
// statements in one write only change their order.
func TestEveryStepOfATransactionIsCounted(t *testing.T) {
	t.Parallel()
	apart := []string{
		"before begin", "after begin", "before INSERT INTO t DEFAULT VALUES", "after INSERT INTO t DEFAULT VALUES",
		"before commit", "after commit",
	}
	for name, c := range map[string]struct {
		run   func(ctx context.Context, pool *pgxpool.Pool) error
		steps []string
	}{
		"cached statements":   {inMode(pgx.QueryExecModeCacheStatement), apart},
		"unnamed statements":  {inMode(pgx.QueryExecModeExec), apart},
		"described each time": {inMode(pgx.QueryExecModeDescribeExec), apart},
		"the simple protocol": {inMode(pgx.QueryExecModeSimpleProtocol), apart},
		"one write for begin and insert, another for the commit": {inPipeline, []string{
			"before begin", "before INSERT INTO t DEFAULT VALUES", "after begin", "after INSERT INTO t DEFAULT VALUES",
			"before commit", "after commit",
		}},
		"one write for all": {inBatch, []string{
			"before begin", "before INSERT INTO t DEFAULT VALUES", "before commit",
			"after begin", "after INSERT INTO t DEFAULT VALUES", "after commit",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, pool, watched := newWire(t)
			require.NoError(t, c.run(t.Context(), watched), "also so that statements are prepared")
			var steps []string
			for n := 1; ; n++ {
				_, err := pool.Exec(t.Context(), "TRUNCATE t")
				require.NoError(t, err)
				w.arm(n, "")
				err = c.run(t.Context(), watched)
				cut := w.disarm()
				if cut == "" {
					require.NoError(t, err)
					require.Equal(t, 1, count(t, pool))
					break
				}
				require.Error(t, err, cut)
				steps = append(steps, cut)
				switch cut {
				case "before commit":
					require.Zero(t, count(t, pool), "the commit did not arrive")
				case "after commit":
					require.Equal(t, 1, count(t, pool), "it did, and only its answer was lost")
				}
			}
			require.Equal(t, c.steps, steps)
		})
	}
}

func inMode(mode pgx.QueryExecMode) func(context.Context, *pgxpool.Pool) error {
	return func(ctx context.Context, pool *pgxpool.Pool) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO t DEFAULT VALUES", mode)
			return err
		})
	}
}

func inPipeline(ctx context.Context, pool *pgxpool.Pool) error {
	return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		p := conn.Conn().PgConn().StartPipeline(ctx)
		p.SendQueryParams("begin", nil, nil, nil, nil)
		p.SendQueryParams("INSERT INTO t DEFAULT VALUES", nil, nil, nil, nil)
		if err := p.Sync(); err != nil {
			return err
		}
		if err := p.Close(); err != nil {
			return err
		}
		return conn.Conn().PgConn().Exec(ctx, "commit").Close()
	})
}

func inBatch(ctx context.Context, pool *pgxpool.Pool) error {
	b := &pgx.Batch{}
	b.Queue("begin")
	b.Queue("INSERT INTO t DEFAULT VALUES")
	b.Queue("commit")
	return pool.SendBatch(ctx, b).Close()
}

func TestAStatementOutsideATransactionIsNoStep(t *testing.T) {
	t.Parallel()
	w, pool, watched := newWire(t)
	require.NoError(t, inBatch(t.Context(), watched))
	w.arm(1, "")
	_, err := watched.Exec(t.Context(), "INSERT INTO t DEFAULT VALUES")
	require.NoError(t, err)
	require.Empty(t, w.disarm())
	require.Equal(t, 2, count(t, pool))
}

func TestOnlyTheTransactionThatNamesTheMessageCounts(t *testing.T) {
	t.Parallel()
	w, _, watched := newWire(t)
	id := uuid.New()
	for name, c := range map[string]struct {
		sql  string
		args []any
	}{
		"as text":       {"SELECT $1::text", []any{id.String()}},
		"as a uuid":     {"SELECT $1::uuid", []any{id.String()}},
		"among uuids":   {"SELECT $1::uuid[]", []any{[]string{uuid.NewString(), id.String()}}},
		"in the SQL":    {"SELECT '" + id.String() + "'", nil},
		"with a prefix": {"SELECT $1", []any{"id " + id.String()}},
	} {
		run := func(sql string, args ...any) {
			_ = pgx.BeginFunc(t.Context(), watched, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), sql, args...)
				return err
			})
		}
		run(c.sql, c.args...)
		for n, want := range []string{"before SELECT", "after SELECT", "before commit", "after commit", ""} {
			w.arm(n+1, id.String())
			run("SELECT 'another'")
			run(c.sql, c.args...)
			run("SELECT 'another'")
			cut := w.disarm()
			if want == "" {
				require.Empty(t, cut, name)
			}
			require.True(t, strings.HasPrefix(cut, want), "%s: %s, want %s", name, cut, want)
		}
	}
}

func TestNotificationsAreNoSteps(t *testing.T) {
	t.Parallel()
	w, _, watched := newWire(t)
	var steps []string
	for n := 1; ; n++ {
		w.arm(n, "")
		_ = pgx.BeginFunc(t.Context(), watched, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue("-- why\nSELECT 1")
			b.Queue("SELECT pg_notify('x', '')")
			return tx.SendBatch(t.Context(), b).Close()
		})
		cut := w.disarm()
		if cut == "" {
			break
		}
		steps = append(steps, cut)
	}
	require.Equal(t, []string{
		"before begin", "after begin", "before SELECT 1", "after SELECT 1", "before commit", "after commit",
	}, steps)
}

// TestStepsAreRightAfterAnError checks a server that skips everything up to the next Sync after an error, and answers the
// messages behind it.
func TestStepsAreRightAfterAnError(t *testing.T) {
	t.Parallel()
	w, _, watched := newWire(t)
	run := func() {
		ctx := t.Context()
		tx, err := watched.Begin(ctx)
		if err != nil {
			return
		}
		b := &pgx.Batch{}
		b.Queue("SELECT 1/0")
		b.Queue("SELECT 2")
		_ = tx.SendBatch(ctx, b).Close()
		_ = tx.Rollback(ctx)
	}
	run()
	var steps []string
	for n := 1; ; n++ {
		w.arm(n, "")
		run()
		cut := w.disarm()
		if cut == "" {
			break
		}
		steps = append(steps, cut)
	}
	require.Equal(t, []string{
		"before begin", "after begin", "before SELECT 1/0", "before SELECT 2", "before rollback", "after rollback",
	}, steps)
}

// newWire returns a pool on a database with a table t, and one whose connections are watched, one at a time.
func newWire(t *testing.T) (w *wire, pool, watched *pgxpool.Pool) {
	t.Helper()
	w, pool = &wire{}, Database(t)
	_, err := pool.Exec(t.Context(), "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY)")
	require.NoError(t, err)
	config := pool.Config()
	config.ConnConfig.BuildFrontend = w.frontend
	config.MaxConns = 1
	watched, err = pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(watched.Close)
	return w, pool, watched
}

func count(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&n))
	return n
}
