package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/sqlconn"
)

// SQLTx is a transaction of database/sql: a *sql.Tx, the DBTX of code that sqlc generates, the Tx in a bun.Tx, a ConnPool of GORM.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

var errNoTransaction = errors.New("outbox: a *sql.DB or a *sql.Conn is no transaction: its entries would be published although your own rows are rolled back; call BeginTx")

// WriteSQL is Write for a transaction of database/sql: of pgx's stdlib, of lib/pq, or the *sql.Tx that package sqltx gives to a
// participant's handler. It refuses a *sql.DB and a *sql.Conn. It cannot check other values: tx must be a
// transaction. A service with a participant should call WriteSQL of the participant's Outbox, which checks the entries against the flow.
//
//	transaction                           statements
//	of the service's own *sql.DB          one for up to 100 entries, and one for the notification if it is due
//	of a handler (package sqltx)          no statements of their own: the entries are sent with the handler's next statement or COMMIT,
//	                                      which then returns any error of Postgres
//
// With lib/pq each statement is two round trips, unless the connection sets binary_parameters.
func (o *Outbox) WriteSQL(ctx context.Context, tx SQLTx, entries ...Entry) error {
	switch tx := tx.(type) {
	case *sql.DB, *sql.Conn:
		return errNoTransaction
	case *sql.Tx:
		if under, ok := sqlconn.Pgx(tx); ok {
			return o.Write(ctx, under, entries...)
		}
	}
	statements, err := o.statements(ctx, entries...)
	if err != nil {
		return err
	}
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s.sql, s.args...); err != nil {
			return fmt.Errorf("outbox: write: %w", err)
		}
	}
	return nil
}

// maxRows is the largest number of rows of one statement.
const maxRows = 100

// notifyText is the statement notify with the array as text, for clients that cannot send an array.
const notifyText = "SELECT pg_notify('" + outboxrow.Channel + "', topic) FROM unnest($1::text::text[]) AS topic"

// A statement is SQL with the values of its parameters, for clients other than pgx. Each value is a string, a []byte or nil. Only a
// statement of a Check may have values of other types.
type statement struct {
	sql  string
	args []any
}

// statements returns statements that add entries as Write does. All of them must be executed in one transaction, in their order.
func (o *Outbox) statements(ctx context.Context, entries ...Entry) ([]statement, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	var r Rows
	if err := o.Render(ctx, &r, entries...); err != nil {
		return nil, err
	}
	var all []statement
	for from := 0; from < len(r.ids); from += maxRows {
		all = append(all, r.insert(from, min(from+maxRows, len(r.ids))))
	}
	for _, q := range r.along.QueuedQueries {
		all = append(all, statement{q.SQL, q.Arguments})
	}
	if named := o.hints.due(time.Now(), r.topics); len(named) > 0 {
		// due names only topics without characters that must be escaped in the text of an array.
		all = append(all, statement{notifyText, []any{`{"` + strings.Join(named, `","`) + `"}`}})
	}
	return all, nil
}

// insert returns the statement that inserts the rows with the indexes from ≤ i < to. Postgres assigns the positions in the order of
// VALUES.
func (r *Rows) insert(from, to int) statement {
	var sql strings.Builder
	sql.WriteString("INSERT INTO troupe.outbox (id, topic, key, key_bytes, type, headers, raw_headers, payload)\nVALUES ")
	args := make([]any, 0, 8*(to-from))
	for i := from; i < to; i++ {
		if i > from {
			sql.WriteString(",\n  ")
		}
		n := len(args)
		key, keyBytes := fmt.Sprintf("$%d::text", n+3), fmt.Sprintf("$%d::bytea", n+4)
		headers, rawHeaders := fmt.Sprintf("$%d::text::jsonb", n+6), fmt.Sprintf("$%d::bytea", n+7)
		args = append(args, uuid.UUID(r.ids[i]).String(), r.topics[i], text(r.keys[i]), binary(r.keyBytes[i]), r.types[i],
			string(r.headers[i]), binary(r.rawHeaders[i]), binary(r.payloads[i]))
		const byEncoding = "CASE WHEN getdatabaseencoding() = 'UTF8' THEN %s ELSE %s END" // as insertUTF8
		own := r.utf8Of(i)
		if own.key != nil {
			args = append(args, own.key)
			utf8 := fmt.Sprintf("$%d::bytea", len(args))
			key, keyBytes = fmt.Sprintf(byEncoding, "convert_from("+utf8+", 'UTF8')", key), fmt.Sprintf(byEncoding, keyBytes, utf8)
		}
		if own.headers != nil {
			args = append(args, own.headers)
			utf8 := fmt.Sprintf("$%d::bytea", len(args))
			headers, rawHeaders = fmt.Sprintf(byEncoding, "convert_from("+utf8+", 'UTF8')::jsonb", headers), fmt.Sprintf(byEncoding, "NULL", rawHeaders)
		}
		// The server casts the text, so that a client needs to know only the types text and bytea.
		fmt.Fprintf(&sql, "($%d::text::uuid, $%d::text, %s, %s, $%d::text, %s, %s, $%d::bytea)", n+1, n+2, key, keyBytes, n+5, headers, rawHeaders, n+8)
	}
	return statement{sql.String(), args}
}

// text returns s as a value, or nil if s is nil: a client may send a nil pointer as a value instead of NULL.
func text(s *string) any {
	if s == nil {
		return nil
	}
	return *s
}

// binary returns b as a value, or nil if b is nil: a client may send a nil slice as an empty value instead of NULL.
func binary(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
