package sqlconn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/sqlconn"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// begin returns an open transaction in a database with the table t.
func begin(t *testing.T) pgx.Tx {
	t.Helper()
	conn, err := testkit.Database(t).Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(conn.Release)
	_, err = conn.Exec(t.Context(), "CREATE TABLE t (id int PRIMARY KEY, name text)")
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func count(t *testing.T, tx pgx.Tx) (n int) {
	t.Helper()
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&n))
	return n
}

func TestStatementsRunInTheSameTransaction(t *testing.T) {
	t.Parallel()
	tx := begin(t)
	ctx := t.Context()
	require.NoError(t, sqlconn.With(ctx, tx, func(sqlTx *sql.Tx) error {
		under, ok := sqlconn.Pgx(sqlTx)
		require.True(t, ok)
		require.Same(t, tx, under)
		done, err := sqlTx.ExecContext(ctx, "INSERT INTO t VALUES ($1, $2), (2, NULL)", 1, "a")
		require.NoError(t, err)
		n, err := done.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 2, n)

		insert, err := sqlTx.PrepareContext(ctx, "INSERT INTO t VALUES ($1, $2) RETURNING id")
		require.NoError(t, err)
		defer insert.Close()
		for i := 3; i < 6; i++ {
			var id int
			require.NoError(t, insert.QueryRowContext(ctx, i, "b").Scan(&id))
			require.Equal(t, i, id)
		}
		var name sql.NullString
		require.NoError(t, sqlTx.QueryRow("SELECT name FROM t WHERE id = $1", 2).Scan(&name))
		require.False(t, name.Valid)
		require.ErrorIs(t, sqlTx.QueryRow("SELECT name FROM t WHERE id = 99").Scan(&name), sql.ErrNoRows)
		var many string
		require.NoError(t, sqlTx.QueryRow("SELECT $1::text[]", []string{"a", "b"}).Scan(&many))
		require.Equal(t, "{a,b}", many, "an argument of a type that database/sql does not know")
		return nil
	}))
	require.Equal(t, 5, count(t, tx))
	require.NoError(t, tx.Rollback(ctx))
}

// TestColumnsAreThoseOfStdlib reads one value of each kind with both, in each of the pool's ways to run a statement.
func TestColumnsAreThoseOfStdlib(t *testing.T) {
	t.Parallel()
	const query = `SELECT true AS "bool", 7::int2, 7::int4, 7::int8, 7::oid, '7'::xid, 0.1::float4, 0.1::float8, 1.10::numeric(6,2),
		'a'::text, 'b'::varchar(9), 'c'::char(3), '\x00ff'::bytea, '{"a": [1]}'::json, '{"a": [1]}'::jsonb,
		'2026-02-03'::date, 'infinity'::date, '2026-02-03 04:05:06.789'::timestamp, '2026-02-03 04:05:06.789+02'::timestamptz,
		'-infinity'::timestamptz, '04:05:06'::time, '1 day 2 hours'::interval, '01a201a3-2d0d-779a-917b-1d2d144eddbe'::uuid,
		'10.0.0.0/8'::cidr, '{a,b}'::text[], '{1,2}'::int[], '[1,5)'::int4range, '101'::bit varying(5), '(1,2)'::point,
		NULL::int, NULL::bytea, NULL::timestamptz, 'public'::regnamespace, '12'::money, 'x'::"char"`
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		config, err := pgx.ParseConfig(testkit.EmptyDatabase(t))
		require.NoError(t, err)
		config.DefaultQueryExecMode = mode
		db := stdlib.OpenDB(*config)
		want, err := db.Query(query)
		require.NoError(t, err)
		columns, values := read(t, want)
		require.NoError(t, db.Close())

		conn, err := pgx.ConnectConfig(t.Context(), config)
		require.NoError(t, err)
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, sqlconn.With(t.Context(), tx, func(tx *sql.Tx) error {
			got, err := tx.Query(query)
			require.NoError(t, err)
			gotColumns, gotValues := read(t, got)
			require.Equal(t, values, gotValues, "%s", mode)
			require.Equal(t, columns, gotColumns, "%s", mode)
			return nil
		}))
		require.NoError(t, conn.Close(t.Context()))
	}
}

