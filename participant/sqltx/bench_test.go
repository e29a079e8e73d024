package sqltx_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant/sqltx"
	"github.com/troupe-go/troupe/testkit"
)

// BenchmarkHandler measures the statements of a handler in an open transaction: it reads a row and updates it, with pgx and with a
// *sql.Tx over the same connection.
func BenchmarkHandler(b *testing.B) {
	const read, write = "SELECT cents FROM payments WHERE order_id = $1", "UPDATE payments SET cents = $2 WHERE order_id = $1"
	for name, handle := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"pgx": func(ctx context.Context, tx pgx.Tx) error {
			var cents int64
			if err := tx.QueryRow(ctx, read, "o-1").Scan(&cents); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, write, "o-1", cents+1)
			return err
		},
		"sql": func(ctx context.Context, tx pgx.Tx) error {
			return sqltx.With(ctx, tx, func(tx *sql.Tx) error {
				var cents int64
				if err := tx.QueryRowContext(ctx, read, "o-1").Scan(&cents); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, write, "o-1", cents+1)
				return err
			})
		},
		"sql, no statement": func(ctx context.Context, tx pgx.Tx) error {
			return sqltx.With(ctx, tx, func(*sql.Tx) error { return nil })
		},
	} {
		b.Run(name, func(b *testing.B) {
			conn, err := testkit.Database(b).Acquire(b.Context())
			require.NoError(b, err)
			defer conn.Release()
			_, err = conn.Exec(b.Context(), tables+"; INSERT INTO payments VALUES ('o-1', 1)")
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				tx, err := conn.Begin(b.Context())
				require.NoError(b, err)
				require.NoError(b, handle(b.Context(), tx))
				require.NoError(b, tx.Rollback(b.Context()))
			}
		})
	}
}
