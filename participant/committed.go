package participant

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

// beginCommitted begins a transaction at read committed, whatever default_transaction_isolation is. The statement in it may wait for a row that
// another transaction changes. At read committed it then reads the changed row; at repeatable read it would fail.
const beginCommitted = "begin isolation level read committed"

// queryCommitted executes a statement that returns at most one row, at read committed, in one round trip. It returns pgx.ErrNoRows if there is none.
func (p *Participant) queryCommitted(ctx context.Context, sql string, args pg.Args, dest ...any) error {
	var b pgx.Batch
	var none error // it must not end the batch: pgx would forget its prepared statements, and not read the result of COMMIT
	b.Queue(beginCommitted)
	b.Queue(sql, args).QueryRow(func(row pgx.Row) error {
		err := row.Scan(dest...)
		if errors.Is(err, pgx.ErrNoRows) {
			none, err = err, nil
		}
		return err
	})
	b.Queue("commit")
	return cmp.Or(p.cfg.Pool.SendBatch(ctx, &b).Close(), none)
}
