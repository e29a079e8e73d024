package repair

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/plain"
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
	FromJSON(ctx context.Context, name string, text []byte) ([]byte, error)
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

// By names the operator (at most 200 bytes) and the reason (at most 2,000). Every action needs an Actor; Edit, Discard,
// Release and Skip also need a Reason.
type By struct {
	Actor  string
	Reason string
}

func (b By) check(reason bool) error {
	for _, field := range []struct {
		name, text string
		limit      int
		required   bool
	}{{"actor", b.Actor, 200, true}, {"reason", b.Reason, 2000, reason}} {
		switch {
		case field.required && strings.TrimSpace(field.text) == "":
			return fmt.Errorf("no %s: every action is recorded with who did it, and this one with why: give one", field.name)
		case len(field.text) > field.limit:
			return fmt.Errorf("%s of %d bytes: at most %d", field.name, len(field.text), field.limit)
		case strings.ToValidUTF8(field.text, "") != field.text || strings.ContainsRune(field.text, 0):
			return fmt.Errorf("%s is not text", field.name)
		}
	}
	if err := plain.CheckName(b.Actor); err != nil {
		return fmt.Errorf("actor: %w", err)
	}
	return nil
}

// lockLimit limits how long an action waits for a row that another session has locked.
const lockLimit = "10s"

// act runs do in one transaction. It waits for rows that another session has locked and then reads them as they are now, whatever
// isolation level is the role's default.
func (d *Desk) act(ctx context.Context, do func(pgx.Tx) error) error {
	err := pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+lockLimit+"'"); err != nil {
			return err
		}
		return do(tx)
	})
	return explain(err)
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

// now returns the time of the database's clock, which sets all times in its rows.
func (d *Desk) now(ctx context.Context) (at time.Time, err error) {
	return at, explain(d.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at))
}
