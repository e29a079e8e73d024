package participant_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// trips counts marked statements: sent alone, and sent in a batch.
type trips struct{ alone, along atomic.Int32 }

const marked = "/* of the test */"

func (t *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, marked) {
		t.alone.Add(1)
	}
	return ctx
}

func (t *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (t *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (t *trips) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	if strings.Contains(d.SQL, marked) {
		t.along.Add(1)
	}
}

func (t *trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TestAQueryGoesAlongWithWhatIsQueued checks that the query sees it, and leaves the transaction usable, however it ends.
func TestAQueryGoesAlongWithWhatIsQueued(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var seen trips
	cfg := s.pool.Config()
	cfg.ConnConfig.Tracer = &seen
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Pool = 10, pool })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		key := string(c.Message.Key)
		if err := participant.Queue(ctx, tx, "INSERT INTO done (key, n, attempt) VALUES ($1, 1, 0)", key); err != nil {
			return participant.Outcome{}, err
		}
		if c.Body.Fail == "queued" {
			if err := participant.Queue(ctx, tx, "INSERT INTO counters (key) VALUES (NULL)"); err != nil {
				return participant.Outcome{}, err
			}
		}
		n, err := queried(ctx, tx, key, c.Body.Fail)
		if err != nil {
			return participant.Outcome{}, err
		}
		_, err = tx.Exec(ctx, "UPDATE done SET n = $2 WHERE key = $1", key, n)
		return participant.Succeed(Counted{Total: n}), err
	})
	s.provision(1)
	for i, how := range []string{"row", "rows", "first row", "no row", "wrong type", "mode"} {
		s.send(s.command(fmt.Sprint("k-", i), Count{Fail: how}))
	}
	s.send(s.command("bad", Count{Fail: "queued"}))
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'permanent' AND error LIKE '%null value%'")
	s.waitCount(6, "SELECT count(*) FROM done WHERE n = 7")
	require.Zero(t, seen.alone.Load())
	require.Positive(t, seen.along.Load())
}

// queried reads the row of the statement before it, in one of several ways, and returns 7 if it is there.
func queried(ctx context.Context, tx pgx.Tx, key, how string) (n int, err error) {
	const sql = "SELECT 6 + n FROM done WHERE key = $1 " + marked
	switch how {
	case "rows", "first row":
		rows, err := tx.Query(ctx, "SELECT 6 + n FROM done, generate_series(1, 3) WHERE key = $1 "+marked, key)
		if err != nil {
			return 0, err
		}
		if how == "rows" {
			all, err := pgx.CollectRows(rows, pgx.RowTo[int])
			if err != nil || len(all) != 3 {
				return 0, fmt.Errorf("%v: %w", all, err)
			}
			return all[0], nil
		}
		defer rows.Close()
		if !rows.Next() {
			return 0, rows.Err()
		}
		err = rows.Scan(&n)
		return n, err
	case "no row":
		if err := tx.QueryRow(ctx, sql, "nobody").Scan(&n); !errors.Is(err, pgx.ErrNoRows) {
			return 0, fmt.Errorf("want no rows: %w", err)
		}
		return 7, nil
	case "wrong type":
		var at *struct{}
		var refused *pgconn.PgError
		if err := tx.QueryRow(ctx, sql, key).Scan(&at); err == nil || errors.As(err, &refused) {
			return 0, fmt.Errorf("want an error of Scan's: %w", err)
		}
		return 7, nil
	case "mode":
		err := tx.QueryRow(ctx, strings.TrimSuffix(sql, marked), pgx.QueryExecModeExec, key).Scan(&n)
		return n, err
	}
	err = tx.QueryRow(ctx, sql, key).Scan(&n)
	return n, err
}
