package upsert

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// A Sum is a column that deltas are added to, each once. The ledger remembers which: one row per operation, in a table
// of the service's own, which has the key's columns under the same names and of the same types as the table:
//
//	CREATE TABLE account_deltas (
//	  operation_id text        PRIMARY KEY,          -- the message's id, or whatever names the operation
//	  customer_id  text        NOT NULL,             -- Key
//	  delta        bigint      NOT NULL,
//	  at           timestamptz NOT NULL DEFAULT now()
//	);
//
// Entries may be deleted once no duplicate of their message can come any more. A Sum may be used concurrently.
type Sum struct {
	Table  string   // accounts, or shop.accounts
	Key    []string // which row: its primary key or another unique key
	Column string   // what is added to; it must not be null

	Ledger    string // account_deltas, or shop.account_deltas
	Operation string // the ledger's unique column; default operation_id
	Delta     string // the ledger's column for what was added; default delta
}

func (s Sum) withDefaults() Sum {
	if s.Operation == "" {
		s.Operation = "operation_id"
	}
	if s.Delta == "" {
		s.Delta = "delta"
	}
	return s
}

// The row is locked before its entry is made: without a row there is no entry, and all take row and entry in that order.
func (s Sum) statements() statements {
	entry := slices.Concat([]string{s.Operation}, s.Key, []string{s.Delta})
	delta := len(entry)
	write := fmt.Sprintf(`WITH target AS (
  SELECT %s
  FROM %s
  WHERE %s
  FOR NO KEY UPDATE
), entry AS (
  INSERT INTO %s (%s)
  SELECT $1, %s, $%d FROM target
  ON CONFLICT DO NOTHING
  RETURNING %s AS delta
)
UPDATE %s AS stored
SET %s = stored.%s + entry.delta
FROM entry
WHERE %s`,
		names(s.Key), quoteTable(s.Table), equal(s.Key, 2),
		quoteTable(s.Ledger), names(entry), names(s.Key), delta, quote(s.Delta),
		quoteTable(s.Table), quote(s.Column), quote(s.Column),
		list(s.Key, " AND ", 2, func(c string, n int) string { return fmt.Sprintf("stored.%s = $%d", c, n) }))
	look := fmt.Sprintf("SELECT %s\nFROM %s\nWHERE %s = $1", same(entry[1:], 2), quoteTable(s.Ledger), quote(s.Operation))
	return statements{write: write, look: look, params: entry}
}

// SQL is the two statements that Add sends. Their parameters are the values of Operation, those of Key, that of Delta.
func (s Sum) SQL() (write, look string) {
	st := s.withDefaults().statements()
	return st.write, st.look
}

// Add takes a row of the ledger: the operation, the key and the delta, which may be negative. Applied: the delta is
// added. Duplicate: it was, by the same operation. ErrConflict: the operation has added another delta, or to another
// row. ErrMissing: there is no row to add to, and the ledger knows nothing of the operation.
func (s Sum) Add(ctx context.Context, tx pgx.Tx, values Values) (Result, error) {
	result, err := s.withDefaults().add(ctx, tx, values)
	return result, about(s.Table, s.Key, err)
}

func (s Sum) add(ctx context.Context, tx pgx.Tx, values Values) (Result, error) {
	if err := check(s.Table, s.Key, []string{s.Column}); err != nil {
		return 0, err
	}
	if err := check(s.Ledger, []string{s.Operation}, append(slices.Clone(s.Key), s.Delta)); err != nil {
		return 0, fmt.Errorf("ledger: %w", err)
	}
	var same bool
	written, there, err := s.statements().run(ctx, tx, values, &same)
	switch {
	case err != nil:
		return 0, err
	case written:
		return Applied, nil
	case !there:
		return 0, ErrMissing
	case !same:
		return 0, fmt.Errorf("%w: the operation has added another delta, or to another row", ErrConflict)
	}
	return Duplicate, nil
}
