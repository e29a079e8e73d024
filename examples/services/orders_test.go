package services_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	_ "github.com/lib/pq"              // the driver postgres
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/examples/services"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/testkit"
)

// senders holds the ways to write a row and a command in one transaction of the service's own *sql.DB. An error
// of write rolls it back.
var senders = map[string]func(ctx context.Context, db *sql.DB, write func(outbox.SQLTx) error) error{
	"database/sql": func(ctx context.Context, db *sql.DB, write func(outbox.SQLTx) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := write(tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	},
	"GORM": func(ctx context.Context, db *sql.DB, write func(outbox.SQLTx) error) error {
		service, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{})
		if err != nil {
			return err
		}
		return service.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return write(tx.Statement.ConnPool) })
	},
	"bun": func(ctx context.Context, db *sql.DB, write func(outbox.SQLTx) error) error {
		return bun.NewDB(db, pgdialect.New()).RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return write(tx.Tx) })
	},
}

// TestACommandIsWrittenInTheSendersOwnTransaction does so with each driver.
func TestACommandIsWrittenInTheSendersOwnTransaction(t *testing.T) {
	t.Parallel()
	undo := errors.New("undo")
	for _, driver := range []string{"pgx", "postgres", "postgres, binary"} {
		for name, send := range senders {
			t.Run(driver+", "+name, func(t *testing.T) {
				t.Parallel()
				pool := testkit.Database(t)
				url, driver := testkit.DatabaseURL(t, pool), driver
				if driver == "postgres, binary" {
					url, driver = url+"&binary_parameters=yes", "postgres"
				}
				db, err := sql.Open(driver, url)
				require.NoError(t, err)
				defer db.Close()
				box, err := outbox.New(outbox.Config{Source: "order"})
				require.NoError(t, err)
				entries := []outbox.Entry{
					{Topic: "a", Key: "k", Body: services.SendReceipt{OrderID: "\"ü\\", Cents: 1}},
					{Topic: "a", KeyBytes: []byte{0, 0xff}, Type: "Bytes", Payload: []byte{0, '\'', '\\', 0xff}},
					{Topic: "a", Type: "Tombstone"},
					{Topic: "a", Type: "Empty", Payload: []byte{}, Headers: []envelope.Header{{Key: "h", Value: []byte{0}}}},
				}
				require.NoError(t, send(t.Context(), db, func(tx outbox.SQLTx) error { return box.WriteSQL(t.Context(), tx, entries...) }))
				require.ErrorIs(t, send(t.Context(), db, func(tx outbox.SQLTx) error {
					return errors.Join(box.WriteSQL(t.Context(), tx, entries...), undo)
				}), undo)
				require.ErrorContains(t, box.WriteSQL(t.Context(), db, entries...), "no transaction")

				type row struct {
					Type              string
					KeyBytes, Payload []byte
					RawHeaders        bool
				}
				rows, err := pool.Query(t.Context(), "SELECT type, key_bytes, payload, raw_headers IS NOT NULL AS raw_headers FROM troupe.outbox ORDER BY position")
				require.NoError(t, err)
				got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
				require.NoError(t, err)
				require.Equal(t, []row{
					{Type: "SendReceipt", Payload: []byte(`{"order_id":"\"ü\\","cents":1}`)},
					{Type: "Bytes", KeyBytes: entries[1].KeyBytes, Payload: entries[1].Payload},
					{Type: "Tombstone"},
					{Type: "Empty", Payload: []byte{}, RawHeaders: true},
				}, got)
			})
		}
	}
}
