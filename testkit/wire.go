package testkit

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgproto3"
)

// wire sits between a pool and its server. It counts the steps of the transaction that handles one message, and closes the
// connection at one of them. Steps are counted in the bytes on the wire, not in calls of pgx: several statements may share one
// write. The transaction is recognised by the message's identity, which is in the inbox row that it inserts: steps count from the
// write on that sends the identity to the server. Other transactions of the participant do not count.
//
// A step is a statement that is about to be sent, or the arrival of the answer that reports its completion. Messages of the
// extended protocol that only prepare a statement (Parse, Bind, Describe), and Sync, are no steps: a connection that ends there
// leaves the server unchanged. Statements outside transactions do not count, nor do notifications.
type wire struct {
	mu    sync.Mutex
	at    int      // the step to close at; 0: none
	ids   [][]byte // the forms in which the message's id may be on the wire
	steps int      // counted since arm
	cut   string
}

// arm makes the nth step from now on the last one of its connection. An empty id matches every transaction.
func (w *wire) arm(n int, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at, w.ids, w.steps, w.cut = n, [][]byte{[]byte(id)}, 0, ""
	if u, err := uuid.Parse(id); err == nil {
		w.ids = append(w.ids, u[:])
	}
}

// names reports whether a write contains the id.
func (w *wire) names(b []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at > 0 && slices.ContainsFunc(w.ids, func(id []byte) bool { return bytes.Contains(b, id) })
}

// disarm returns the step at which a connection was closed; "" if at none.
func (w *wire) disarm() (cut string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = 0
	return w.cut
}

// step counts a step and reports whether it is the last.
func (w *wire) step(when, sql string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at == 0 || w.cut != "" {
		return false
	}
	w.steps++
	if w.steps < w.at {
		return false
	}
	w.cut = when + " " + title(sql)
	return true
}

// frontend implements pgconn.Config.BuildFrontend. It sees the protocol inside TLS.
func (w *wire) frontend(r io.Reader, to io.Writer) *pgproto3.Frontend {
	c := &connection{wire: w, from: r, to: to, prepared: make(map[string]string), bound: make(map[string]string)}
	return pgproto3.NewFrontend(readerFunc(c.read), writerFunc(c.write))
}

type (
	readerFunc func([]byte) (int, error)
	writerFunc func([]byte) (int, error)
)

func (f readerFunc) Read(b []byte) (int, error)  { return f(b) }
func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// connection follows one connection far enough to know which statement an answer belongs to, and whether a transaction is open.
// pgx may read on another goroutine while a write waits.
type connection struct {
	wire *wire
	from io.Reader
	to   io.Writer

	mu       sync.Mutex
	started  bool              // past the start-up, whose first message has no type
	closed   bool              // by this wire
	open     bool              // in a transaction, as far as was sent
	ours     bool              // the transaction handles the message
	prepared map[string]string // name → SQL
	bound    map[string]string // portal → SQL
	pending  []pending         // sent, not answered

	header []byte // of the answer being read
	body   int    // its bytes that are still to come
}

// pending is a statement without an answer yet, or a Sync, after which the server reports that it is ready.
type pending struct {
	sql     string
	sync    bool
	counted bool
}

// write sends b up to the message before which the connection must end.
func (c *connection) write(b []byte) (int, error) {
	keep, cut := c.sending(b)
	n, err := c.to.Write(b[:keep])
	if !cut {
		return n, err
	}
	c.close()
	return n, &net.OpError{Op: "write", Net: "tcp", Err: net.ErrClosed}
}

// read returns received bytes up to the message that must not arrive.
func (c *connection) read(b []byte) (int, error) {
	if c.isClosed() {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.from.Read(b)
	keep, cut := c.receiving(b[:n])
	if !cut {
		return n, err
	}
	c.close()
	if keep == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	return keep, nil
}

func (c *connection) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func (c *connection) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	if conn, ok := c.to.(io.Closer); ok {
		_ = conn.Close() // the error does not matter: the connection is cut on purpose
	}
}

