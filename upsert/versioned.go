package upsert

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Versioned is a row that counts its changes, so that nobody overwrites what they have not read. It may be used
// concurrently.
type Versioned struct {
	Table   string   // orders, or shop.orders
	Key     []string // which row: its primary key or another unique key
	Version string   // an integer column that is not null
	Columns []string // what an update writes, all of it each time
}

func (v Versioned) statements() statements {
	version := len(v.Key) + 1
	assign := list(v.Columns, "", version+1, func(c string, n int) string { return fmt.Sprintf("%s = $%d, ", c, n) })
	counter := quote(v.Version)
	return statements{
		write: fmt.Sprintf("UPDATE %s\nSET %s%s = %s + 1\nWHERE %s AND %s = $%d",
			quoteTable(v.Table), assign, counter, counter, equal(v.Key, 1), counter, version),
		look: fmt.Sprintf("SELECT %s, %s - 1 = $%d AND %s\nFROM %s\nWHERE %s",
			counter, counter, version, same(v.Columns, version+1), quoteTable(v.Table), equal(v.Key, 1)),
		params: slices.Concat(v.Key, []string{v.Version}, v.Columns),
	}
}

// SQL is the two statements that Update sends. Their parameters are the values of Key, that of Version, those of Columns.
func (v Versioned) SQL() (write, look string) {
	s := v.statements()
	return s.write, s.look
}

// Update changes the row if it still has the version among values, which is the one that was read, and counts it up.
// Applied: done. Duplicate: the row is one version further and has these values: this update was made before, or
// another that says the same. ErrStale: it has any other version. ErrMissing: there is no such row.
func (v Versioned) Update(ctx context.Context, tx pgx.Tx, values Values) (Result, error) {
	result, err := v.update(ctx, tx, values)
	return result, about(v.Table, v.Key, err)
}

func (v Versioned) update(ctx context.Context, tx pgx.Tx, values Values) (Result, error) {
	if err := check(v.Table, v.Key, append([]string{v.Version}, v.Columns...)); err != nil {
		return 0, err
	}
	var version int64
	var same bool
	written, there, err := v.statements().run(ctx, tx, values, &version, &same)
	switch {
	case err != nil:
		return 0, err
	case !there:
		return 0, ErrMissing
	case written:
		return Applied, nil
	case !same:
		return 0, fmt.Errorf("%w: read in version %v, now in %d", ErrStale, values[v.Version], version)
	}
	return Duplicate, nil
}
