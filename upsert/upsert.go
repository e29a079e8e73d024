package upsert

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A Result is how a verb came to be true. Each of them is a success.
type Result int

// The results. There is no zero Result beside an error.
const (
	Applied   Result = 1 + iota // this call has written it
	Duplicate                   // it was written before, the same
	Stale                       // Newest only: a newer version is there, and stays
)

// String is the result in lower case, for logs.
func (r Result) String() string {
	switch r {
	case Applied:
		return "applied"
	case Duplicate:
		return "duplicate"
	case Stale:
		return "stale"
	}
	return "no result"
}

// Errors after which nothing has changed and the transaction can go on. They come wrapped, with the table and the key's
// columns but no values.
var (
	ErrConflict = errors.New("other values are there already")
	ErrStale    = errors.New("the row has changed since it was read")
	ErrMissing  = errors.New("no such row")
)

// Values are what a verb writes, by column. All columns of the description are required and no others are accepted.
// Values are pgx's: whatever it encodes as the column's type; nil is null.
type Values map[string]any

// A statement pair with the columns whose values are its parameters, $1 first.
type statements struct {
	write, look string
	params      []string
}

// run sends both statements and scans what the second one found.
func (s statements) run(ctx context.Context, tx pgx.Tx, v Values, found ...any) (written, there bool, err error) {
	args, err := v.inOrder(s.params)
	if err != nil {
		return false, false, err
	}
	batch := &pgx.Batch{}
	batch.Queue(s.write, args...)
	batch.Queue(s.look, args...)
	results := tx.SendBatch(ctx, batch)
	tag, err := results.Exec()
	if err == nil {
		err = results.QueryRow().Scan(found...)
	}
	there = err == nil
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	if closing := results.Close(); err == nil {
		err = closing
	}
	return tag.RowsAffected() > 0, there, err
}

// inOrder refuses a set of values that is not exactly params: a column forgotten would silently become null.
func (v Values) inOrder(params []string) ([]any, error) {
	args := make([]any, len(params))
	for i, column := range params {
		value, ok := v[column]
		if !ok {
			return nil, fmt.Errorf("no value for column %q: give it one, nil for null", column)
		}
		args[i] = value
	}
	for column := range v {
		if !slices.Contains(params, column) {
			return nil, fmt.Errorf("a value for column %q, which the description does not name", column)
		}
	}
	return args, nil
}

// check refuses descriptions that could mean something else than their author thinks.
func check(table string, key, columns []string) error {
	if table == "" {
		return errors.New("no table: name it, as shipments or shop.shipments")
	}
	if len(key) == 0 {
		return errors.New("no key: name the columns of the row's primary key or of another unique constraint")
	}
	seen := make(map[string]bool)
	for _, column := range slices.Concat(key, columns) {
		if column == "" {
			return errors.New("a column without a name")
		}
		if seen[column] {
			return fmt.Errorf("column %q is named twice", column)
		}
		seen[column] = true
	}
	return nil
}

// about says which table an error is about.
func about(table string, key []string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("upsert: %s by %s: %w", table, strings.Join(key, ", "), err)
}

// Quoted text for statements. Parameters are numbered from first.

func quoteTable(name string) string { return pgx.Identifier(strings.Split(name, ".")).Sanitize() }

func quote(column string) string { return pgx.Identifier{column}.Sanitize() }

// list joins what each column becomes.
func list(columns []string, separator string, first int, each func(column string, n int) string) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = each(quote(c), first+i)
	}
	return strings.Join(parts, separator)
}

func names(columns []string) string {
	return list(columns, ", ", 1, func(c string, _ int) string { return c })
}

func params(columns []string) string {
	return list(columns, ", ", 1, func(_ string, n int) string { return fmt.Sprintf("$%d", n) })
}

func equal(columns []string, first int) string {
	return list(columns, " AND ", first, func(c string, n int) string { return fmt.Sprintf("%s = $%d", c, n) })
}

// same is whether the stored columns are the given ones; true when there are none.
func same(columns []string, first int) string {
	if len(columns) == 0 {
		return "true"
	}
	return list(columns, " AND ", first, func(c string, n int) string {
		return fmt.Sprintf("%s IS NOT DISTINCT FROM $%d", c, n)
	})
}