// sending parses the bytes that are about to be sent: whole messages, as pgproto3 writes them.
func (c *connection) sending(b []byte) (keep int, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		return len(b), false
	}
	c.ours = c.ours || c.wire.names(b)
	for at := 0; at+5 <= len(b); {
		end := min(at+1+int(binary.BigEndian.Uint32(b[at+1:])), len(b))
		if c.message(b[at], b[at+5:end]) {
			return at, true
		}
		at = end
	}
	return len(b), false
}

// message follows one message to the server, and reports whether the connection must end before it.
func (c *connection) message(kind byte, body []byte) (cut bool) {
	first, rest, _ := bytes.Cut(body, []byte{0})
	second, _, _ := bytes.Cut(rest, []byte{0})
	switch kind {
	case 'P': // Parse: name, SQL
		c.prepared[string(first)] = string(second)
	case 'B': // Bind: portal, name
		c.bound[string(first)] = c.prepared[string(second)]
	case 'E': // Execute: portal
		return c.statement(c.bound[string(first)])
	case 'Q': // Query: SQL
		if c.statement(string(first)) {
			return true
		}
		c.pending = append(c.pending, pending{sync: true})
	case 'S': // Sync
		c.pending = append(c.pending, pending{sync: true})
	}
	return false
}

func (c *connection) statement(sql string) (cut bool) {
	if begins(sql) {
		c.open = true
	}
	counted := c.open && c.ours && !notifies(sql)
	if counted && c.wire.step("before", sql) {
		return true
	}
	c.pending = append(c.pending, pending{sql: sql, counted: counted})
	return false
}

// receiving parses received bytes, in any pieces, and returns where they must end.
func (c *connection) receiving(b []byte) (keep int, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := 0; at < len(b); {
		if c.body > 0 {
			n := min(c.body, len(b)-at)
			if c.header[0] == 'Z' { // ReadyForQuery: the one byte is the transaction's state
				c.ready(b[at])
			}
			c.body -= n
			at += n
			if c.body == 0 {
				c.header = c.header[:0]
			}
			continue
		}
		if len(c.header) == 0 && b[at] == 'C' && c.answer() { // CommandComplete
			return at, true
		}
		c.header = append(c.header, b[at])
		at++
		if len(c.header) == 5 {
			c.body = int(binary.BigEndian.Uint32(c.header[1:])) - 4
			if c.body == 0 {
				c.header = c.header[:0]
			}
		}
	}
	return len(b), false
}

// answer removes the statement that is done, and reports whether its answer must not arrive.
func (c *connection) answer() (cut bool) {
	if len(c.pending) == 0 || c.pending[0].sync {
		return false // a further statement of one Query
	}
	done := c.pending[0]
	c.pending = c.pending[1:]
	return done.counted && c.wire.step("after", done.sql)
}

// ready removes everything before a Sync: after an error the server skips all messages up to it.
func (c *connection) ready(state byte) {
	c.started = true
	for len(c.pending) > 0 {
		done := c.pending[0]
		c.pending = c.pending[1:]
		if done.sync {
			break
		}
	}
	c.open = state != 'I'
	for _, p := range c.pending {
		c.open = c.open || begins(p.sql)
	}
	c.ours = c.ours && c.open
}

func begins(sql string) bool {
	word, _, _ := strings.Cut(strings.TrimSpace(sql), " ")
	return strings.EqualFold(strings.TrimRight(word, ";"), "begin") || strings.EqualFold(word, "start")
}

// notifies reports whether a statement is the outbox's notification to its relay. The clock decides whether that is sent, so if
// it were counted, the nth step would differ from run to run.
func notifies(sql string) bool { return strings.HasPrefix(sql, "SELECT pg_notify(") }

// title returns a statement for a test's log: its first words, without comments before it, on one line.
func title(sql string) string {
	const limit = 60
	for strings.HasPrefix(sql, "--") {
		_, sql, _ = strings.Cut(sql, "\n")
	}
	line := []rune(strings.Join(strings.Fields(sql), " "))
	if len(line) > limit {
		return string(line[:limit]) + "…"
	}
	return string(line)
}
