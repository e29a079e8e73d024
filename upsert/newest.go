package upsert

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Newest is a row that follows versions which somebody else counts, and which may arrive late, twice or never: a copy
// of another service's data, a last known position. It may be used concurrently.
type Newest struct {
	Table   string   // prices, or shop.prices
	Key     []string // a unique key of the table
	Version string   // a column whose order says which is newer: a counter, a timestamp, a UUIDv7; it must not be null
	Columns []string // what belongs to a version, all of it each time
}

func (w Newest) statements() statements {
	version := len(w.Key) + 1
	all := slices.Concat(w.Key, []string{w.Version}, w.Columns)
	stamp := quote(w.Version)
	assign := list(all[len(w.Key):], ", ", version, func(c string, _ int) string {
		return fmt.Sprintf("%s = excluded.%s", c, c)
	})
	return statements{
		write: fmt.Sprintf(`INSERT INTO %s AS stored (%s)
VALUES (%s)
ON CONFLICT (%s) DO UPDATE
SET %s
WHERE stored.%s < excluded.%s`,
			quoteTable(w.Table), names(all), params(all), names(w.Key), assign, stamp, stamp),
		look: fmt.Sprintf("SELECT %s > $%d, %s = $%d AND %s\nFROM %s\nWHERE %s",
			stamp, version, stamp, version, same(w.Columns, version+1), quoteTable(w.Table), equal(w.Key, 1)),
		params: all,
	}
}

// SQL is the two statements that Put sends. Their parameters are the values of Key, that of Version, those of Columns.
func (w Newest) SQL() (write, look string) {
	s := w.statements()
	return s.write, s.look
}

// Put makes the row, or changes it if the version among values is newer than the row's. Applied: done. Duplicate: the
// row has this version, with these values. Stale: it has a newer one, and stays as it is. ErrConflict: it has this
// version with other values, so one version stands for two things, and which of them came first would decide.
func (w Newest) Put(ctx context.Context, tx pgx.Tx, values Values) (Result, error) {
	result, err := w.put(ctx, tx, values)
	return result, about(w.Table, w.Key, err)
}

func (w Newest) put(ctx context.Context, tx pgx.Tx, values Values) (Result, error) {
	if err := check(w.Table, w.Key, append([]string{w.Version}, w.Columns...)); err != nil {
		return 0, err
	}
	if version, ok := values[w.Version]; ok && version == nil {
		return 0, fmt.Errorf("column %q: null is no version", w.Version)
	}
	var newer, same bool
	written, there, err := w.statements().run(ctx, tx, values, &newer, &same)
	switch {
	case err != nil:
		return 0, err
	case written:
		return Applied, nil
	case !there:
		return 0, fmt.Errorf("%w: it was deleted just now", ErrMissing)
	case newer:
		return Stale, nil
	case !same:
		return 0, fmt.Errorf("%w for this version", ErrConflict)
	}
	return Duplicate, nil
}
