package pg

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
)

// Args are the named arguments of a constant statement, like pgx.NamedArgs for any statement: the statement is parsed once in a
// process instead of at each call, which was 2 % of the time of a process that runs sagas over Kafka, and 9 % of one with local
// work. A missing argument is an error. Concurrent reads are allowed, as with any map.
type Args map[string]any

// statement is a statement with numbered placeholders, and the names of its arguments.
type statement struct {
	sql   string
	names []string
}

var statements sync.Map // by the text with names

// RewriteQuery implements pgx.QueryRewriter.
func (a Args) RewriteQuery(ctx context.Context, conn *pgx.Conn, sql string, _ []any) (string, []any, error) {
	known, ok := statements.Load(sql)
	if !ok {
		s, err := a.read(ctx, conn, sql)
		if err != nil {
			return "", nil, err
		}
		known, _ = statements.LoadOrStore(sql, s)
	}
	s := known.(*statement)
	values := make([]any, len(s.names))
	for i, name := range s.names {
		value, ok := a[name]
		if !ok {
			return "", nil, missing(name)
		}
		values[i] = value
	}
	return s.sql, values, nil
}

// read lets pgx replace each placeholder, with the argument's name as its value.
func (a Args) read(ctx context.Context, conn *pgx.Conn, sql string) (*statement, error) {
	names := make(pgx.NamedArgs, len(a))
	for name := range a {
		names[name] = name
	}
	numbered, places, err := names.RewriteQuery(ctx, conn, sql, nil)
	if err != nil {
		return nil, err
	}
	s := &statement{sql: numbered, names: make([]string, len(places))}
	for i, place := range places {
		name, ok := place.(string)
		if !ok {
			return nil, missing(fmt.Sprintf("number %d", i+1))
		}
		s.names[i] = name
	}
	return s, nil
}

func missing(name string) error { return fmt.Errorf("a statement's argument %s is missing", name) }
