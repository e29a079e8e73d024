package sqlconn

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// conn is the connector, the only connection and the transaction of one *sql.DB. database/sql calls it from one goroutine at a
// time.
type conn struct {
	ctx context.Context // of the transaction
	tx  pgx.Tx

	mu      sync.Mutex
	ended   bool // With's function has returned
	calls   int  // calls of pgx that have not returned
	open    int  // queries whose rows are neither read to the end nor closed
	mistake error
}

// start counts a call of pgx, until done. It returns an error if the transaction has ended.
func (c *conn) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return errEnded
	}
	c.calls++
	return nil
}

func (c *conn) done() {
	c.mu.Lock()
	c.calls--
	c.mu.Unlock()
}

// count changes the number of queries with open rows.
func (c *conn) count(change int) {
	c.mu.Lock()
	c.open += change
	c.mu.Unlock()
}

// end makes each later call return an error. idle reports that no call is in progress.
func (c *conn) end() (idle bool, mistake error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	switch mistake = c.mistake; {
	case mistake != nil:
	case c.calls > 0:
		mistake = errInUse
	case c.open > 0:
		mistake = errOpen
	}
	return c.calls == 0, mistake
}

func (c *conn) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

func (c *conn) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c *conn) Driver() driver.Driver                        { return c }

// Open is a method of driver.Driver that database/sql does not call for a connector.
func (c *conn) Open(string) (driver.Conn, error) { return c, nil }

func (c *conn) Close() error                                                 { return nil }
func (c *conn) Begin() (driver.Tx, error)                                    { return c, nil }
func (c *conn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c, nil }

func (c *conn) Commit() error { return c.refuse(errCommit) }

// Rollback returns an error if With's function calls it. It does nothing if database/sql calls it because the context has ended, or
// With because its function has returned.
func (c *conn) Rollback() error {
	if c.hasEnded() || c.ctx.Err() != nil {
		return nil
	}
	return c.refuse(errRollback)
}

// refuse stores the mistake, so that With reports it even if the caller drops the error.
func (c *conn) refuse(mistake error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mistake == nil {
		c.mistake = mistake
	}
	return mistake
}

// CheckNamedValue accepts every value: pgx encodes more types than database/sql allows, and calls driver.Valuer itself.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if v.Name != "" {
		return fmt.Errorf("argument %s has a name: Postgres has no named parameters; use $1, $2", v.Name)
	}
	return nil
}

func (c *conn) ExecContext(ctx context.Context, query string, named []driver.NamedValue) (driver.Result, error) {
	if err := c.start(); err != nil {
		return nil, err
	}
	defer c.done()
	args := make([]any, len(named))
	for i, v := range named {
		args[i] = v.Value
	}
	tag, err := c.tx.Exec(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(tag.RowsAffected()), nil
}

// formats lists the types that are read in binary. All others are read as text, and become strings.
var formats = pgx.QueryResultFormatsByOID{
	pgtype.BoolOID: pgx.BinaryFormatCode, pgtype.ByteaOID: pgx.BinaryFormatCode,
	pgtype.Int2OID: pgx.BinaryFormatCode, pgtype.Int4OID: pgx.BinaryFormatCode, pgtype.Int8OID: pgx.BinaryFormatCode,
	pgtype.Float4OID: pgx.BinaryFormatCode, pgtype.Float8OID: pgx.BinaryFormatCode,
	pgtype.OIDOID: pgx.BinaryFormatCode, pgtype.CIDOID: pgx.BinaryFormatCode, pgtype.XIDOID: pgx.BinaryFormatCode,
	pgtype.DateOID: pgx.BinaryFormatCode, pgtype.TimestampOID: pgx.BinaryFormatCode, pgtype.TimestamptzOID: pgx.BinaryFormatCode,
}

func (c *conn) QueryContext(ctx context.Context, query string, named []driver.NamedValue) (driver.Rows, error) {
	if err := c.start(); err != nil {
		return nil, err
	}
	defer c.done()
	args := make([]any, 1, 1+len(named))
	args[0] = formats
	for _, v := range named {
		args = append(args, v.Value)
	}
	found, err := c.tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	// pgx knows the columns and most errors only once it has read the first row.
	r := &rows{conn: c, rows: found, types: c.tx.Conn().TypeMap(), first: true}
	if r.more = found.Next(); r.more {
		c.count(1)
		r.open = true
	} else if err := found.Err(); err != nil {
		return nil, err
	}
	return r, nil
}

func (c *conn) Prepare(query string) (driver.Stmt, error) { return statement{c, query}, nil }

// statement is a driver.Stmt that holds only the text: pgx prepares it when it runs.
type statement struct {
	conn *conn
	text string
}

var errNoContext = errors.New("a statement without a context cannot run here: call ExecContext or QueryContext")

func (s statement) Close() error                               { return nil }
func (s statement) NumInput() int                              { return -1 } // pgx counts
func (s statement) CheckNamedValue(v *driver.NamedValue) error { return s.conn.CheckNamedValue(v) }
func (s statement) Exec([]driver.Value) (driver.Result, error) { return nil, errNoContext }
func (s statement) Query([]driver.Value) (driver.Rows, error)  { return nil, errNoContext }

func (s statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.text, args)
}

func (s statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.text, args)
}
