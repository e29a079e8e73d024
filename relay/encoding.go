package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/mapping"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/internal/wal"
)

// unconvertible reports whether the server could not convert text between the database's encoding and UTF-8. A database in SQL_ASCII may
// hold any bytes. Other encodings have bytes or characters without a counterpart in UTF-8.
func unconvertible(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && (refusal.Code == "22021" || refusal.Code == "22P05")
}

func asciiText(text string) string { return pgtext.ASCII(text) }

// toASCII replaces each text of the lists by its form in ASCII.
func toASCII(lists ...[]string) {
	for _, texts := range lists {
		for n, text := range texts {
			texts[n] = asciiText(text)
		}
	}
}

// A rowsParked is the error of a claim that failed at rows whose text cannot be converted to UTF-8. The claim has parked these rows.
type rowsParked struct{ rows []PublishFailure }

func (r *rowsParked) Error() string {
	return fmt.Sprintf("%d rows whose text cannot be converted to UTF-8 are parked", len(r.rows))
}

// parkUnreadable parks the rows whose text made a claim fail with cause, and returns a *rowsParked. statement is parkUnreadableRows or
// parkUnreadableFailures. If there is no such row, it returns cause. If the term is over, it parks no row and also returns cause; the
// goroutine that renews the lease then ends the term.
func parkUnreadable(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, statement string, args any, cause error) error {
	rows, err := db.Query(ctx, statement, args)
	if err != nil {
		return fmt.Errorf("park rows that are not UTF-8: %w", err)
	}
	parked, err := pgx.CollectRows(rows, func(one pgx.CollectableRow) (PublishFailure, error) {
		t := PublishFailure{Parked: true}
		var reason string
		err := one.Scan(&t.Position, &t.ID, &t.Topic, &t.Attempts, &reason)
		t.Err = errors.New(reason)
		return t, err
	})
	switch {
	case err != nil:
		return fmt.Errorf("park rows that are not UTF-8: %w", err)
	case len(parked) == 0:
		return cause
	}
	return &rowsParked{parked}
}

// setAside parks the rows of the shard whose text made a claim fail with cause. It returns a *rowsParked, or another error.
func (p *poll) setAside(ctx context.Context, cause error) error {
	if err := p.connect(ctx); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if (p.published != nil || p.sweep != nil) && p.server != p.serverID {
		return p.check(errServer)
	}
	err := parkUnreadable(ctx, p.conn, parkUnreadableRows, p.scope().args(p.lease.args(nil)), cause)
	if parked := (*rowsParked)(nil); errors.As(err, &parked) {
		return err
	}
	return p.check(err)
}

// A converter converts text from the database's encoding to UTF-8, with the server's own function. A relay begins without a converter: the
// server converts rows as it sends them, and ends the stream at the first row that it cannot convert. From then on the relay reads the log
// and mapped tables in the database's encoding, and uses a converter.
type converter struct {
	db       *server
	encoding string
	cache    map[string][]byte
}

// errEncoding means that text cannot be converted.
var errEncoding = errors.New("text that cannot be converted to UTF-8")

// readInDatabaseEncoding makes the relay read text in the database's encoding from now on. cause is the error of the row that the server
// could not convert.
func (r *Relay) readInDatabaseEncoding(cause error) {
	r.asStored = true
	r.cfg.Log.Warn().Err(cause).Msg("the server cannot convert a row to UTF-8: " +
		"rows are read in the database's encoding from here on, and such rows are parked")
}

// useDatabaseEncoding makes the server send text on conn without converting it.
func useDatabaseEncoding(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "SELECT pg_catalog.set_config('client_encoding', pg_catalog.getdatabaseencoding(), false)")
	return err
}

func (r *Relay) newConverter(ctx context.Context, db *server) (*converter, error) {
	c := &converter{db: db, cache: make(map[string][]byte)}
	if err := db.QueryRow(ctx, "SELECT getdatabaseencoding()::text").Scan(&c.encoding); err != nil {
		return nil, fmt.Errorf("read the database's encoding: %w", err)
	}
	return c, nil
}

// text returns a value in UTF-8. The error is errEncoding if the value cannot be converted; any other error is of the connection.
func (c *converter) text(value []byte) ([]byte, error) {
	if pgtext.IsASCII(value) {
		return value, nil
	}
	if c.encoding == "SQL_ASCII" { // the server converts nothing there, but checks the bytes
		if !utf8.Valid(value) {
			return nil, errEncoding
		}
		return value, nil
	}
	if text, there := c.cache[string(value)]; there {
		return text, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	var text []byte
	err := c.db.QueryRow(ctx, "SELECT convert($1, $2::text::name, 'UTF8')", value, c.encoding).Scan(&text)
	switch {
	case unconvertible(err):
		return nil, errEncoding
	case err != nil:
		return nil, fmt.Errorf("convert text to UTF-8: %w", err)
	}
	if len(value) > maxCachedText {
		return text, nil
	}
	if len(c.cache) >= 10_000 { // bounds the cache, as maxCachedText does
		clear(c.cache)
	}
	c.cache[string(value)] = text
	return text, nil
}

const maxCachedText = 1024 // longest text that is cached, in bytes

// values converts the text of a row of a mapped table. A value that cannot be converted stays as it is stored, and is marked: a row whose
// message needs it is parked.
func (c *converter) values(b *boundTable, row []mapping.Value) error {
	return b.table.Recode(row, c.encoding, func(value []byte) ([]byte, bool, error) {
		text, err := c.text(value)
		if errors.Is(err, errEncoding) {
			return nil, false, nil
		}
		return text, true, err
	})
}

// relation returns a copy of a table's description with its names in UTF-8. It leaves a name that cannot be converted as it is stored.
func (c *converter) relation(stored *wal.Relation) (*wal.Relation, error) {
	converted := *stored
	converted.Columns = slices.Clone(stored.Columns)
	names := []*string{&converted.Namespace, &converted.Name}
	for n := range converted.Columns {
		names = append(names, &converted.Columns[n].Name)
	}
	for _, name := range names {
		text, err := c.text([]byte(*name))
		if err != nil && !errors.Is(err, errEncoding) {
			return nil, err
		}
		if err == nil {
			*name = string(text)
		}
	}
	return &converted, nil
}

// tuple converts the text of a row. Text that cannot be converted stays as it is stored, and reason is the error, so that the row is
// parked. The row's key then equals the result of troupe.outbox_order_key.
func (c *converter) tuple(l layout, stored wal.Tuple) (converted wal.Tuple, reason, err error) {
	converted, err = stored.Map(func(n int, value []byte) ([]byte, error) {
		switch l[n] {
		case topic, key, messageType, headers:
		default:
			return value, nil
		}
		text, err := c.text(value)
		if errors.Is(err, errEncoding) {
			if reason == nil {
				reason = fmt.Errorf("column %s is not text in the encoding %s: %w", fieldName(l[n]), c.encoding, err)
			}
			return value, nil
		}
		return text, err
	})
	return converted, reason, err
}

func fieldName(f field) string {
	for name, of := range fields {
		if of == f {
			return name
		}
	}
	return ""
}
