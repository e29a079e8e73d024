package relay_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// A wire is a proxy to a server. It can be cut, which ends every connection and accepts no new one, and restored.
type wire struct {
	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("the wire is cut")}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		w.conns = append(w.conns, conn)
	}
	return conn, err
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for _, conn := range w.conns {
		_ = conn.Close()
	}
	w.conns = nil
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

// pool returns a pool to the same database over the wire.
func (w *wire) pool(t testing.TB, to *pgxpool.Pool) *pgxpool.Pool {
	config := to.Config()
	config.ConnConfig.DialFunc = w.dial
	config.ConnConfig.RuntimeParams["application_name"] = "relay"
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// No attempt is counted and no row is parked, Ready returns the reason, and the relay continues by itself.
func TestABrokerThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		known bool // the client has sent to the topic before
	}{{"from the start", false}, {"in between", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			wire := &wire{}
			cfg := s.config()
			cfg.Kafka, cfg.Lease = []kgo.Opt{kgo.Dialer(wire.dial)}, 3*time.Second
			cfg.Hooks.PublishFailed = func(failure relay.PublishFailure) { t.Errorf("%+v", failure) }
			if !c.known {
				wire.cut()
			}
			r := s.start(cfg)
			committed := make(map[string]int)
			if c.known {
				s.insert(s.topic, "before", "0")
				s.waitEmpty()
				committed["before"] = 1
				wire.cut()
			}
			for key, n := range s.fill(s.topic, 10, 20) {
				committed[key] = n
			}
			var reason error
			testkit.Wait(t, "readiness to say so", func() (bool, error) {
				reason = r.Ready()
				return reason != nil && strings.Contains(reason.Error(), "the wire is cut"), nil
			})
			require.Equal(t, relay.Active, r.Status().Role, "the lease is kept")
			require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox_failures"))
			// A stream leaves the first row where it is.
			require.Equal(t, 200, s.count("SELECT count(*) FROM troupe.outbox WHERE key <> 'before'"))

			wire.mend()
			judge(s.collect(total(committed), s.topic), committed).requireSound(t)
			testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, nil })
			require.EqualValues(t, 1, r.Status().Term)
		})
	}
}

// Connections are cut under load: no row is lost or reordered, and the relay continues with the lease that it has.
func TestConnectionsToTheDatabaseThatAreCutAreReplaced(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.config()
	cfg.Pool, cfg.Batch = (&wire{}).pool(t, s.pool), 20
	r := s.start(cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	loaded := make(chan map[string]int)
	go func() { loaded <- s.load(ctx, 4, 5) }()
	cuts := 0
	for ; ctx.Err() == nil; cuts++ {
		published := r.Status().Published
		testkit.Wait(t, "progress", func() (bool, error) { return ctx.Err() != nil || r.Status().Published > published+100, nil })
		s.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'relay'`)
	}
	committed := <-loaded
	v := judge(s.collect(total(committed), s.topic), committed)
	t.Logf("%d rows, %d cuts", total(committed), cuts)
	v.requireSound(t)
}

// The database is unavailable for longer than the lease: the term ends, and another begins when it is available again.
func TestADatabaseThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	wire := &wire{}
	cfg := s.config()
	cfg.Pool, cfg.Lease = wire.pool(t, s.pool), time.Second
	lost := make(chan error, 1)
	cfg.Hooks.Standing = func(cause error) {
		select {
		case lost <- cause:
		default:
		}
	}
	r := s.start(cfg)
	committed := s.fill(s.topic, 10, 20)
	s.waitEmpty()
	wire.cut()
	require.ErrorContains(t, <-lost, "the lease is lost")
	s.insert(s.topic, "k1", "20")
	committed["k1"]++
	testkit.Wait(t, "readiness to say so", func() (bool, error) {
		err := r.Ready()
		return err != nil && strings.Contains(err.Error(), "the wire is cut"), nil
	})
	wire.mend()
	judge(s.collect(total(committed), s.topic), committed).requireSound(t)
	testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, nil })
	require.Greater(t, r.Status().Term, int64(1))
}

// A transaction is published in part when the broker becomes unavailable, and Drain ends before it returns. The client still
// holds records in flight: rows rendered into the same memory would be sent in their place.
func TestAStopThatGivesUpLeavesAloneWhatIsInFlight(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s := newStage(t)
	wire := &wire{}
	var sends, acks atomic.Int64
	cfg := s.wal()
	cfg.Delivery, cfg.Drain = relay.AtLeastOnce, 100*time.Millisecond
	cfg.Kafka = []kgo.Opt{kgo.Dialer(wire.dial)}
	cfg.Hooks.BeforeSend = func(int) { sends.Add(1) }
	cfg.Hooks.Acked = func(int, time.Duration) {
		if acks.Add(1) == 1 { // of one row: the first row to a topic is sent alone
			wire.cut()
		}
	}
	r := s.start(cfg)
	s.waitStream()
	s.fill(s.topic, 1, 2000) // one transaction
	testkit.Wait(t, "rows in flight behind others", func() (bool, error) {
		return acks.Load() == 1 && r.Status().InFlight > 0, nil
	})
	before := sends.Load()
	require.NoError(t, r.stop())
	require.Equal(t, before, sends.Load())
}

// When it is stopped while rows are in flight to an unavailable broker, the relay waits as long as Drain and no longer,
// releases the lease, and the rows stay.
func TestAStopWaitsForAcknowledgementsOnlyAsLongAsDrain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	wire := &wire{}
	cfg := s.config()
	cfg.Kafka, cfg.Drain = []kgo.Opt{kgo.Dialer(wire.dial)}, 700*time.Millisecond
	r := s.start(cfg)
	s.insert(s.topic, "k", "0")
	s.waitEmpty()
	wire.cut()
	s.insert(s.topic, "k", "1")
	testkit.Wait(t, "a row in flight", func() (bool, error) { return r.Status().InFlight == 1, nil })
	began := time.Now()
	require.NoError(t, r.stop())
	took := time.Since(began)
	require.GreaterOrEqual(t, took, cfg.Drain)
	require.Less(t, took, cfg.Drain+time.Minute)
	require.Contains(t, r.Status().LastError, "not drained within 700ms")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.relay_leases WHERE expires_at > clock_timestamp()"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox"))

	wire.mend()
	s.start(s.config())
	judge(s.collect(2, s.topic), map[string]int{"k": 2}).requireSound(t)
}

// A server that shuts down waits until its streaming clients have confirmed everything. Without a broker the relay cannot do that, and
// once its buffers are full it does not even read.
func TestAServerStopsAlthoughTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, rows := range []int{1, 100} {
		t.Run(fmt.Sprint(100*rows, " rows"), func(t *testing.T) {
			t.Parallel()
			s, server := newServer(t, nil)
			wire := &wire{}
			cfg := s.wal()
			cfg.Kafka = []kgo.Opt{kgo.Dialer(wire.dial)}
			r := s.start(cfg)
			s.waitStream()
			wire.cut()
			committed := s.fill(s.topic, 100, rows)
			testkit.Wait(t, "the rows to be read", func() (bool, error) { return r.Status().Claimed > 0, nil })
			require.NoError(t, server.Stop(t.Context()))
			require.NoError(t, server.Start(t.Context()))
			wire.mend()
			testkit.Wait(t, "an answer", func() (bool, error) { return s.pool.Ping(t.Context()) == nil, nil })
			judge(s.gather(total(committed), s.topic), committed).requireSound(t)
			require.EqualValues(t, 1, r.Status().Term, "the server waited until the relay had lost its lease")
			require.NoError(t, r.stop())
		})
	}
}
