package participant_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// silence dials a database server that falls silent, as one whose host is cut off or hangs: it answers nothing more on a connection, and does
// not end the connection.
type silence struct {
	mu    sync.Mutex
	text  []byte // the connection on which it is sent next falls silent
	fell  int
	conns []*silentConn
}

// pool returns a pool whose connections are w's.
func (w *silence) pool(s *stage) *pgxpool.Pool {
	cfg := s.pool.Config()
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, kind, address string) (net.Conn, error) {
		conn, err := dial(ctx, kind, address)
		if err != nil {
			return nil, err
		}
		hole, _ := net.Pipe()
		c := &silentConn{Conn: conn, way: w, hole: hole}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.conns = append(w.conns, c)
		return c, nil
	}
	pool, err := pgxpool.NewWithConfig(s.t.Context(), cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(pool.Close)
	return pool
}

// at lets the next connection on which text is sent fall silent.
func (w *silence) at(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = []byte(text)
}

// listeners lets all connections fall silent that listen for notifications.
func (w *silence) listeners() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		if c.listens.Load() {
			c.silent.Store(true)
		}
	}
}

type silentConn struct {
	net.Conn
	way             *silence
	hole            net.Conn // nothing comes from it
	silent, listens atomic.Bool
}

func (c *silentConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.silent.Load() {
		return c.hole.Read(b)
	}
	return n, err
}

func (c *silentConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("LISTEN ")) {
		c.listens.Store(true)
	}
	c.way.mu.Lock()
	if c.way.text != nil && bytes.Contains(b, c.way.text) {
		c.silent.Store(true)
		c.way.text = nil
		c.way.fell++
	}
	c.way.mu.Unlock()
	if c.silent.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *silentConn) SetDeadline(t time.Time) error {
	_ = c.hole.SetDeadline(t)
	return c.Conn.SetDeadline(t)
}

func (c *silentConn) Close() error {
	_ = c.hole.Close()
	return c.Conn.Close()
}

// TestAStatementWithoutAnAnswerIsTriedAgain lets the server fall silent at a statement that no handler waits for. Without a limit its partition,
// or its key, would wait for ever.
func TestAStatementWithoutAnAnswerIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"the lease of a partition":         "Raises the term by a random number",
		"the marks of a crashed owner":     "FROM troupe.started",
		"the held keys of a partition":     "SELECT DISTINCT ON (hold_key)",
		"the first messages of a held key": "Returns the first messages of a held",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			s.exec("INSERT INTO troupe.leases (consumer_group, topic, partition, owner) VALUES ($1, $2, 0, 'crashed')", s.hop.String(), s.hop.Commands())
			var way silence
			p := s.new(onePartition, func(c *participant.Config) { c.Pool = way.pool(s) })
			p.StatementLimit(time.Second)
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
				if c.Attempt == 1 {
					return participant.Outcome{}, errAsked
				}
				return count(ctx, tx, c)
			})
			way.at(text)
			s.start(p)
			s.send(s.command("a", Count{N: 1}))
			s.waitCount(1, "SELECT count(*) FROM done")
			way.mu.Lock()
			defer way.mu.Unlock()
			require.Equal(t, 1, way.fell)
		})
	}
}

// TestAMemberOfLocalWorkWhoseSessionEndedUnseenTakesAnotherNumber checks that the locks of a member are taken again on the server that its
// statements reach. Without them others would take it for dead, and its topics for unconsumed.
func TestAMemberOfLocalWorkWhoseSessionEndedUnseenTakesAnotherNumber(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	var way silence
	p := s.new(func(c *participant.Config) { c.Pool = way.pool(s) })
	participant.Handle(p, count)
	s.start(p)
	const locks = `FROM pg_locks
		WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid::bigint = $1 AND objsubid = 2`
	s.waitCount(1, "SELECT count(*) "+locks, participant.MemberClass)
	s.write("a", Count{N: 1})
	s.waitCount(1, "SELECT count(*) FROM done")

	former := s.count("SELECT objid::bigint "+locks, participant.MemberClass)
	way.listeners()
	require.Equal(t, 1, s.count("SELECT count(pg_terminate_backend(pid)) "+locks, participant.MemberClass))
	s.waitCount(1, "SELECT count(*) "+locks+" AND objid::bigint <> $2", participant.MemberClass, former)
	s.waitCount(1, "SELECT count(*) "+locks, participant.TopicClass)
	s.write("a", Count{N: 2})
	s.waitCount(2, "SELECT count(*) FROM done")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.local_work WHERE crashes > 0"))
}
