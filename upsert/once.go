package upsert

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Once is a column that is null until it gets its value. It may be used concurrently.
type Once struct {
	Table  string   // payments, or shop.payments
	Key    []string // which row: its primary key or another unique key
	Column string   // what is set
}

func (o Once) statements() statements {
	n := len(o.Key) + 1
	return statements{
		write: fmt.Sprintf("UPDATE %s\nSET %s = $%d\nWHERE %s AND %s IS NULL",
			quoteTable(o.Table), quote(o.Column), n, equal(o.Key, 1), quote(o.Column)),
		look: fmt.Sprintf("SELECT %s\nFROM %s\nWHERE %s",
			same([]string{o.Column}, n), quoteTable(o.Table), equal(o.Key, 1)),
		params: append(slices.Clone(o.Key), o.Column),
	}
}

// SQL is the two statements that Set sends. Their parameters are the values of Key, then that of Column.
func (o Once) SQL() (write, look string) {
	s := o.statements()
	return s.write, s.look
}

// Set gives the column its value. Applied: it had none. Duplicate: it has this one. ErrConflict: it has another.
// ErrMissing: there is no such row. Null is no value to set.
func (o Once) Set(ctx context.Context, tx pgx.Tx, values Values) (Result, error) {
	result, err := o.set(ctx, tx, values)
	return result, about(o.Table, o.Key, err)
}

func (o Once) set(ctx context.Context, tx pgx.Tx, values Values) (Result, error) {
	if err := check(o.Table, o.Key, []string{o.Column}); err != nil {
		return 0, err
	}
	if value, ok := values[o.Column]; ok && value == nil {
		return 0, fmt.Errorf("column %q: null cannot be set once", o.Column)
	}
	var same bool
	written, there, err := o.statements().run(ctx, tx, values, &same)
	switch {
	case err != nil:
		return 0, err
	case !there:
		return 0, ErrMissing
	case written:
		return Applied, nil
	case !same:
		return 0, ErrConflict
	}
	return Duplicate, nil
}
