package upsert

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// A Row is inserted once. It may be used concurrently.
type Row struct {
	Table   string   // shipments, or shop.shipments
	Key     []string // what a repeated message has in common with the first: a unique key of the table
	Columns []string // what else is written; a second message must bring the same
}

func (r Row) statements() statements {
	all := slices.Concat(r.Key, r.Columns)
	return statements{
		write: fmt.Sprintf("INSERT INTO %s (%s)\nVALUES (%s)\nON CONFLICT DO NOTHING",
			quoteTable(r.Table), names(all), params(all)),
		look: fmt.Sprintf("SELECT %s\nFROM %s\nWHERE %s",
			same(r.Columns, len(r.Key)+1), quoteTable(r.Table), equal(r.Key, 1)),
		params: all,
	}
}

// SQL is the two statements that Insert sends. Their parameters are the values of Key, then those of Columns.
func (r Row) SQL() (write, look string) {
	s := r.statements()
	return s.write, s.look
}

// Insert makes the row. Applied: it is new. Duplicate: it is there with the same values. ErrConflict: it is there with
// others, or another row has one of its values in a column that is unique.
func (r Row) Insert(ctx context.Context, tx pgx.Tx, values Values) (Result, error) {
	result, err := r.insert(ctx, tx, values)
	return result, about(r.Table, r.Key, err)
}

func (r Row) insert(ctx context.Context, tx pgx.Tx, values Values) (Result, error) {
	if err := check(r.Table, r.Key, r.Columns); err != nil {
		return 0, err
	}
	var same bool
	written, there, err := r.statements().run(ctx, tx, values, &same)
	switch {
	case err != nil:
		return 0, err
	case written:
		return Applied, nil
	case !there:
		return 0, fmt.Errorf("%w: a row with another key has one of the unique values, or it was deleted just now", ErrConflict)
	case !same:
		return 0, ErrConflict
	}
	return Duplicate, nil
}
