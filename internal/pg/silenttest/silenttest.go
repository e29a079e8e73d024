// Package silenttest has connections to a database server that falls silent, for tests of time limits.
package silenttest

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// A Server falls silent like one whose host is cut off or hangs: it answers nothing more on a connection, and does not end the connection. The zero
// Server never does.
type Server struct {
	mu    sync.Mutex
	text  []byte // the connection on which it is sent next falls silent; nil: none does
	fell  int
	conns []*conn
}

// Pool returns a pool with the configuration of another one, whose connections may fall silent. Cleanup closes it.
func (s *Server) Pool(t testing.TB, like *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	cfg := like.Config()
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		hole, _ := net.Pipe()
		c := &conn{Conn: dialed, server: s, hole: hole}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns = append(s.conns, c)
		return c, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// At lets the next connection on which text is sent fall silent.
func (s *Server) At(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = []byte(text)
}

// Listeners lets all connections fall silent that listen for notifications.
func (s *Server) Listeners() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.listens.Load() {
			c.silent.Store(true)
		}
	}
}

// Fell returns how many connections have fallen silent at a text.
func (s *Server) Fell() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fell
}

type conn struct {
	net.Conn
	server          *Server
	hole            net.Conn // nothing comes from it
	silent, listens atomic.Bool
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.silent.Load() {
		return c.hole.Read(b)
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("LISTEN ")) {
		c.listens.Store(true)
	}
	s := c.server
	s.mu.Lock()
	if s.text != nil && bytes.Contains(b, s.text) {
		c.silent.Store(true)
		s.text = nil
		s.fell++
	}
	s.mu.Unlock()
	if c.silent.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.hole.SetDeadline(t)
	return c.Conn.SetDeadline(t)
}

func (c *conn) Close() error {
	_ = c.hole.Close()
	return c.Conn.Close()
}
