package repair

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
)

// Config configures a Desk. Pool is required.
type Config struct {
	// Pool connects to the database of the service whose messages failed. A Desk uses one connection at a time.
	Pool *pgxpool.Pool
	// Codec reads and writes Avro payloads. Without one they are shown as hex and cannot be edited.
	Codec Codec
}

// A Codec converts Avro in Confluent's wire format to JSON and back. *schemas.Codec implements it.
type Codec interface {
	// ToJSON decodes a payload and also returns the schema's name.
	ToJSON(ctx context.Context, payload []byte) (schema string, text []byte, err error)
	// FromJSONLike encodes with the schema whose id is in the first bytes of like.
	FromJSONLike(ctx context.Context, like, text []byte) ([]byte, error)
	// FromJSON encodes with the latest schema of that name.
	FromJSON(ctx context.Context, name string, text []byte) (envelope.Encoded, error)
}

// A Desk inspects and repairs the failed messages of one database. It is safe for concurrent use.
type Desk struct {
	pool  *pgxpool.Pool
	codec Codec
}

// New returns a Desk. It does no I/O.
func New(cfg Config) (*Desk, error) {
	if cfg.Pool == nil {
		return nil, errors.New("repair: config without a pool")
	}
	return &Desk{pool: cfg.Pool, codec: cfg.Codec}, nil
}

// rights is the page that lists the rights of each command.
const rights = "docs/dead-letters.md"

func explain(err error) error { return admin.Explain(err, rights) }

// act runs do in one transaction. It waits for rows that another session has locked and then reads them as they are now, whatever
// isolation level is the role's default.
func (d *Desk) act(ctx context.Context, do func(pgx.Tx) error) error {
	return admin.InTx(ctx, d.pool, rights, do)
}

// query runs one statement and collects its rows.
func query[T any](ctx context.Context, d *Desk, sql string, args pgx.NamedArgs, scan pgx.RowToFunc[T]) ([]T, error) {
	rows, err := d.pool.Query(ctx, sql, args)
	if err != nil {
		return nil, explain(err)
	}
	all, err := pgx.CollectRows(rows, scan)
	return all, explain(err)
}

// page runs a statement that returns at most limit rows and one more, and collects a page of them.
func page[T any](ctx context.Context, d *Desk, sql string, args pgx.NamedArgs, limit int, scan pgx.RowToFunc[T]) (all []T, more bool, err error) {
	rows, err := d.pool.Query(ctx, sql, args)
	if err != nil {
		return nil, false, explain(err)
	}
	all, more, err = admin.Collect(rows, limit, scan)
	return all, more, explain(err)
}

// now returns the time of the database's clock, which sets all times in its rows.
func (d *Desk) now(ctx context.Context) (at time.Time, err error) {
	return at, explain(d.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at))
}
