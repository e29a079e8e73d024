package participant_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// network dials a server, and can be cut.
type network struct {
	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

var errCut = errors.New("the network is cut")

func (n *network) dial(ctx context.Context, kind, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return nil, &net.OpError{Op: "dial", Net: kind, Err: errCut}
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, kind, address)
	if err == nil {
		if n.conns == nil {
			n.conns = make(map[net.Conn]bool)
		}
		n.conns[conn] = true
	}
	return conn, err
}

func (n *network) set(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
	for conn := range n.conns {
		_ = conn.Close()
	}
	n.conns = nil
}

// mend ends a cut.
func (n *network) mend() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = false
}

// through returns a pool to the stage's database through n.
func (s *stage) through(n *network) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(s.pool.Config().ConnString())
	require.NoError(s.t, err)
	config.ConnConfig.DialFunc = n.dial
	pool, err := pgxpool.NewWithConfig(s.t.Context(), config)
	require.NoError(s.t, err)
	s.t.Cleanup(pool.Close)
	return pool
}

// onlyOnce makes a dead letter of the first attempt that counts.
func onlyOnce(c *participant.Config) { c.Retry.Attempts = 1 }

func TestADatabaseThatIsAwayBurnsNoAttempts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var way network
	pool := s.through(&way)
	p := s.new(onlyOnce, func(c *participant.Config) { c.Pool = pool })
	participant.Handle(p, count)
	s.start(p)
	for round := range 4 {
		s.send(s.commands(3, 10)[round*6 : round*6+6]...)
		if round == 0 {
			s.waitCount(6, "SELECT count(*) FROM done")
		}
		way.set(true)
		s.send(s.command("extra", Count{N: round + 1}))
		waitUnready(t, p, "waits for the database")
		way.set(false)
		testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, nil })
	}
	s.waitCount(28, "SELECT count(*) FROM done")
	require.Equal(t, 28, s.count("SELECT sum(total) FROM counters"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
}

// waitUnready waits until Ready gives why as a reason. Before, it may give another one.
func waitUnready(t *testing.T, p *participant.Participant, why string) {
	t.Helper()
	testkit.Wait(t, "not ready: "+why, func() (bool, error) {
		err := p.Ready()
		return err != nil && strings.Contains(err.Error(), why), nil
	})
}

// TestTerminatedBackendsBurnNoAttempts kills connections in the middle of handlers, between them, and at commits.
func TestTerminatedBackendsBurnNoAttempts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var way network
	pool := s.through(&way) // so that the killer's own connection is another pool's
	config := pool.Config()
	config.ConnConfig.RuntimeParams["application_name"] = "victim"
	victims, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(victims.Close)
	p := s.new(onlyOnce, func(c *participant.Config) { c.Pool = victims })
	participant.Handle(p, count)
	s.start(p)
	const keys, each = 10, 60
	killed, sent := 0, 0
	for some := range slices.Chunk(s.commands(keys, each), 20) {
		s.send(some...)
		waitFor(t, "some more done", func() bool { return s.count("SELECT count(*) FROM done") > sent })
		killed += s.count("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'victim' AND datname = current_database()")
		sent += len(some)
		// A message that loses its connection again and again fails, and that counts.
		waitFor(t, "all done", func() bool { return s.count("SELECT count(*) FROM done") == sent })
	}
	s.expectAll(keys, each)
	require.Greater(t, killed, 5)
}

func TestABrokerThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var way network
	var log safeBuffer
	p := s.new(onlyOnce, func(c *participant.Config) { c.Kafka, c.Log = append(c.Kafka, kgo.Dialer(way.dial)), zerolog.New(&log) })
	participant.Handle(p, count)
	way.set(true)
	s.start(p) // it need not be there at the start
	testkit.Wait(t, "not ready", func() (bool, error) { return p.Ready() != nil, nil })
	way.set(false)
	commands := s.commands(3, 10)
	s.send(commands[:15]...)
	s.waitCount(15, "SELECT count(*) FROM done")
	way.set(true)
	s.send(commands[15:]...)
	testkit.Wait(t, "not ready", func() (bool, error) { return p.Ready() != nil, nil })
	said := func(text string) {
		testkit.Wait(t, text, func() (bool, error) { return strings.Contains(log.String(), text), nil })
	}
	said(`"message":"membership of the group failed"`)
	way.set(false)
	s.expectAll(3, 10)
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, nil })
	said(`"message":"membership of the group works again"`)
}

// TestTheEndDoesNotWaitForABroker checks that messages whose offsets are not committed are delivered again.
func TestTheEndDoesNotWaitForABroker(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var way network
	p := s.new(func(c *participant.Config) { c.Kafka = append(c.Kafka, kgo.Dialer(way.dial)) })
	participant.Handle(p, count)
	stop, ended := s.run(p)
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM done")
	way.set(true)
	stop()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(4 * time.Minute):
		t.Fatal("Run waits for the broker")
	}
}
