package wal

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/troupe-go/troupe/internal/pg"
)

// Timeout is how long the server waits for a sign of life before it ends the stream and frees its slot.
const Timeout = 5 * time.Second

// readSize is how much is read from the connection at once.
const readSize = 256 << 10

// A Conn is a replication connection, before and while it streams.
type Conn struct {
	conn *pgconn.PgConn
	net  net.Conn
	in   *bufio.Reader

	decoder Decoder
	out     sync.Mutex // around writes
}

// Connect opens a replication connection to the database of config. A server on this machine is better reached by its
// Unix socket: over TCP the stream is half as fast.
func Connect(ctx context.Context, config *pgx.ConnConfig) (*Conn, error) {
	c := config.Config.Copy()
	params := map[string]string{"replication": "database", "wal_sender_timeout": "5s"}
	for name, value := range c.RuntimeParams {
		if _, ours := params[name]; !ours {
			params[name] = value
		}
	}
	c.RuntimeParams = params
	c.AfterConnect, c.ValidateConnect = nil, nil
	w := &Conn{}
	c.BuildFrontend = func(r io.Reader, out io.Writer) *pgproto3.Frontend {
		w.in = bufio.NewReaderSize(r, readSize)
		return pgproto3.NewFrontend(w.in, out)
	}
	conn, err := pgconn.ConnectConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("connect for replication: %w", err)
	}
	w.conn, w.net = conn, conn.Conn()
	if _, err := conn.Exec(ctx, pg.Preamble).ReadAll(); err != nil {
		w.Close()
		return nil, fmt.Errorf("connect for replication: prepare the session: %w", err)
	}
	return w, nil
}

// PID is the server's process of this connection.
func (c *Conn) PID() uint32 { return c.conn.PID() }

// Close ends the connection. What had arrived before may still be told by Next; then it ends with an error.
func (c *Conn) Close() { _ = c.net.Close() }

// System identifies the server.
type System struct {
	ID       string // of the cluster, given at initdb
	Timeline int32
	LSN      LSN    // flushed so far
	Server   string // of the server process, see pg.ServerSQL
}

// Identify asks the server for its identity.
func (c *Conn) Identify(ctx context.Context) (s System, err error) {
	row, err := c.row(ctx, "IDENTIFY_SYSTEM", 3)
	if err != nil {
		return s, fmt.Errorf("identify the system: %w", err)
	}
	s.ID = row[0]
	if _, err := fmt.Sscan(row[1], &s.Timeline); err != nil {
		return s, fmt.Errorf("identify the system: timeline %q: %w", row[1], err)
	}
	if s.LSN, err = ParseLSN(row[2]); err != nil {
		return s, fmt.Errorf("identify the system: %w", err)
	}
	if row, err = c.row(ctx, pg.ServerSQL, 1); err != nil {
		return s, fmt.Errorf("identify the server: %w", err)
	}
	s.Server = row[0]
	return s, nil
}

// CreateSlot makes a slot for pgoutput and says from where it streams. It waits for every transaction of the cluster that
// is under way and has written. Failover: to be kept on standbys too (Postgres 17 and newer).
func (c *Conn) CreateSlot(ctx context.Context, name string, failover bool) (LSN, error) {
	// The first form is the only one of Postgres 14; later ones take it too.
	command := fmt.Sprintf("CREATE_REPLICATION_SLOT %s LOGICAL pgoutput NOEXPORT_SNAPSHOT", pgx.Identifier{name}.Sanitize())
	if failover {
		command = fmt.Sprintf("CREATE_REPLICATION_SLOT %s LOGICAL pgoutput (SNAPSHOT 'nothing', FAILOVER true)", pgx.Identifier{name}.Sanitize())
	}
	row, err := c.row(ctx, command, 2)
	if err != nil {
		return 0, fmt.Errorf("create slot %s: %w", name, err)
	}
	return ParseLSN(row[1])
}

// row is the first row of a command's only result, at least n values of it.
func (c *Conn) row(ctx context.Context, command string, n int) ([]string, error) {
	results, err := c.conn.Exec(ctx, command).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) < n {
		return nil, errors.New("an answer of another shape")
	}
	var row []string
	for _, value := range results[0].Rows[0] {
		row = append(row, string(value))
	}
	return row, nil
}