// read returns what the columns say of themselves, and the values of the only row.
func read(t *testing.T, rows *sql.Rows) (columns []string, values []any) {
	t.Helper()
	types, err := rows.ColumnTypes()
	require.NoError(t, err)
	for _, c := range types {
		length, hasLength := c.Length()
		precision, scale, isDecimal := c.DecimalSize()
		columns = append(columns, fmt.Sprint(c.Name(), c.DatabaseTypeName(), c.ScanType(), length, hasLength, precision, scale, isDecimal))
	}
	values = make([]any, len(types))
	into := make([]any, len(types))
	for i := range values {
		into[i] = &values[i]
	}
	require.True(t, rows.Next(), "%v", rows.Err())
	require.NoError(t, rows.Scan(into...))
	require.False(t, rows.Next())
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	return columns, values
}

func TestCommitAndRollbackAreRefusedAndFailTheRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(*sql.Tx) error
		want string
	}{
		"commit":   {(*sql.Tx).Commit, "remove the call of Commit"},
		"rollback": {(*sql.Tx).Rollback, "remove the call of Rollback"},
	} {
		for _, returned := range []error{nil, errors.New("its own")} {
			tx := begin(t)
			var said, later error
			err := sqlconn.With(t.Context(), tx, func(sqlTx *sql.Tx) error {
				_, err := sqlTx.Exec("INSERT INTO t VALUES (1)")
				require.NoError(t, err)
				said = c.end(sqlTx)
				_, later = sqlTx.Exec("INSERT INTO t VALUES (2)")
				return returned
			})
			require.ErrorContains(t, said, c.want, name)
			require.ErrorIs(t, later, sql.ErrTxDone, name)
			require.ErrorIs(t, err, said, name)
			require.True(t, retry.IsPermanent(err), name)
			if returned != nil {
				require.ErrorIs(t, err, returned)
			}
			require.Equal(t, 1, count(t, tx), "%s: the transaction is open, and its owner decides", name)
		}
	}
}

func TestTheTransactionEndsWithItsFunction(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*sql.Tx) error{
		"returns": func(*sql.Tx) error { return nil },
		"fails":   func(*sql.Tx) error { return errors.New("no") },
		"panics":  func(*sql.Tx) error { panic("no") },
		"exits":   func(*sql.Tx) error { runtime.Goexit(); return nil },
	}
	for name, end := range ends {
		tx := begin(t)
		var kept *sql.Tx
		var statement *sql.Stmt
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { _ = recover() }()
			_ = sqlconn.With(t.Context(), tx, func(tx *sql.Tx) error {
				kept = tx
				statement, _ = tx.Prepare("SELECT 1")
				return end(tx)
			})
		}()
		<-ended
		_, exec := kept.Exec("INSERT INTO t VALUES (1)")
		_, query := kept.Query("SELECT 1")
		_, prepare := kept.Prepare("SELECT 1")
		for i, err := range []error{exec, query, prepare, kept.Commit(), kept.Rollback()} {
			require.ErrorIs(t, err, sql.ErrTxDone, "%s: use %d", name, i)
		}
		_, err := statement.Exec()
		require.Error(t, err, name)
		_, ok := sqlconn.Pgx(kept)
		require.False(t, ok, name)
		require.Equal(t, 0, count(t, tx), "%s: the pgx.Tx is usable", name)
	}
}

func TestRowsLeftOpenFailTheRun(t *testing.T) {
	t.Parallel()
	const many = "SELECT n FROM generate_series(1, 1000000) AS n"
	for name, leave := range map[string]func(*testing.T, *sql.Tx){
		"unread": func(t *testing.T, tx *sql.Tx) {
			_, err := tx.Query(many)
			require.NoError(t, err)
		},
		"half read": func(t *testing.T, tx *sql.Tx) {
			rows, err := tx.Query(many)
			require.NoError(t, err)
			require.True(t, rows.Next())
			require.True(t, rows.Next())
		},
	} {
		tx := begin(t)
		err := sqlconn.With(t.Context(), tx, func(tx *sql.Tx) error {
			leave(t, tx)
			return nil
		})
		require.ErrorContains(t, err, "rows were left open", name)
		require.Error(t, tx.Rollback(t.Context()), "closes the connection: its server process would wait for a reader")
		own := errors.New("its own")
		tx = begin(t)
		require.Equal(t, own, sqlconn.With(t.Context(), tx, func(tx *sql.Tx) error {
			leave(t, tx)
			return own
		}), name)
		require.Error(t, tx.Rollback(t.Context()))
	}
	tx := begin(t)
	require.NoError(t, sqlconn.With(t.Context(), tx, func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT 1 WHERE false") // nothing is left to read
		require.NoError(t, err)
		_ = rows
		read, err := tx.Query("SELECT 1")
		require.NoError(t, err)
		for read.Next() {
		}
		closed, err := tx.Query(many)
		require.NoError(t, err)
		return closed.Close()
	}))
	require.Equal(t, 0, count(t, tx))
}