// Start begins to stream a slot from its confirmed position, or from a later one. From then on only Next, Report and
// Close may be used. ErrActive: somebody else streams it.
func (c *Conn) Start(ctx context.Context, slot, publication string, from LSN) error {
	command := fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL %s (proto_version '1', publication_names %s, binary 'true', messages 'true')",
		pgx.Identifier{slot}.Sanitize(), from, quote(pgx.Identifier{publication}.Sanitize()))
	stop := context.AfterFunc(ctx, func() { _ = c.net.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	front := c.conn.Frontend()
	front.SendQuery(&pgproto3.Query{String: command})
	if err := front.Flush(); err != nil {
		return fmt.Errorf("stream slot %s: %w", slot, err)
	}
	for {
		message, err := front.Receive()
		if err != nil {
			return fmt.Errorf("stream slot %s: %w", slot, errors.Join(context.Cause(ctx), err))
		}
		switch m := message.(type) {
		case *pgproto3.CopyBothResponse:
			if !stop() {
				return fmt.Errorf("stream slot %s: %w", slot, context.Cause(ctx))
			}
			return nil
		case *pgproto3.ErrorResponse:
			err := pgconn.ErrorResponseToPgError(m)
			if err.Code == "55006" {
				return fmt.Errorf("stream slot %s: %w: %w", slot, ErrActive, err)
			}
			return fmt.Errorf("stream slot %s: %w", slot, err)
		}
	}
}

// ErrActive says that somebody else streams the slot.
var ErrActive = errors.New("the slot is in use")

func quote(text string) string {
	quoted := []byte{'\''}
	for i := range len(text) {
		if text[i] == '\'' {
			quoted = append(quoted, '\'')
		}
		quoted = append(quoted, text[i])
	}
	return string(append(quoted, '\''))
}

// Next waits for the next event. Skipped messages cost no event. One goroutine reads; Report and Close may be called by
// others meanwhile. Any error ends the stream.
func (c *Conn) Next() (Event, error) {
	front := c.conn.Frontend()
	for {
		message, err := front.Receive()
		if err != nil {
			return Event{}, fmt.Errorf("read the stream: %w", err)
		}
		switch m := message.(type) {
		case *pgproto3.CopyData:
			e, told, err := c.copied(m.Data)
			if err != nil || told {
				return e, err
			}
		case *pgproto3.ErrorResponse:
			return Event{}, fmt.Errorf("read the stream: %w", pgconn.ErrorResponseToPgError(m))
		case *pgproto3.CopyDone:
			return Event{}, errors.New("read the stream: the server has ended it")
		}
	}
}

// Buffered says whether Next has something without asking the network.
func (c *Conn) Buffered() bool { return c.in.Buffered() > 0 || c.conn.Frontend().ReadBufferLen() > 0 }

func (c *Conn) copied(data []byte) (e Event, told bool, err error) {
	const head = 25 // of a message with WAL: kind, start, end, time
	switch {
	case len(data) > head && data[0] == 'w':
		return c.decoder.Decode(data[head:])
	case len(data) == 18 && data[0] == 'k':
		return Event{Kind: Keepalive, LSN: LSN(binary.BigEndian.Uint64(data[1:])), ReplyNow: data[17] != 0}, true, nil
	}
	return e, false, fmt.Errorf("read the stream: a message of %d bytes that is neither WAL nor a keepalive", len(data))
}

// Report tells the server that everything up to flushed is done with: it may be forgotten.
func (c *Conn) Report(flushed LSN) error {
	const size = 1 + 4 + 34
	var m [size]byte
	m[0] = 'd'
	binary.BigEndian.PutUint32(m[1:], size-1)
	m[5] = 'r'
	for place := 6; place < 30; place += 8 { // written, flushed, applied
		binary.BigEndian.PutUint64(m[place:], uint64(flushed))
	}
	binary.BigEndian.PutUint64(m[30:], uint64(time.Since(epoch).Microseconds()))
	c.out.Lock()
	defer c.out.Unlock()
	_ = c.net.SetWriteDeadline(time.Now().Add(Timeout))
	if _, err := c.net.Write(m[:]); err != nil {
		return fmt.Errorf("report to the server: %w", err)
	}
	return nil
}