// A goroutine that still waits for Postgres does not keep With from returning. The owner closes the connection, as a participant
// does.
func TestAGoroutineThatStillUsesItFailsTheRun(t *testing.T) {
	t.Parallel()
	tx := begin(t)
	watcher, err := pgx.ConnectConfig(t.Context(), tx.Conn().Config())
	require.NoError(t, err)
	defer watcher.Close(context.Background())
	pid := tx.Conn().PgConn().PID()
	left := make(chan error, 1)
	err = sqlconn.With(t.Context(), tx, func(sqlTx *sql.Tx) error {
		go func() {
			_, err := sqlTx.Exec("SELECT pg_sleep(600)")
			left <- err
		}()
		testkit.Wait(t, "the statement of the goroutine", func() (bool, error) { return sleeps(t, watcher, pid), nil })
		return nil
	})
	require.ErrorContains(t, err, "a goroutine still uses")
	require.NoError(t, tx.Conn().PgConn().Conn().Close())
	require.Error(t, <-left)
}

// sleeps reports whether the server runs the statement of a connection.
func sleeps(t *testing.T, watcher *pgx.Conn, pid uint32) (is bool) {
	t.Helper()
	require.NoError(t, watcher.QueryRow(t.Context(),
		"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND state = 'active' AND query LIKE '%pg_sleep%')", pid).Scan(&is))
	return is
}

func TestAContextThatEndsIsTheError(t *testing.T) {
	t.Parallel()
	tx := begin(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := sqlconn.With(ctx, tx, func(tx *sql.Tx) error {
		cancel()
		for {
			// database/sql ends the transaction in a goroutine of its own.
			if _, err := tx.ExecContext(context.Background(), "SELECT 1"); err != nil {
				return err
			}
		}
	})
	require.ErrorIs(t, err, context.Canceled, "%v", err)
	require.False(t, retry.IsPermanent(err))
	require.ErrorIs(t, sqlconn.With(ctx, tx, func(*sql.Tx) error { panic("called") }), context.Canceled)

	tx = begin(t)
	ctx, cancel = context.WithCancel(t.Context())
	require.ErrorIs(t, sqlconn.With(ctx, tx, func(tx *sql.Tx) error {
		cancel()
		_, _ = tx.Exec("INSERT INTO t VALUES (1)") // may be refused already
		return nil
	}), context.Canceled, "the function drops the error")

	tx = begin(t)
	require.ErrorIs(t, sqlconn.With(t.Context(), tx, func(tx *sql.Tx) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := tx.ExecContext(ctx, "SELECT pg_sleep(600)")
		return err
	}), context.Canceled)
}

func TestErrorsOfPostgresAreThoseOfPgx(t *testing.T) {
	t.Parallel()
	tx := begin(t)
	require.NoError(t, sqlconn.With(t.Context(), tx, func(tx *sql.Tx) error {
		for _, statement := range []string{
			"SAVEPOINT here", "INSERT INTO t VALUES (1)",
		} {
			_, err := tx.Exec(statement)
			require.NoError(t, err)
		}
		_, err := tx.Exec("INSERT INTO t VALUES ($1)", 1)
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr)
		require.Equal(t, "23505", pgErr.Code)
		_, err = tx.Exec("ROLLBACK TO SAVEPOINT here")
		require.NoError(t, err)
		var n int
		err = tx.QueryRow("SELECT 1/$1::int", 0).Scan(&n)
		require.ErrorAs(t, err, &pgErr)
		require.Equal(t, "22012", pgErr.Code)
		_, err = tx.Exec("ROLLBACK TO SAVEPOINT here")
		require.NoError(t, err)
		rows, err := tx.Query("SELECT 1/(3 - n) FROM generate_series(1, $1::int) AS n", 5) // fails at its third row
		require.NoError(t, err)
		for rows.Next() {
		}
		require.ErrorAs(t, rows.Err(), &pgErr)
		_, err = tx.Exec("ROLLBACK TO SAVEPOINT here")
		require.NoError(t, err)
		_, err = tx.Exec("INSERT INTO t VALUES ($1)", sql.Named("id", 1))
		require.ErrorContains(t, err, "has a name")
		return nil
	}))
	require.Equal(t, 0, count(t, tx))
}
