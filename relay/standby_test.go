//go:build unix

package relay_test

import (
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

func TestOfTwoRelaysOneIsActive(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.config()
	cfg.Lease = time.Hour // a released lease is taken at once, not when it would have expired
	cfg.Holder = "first"
	first := s.start(cfg)
	waitRole(t, first, relay.Active)
	cfg.Holder = "second"
	second := s.start(cfg)
	waitRole(t, second, relay.Standby)
	require.NoError(t, second.Ready(), "a healthy standby is ready")
	require.Equal(t, "first", second.Status().Leader)

	committed := s.fill(s.topic, 10, 50)
	judge(s.collect(500, s.topic), committed).requireSound(t)
	require.Zero(t, second.Status().Published)

	require.NoError(t, first.stop())
	waitRole(t, second, relay.Active)
	require.EqualValues(t, 2, second.Status().Term)
}

func TestAStandbyTakesOverFromAKilledRelayWithinTheLease(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const lease = 3 * time.Second
	victim := s.spawn(childConfig{Holder: "victim", Batch: 100, Lease: lease})
	s.waitLeader("victim")
	cfg := s.config()
	cfg.Lease, cfg.Holder = lease, "heir"
	heir := s.start(cfg)
	waitRole(t, heir, relay.Standby)
	victim.signal(syscall.SIGKILL)
	victim.wait(waitLimit)
	waitRole(t, heir, relay.Active)
	s.insert(s.topic, "k", "0")
	s.collect(1, s.topic)
}

// A frozen relay wakes up after its lease: the records that it sends then are repeats by id, and it deletes no row of the new
// term.
func TestARelayThatWasFrozenOnlyRepeats(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	committed := s.fill(s.topic, 10, 400)
	// It freezes itself, with most rows left and 20 claimed.
	frozen := s.spawn(childConfig{
		Holder: "frozen", Batch: 20, Lease: 2 * time.Second, KillAt: "before send", KillNth: 12, Freeze: true,
	})
	testkit.Wait(t, "some rows gone", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.outbox") < 3900, nil })

	cfg := s.config()
	cfg.Holder = "heir"
	heir := s.start(cfg)
	waitRole(t, heir, relay.Active)
	frozen.signal(syscall.SIGCONT)
	for key := range committed { // rows of the new term, until the other relay notices
		for range 20 {
			s.insert(s.topic, key, strconv.Itoa(committed[key]))
			committed[key]++
		}
	}
	v := judge(s.collect(4200, s.topic), committed)
	v.requireSound(t)
	require.LessOrEqual(t, v.repeated, 20, "no more than the one send")
	require.Equal(t, relay.Active, heir.Status().Role, "the lease stays where it is")
	frozen.signal(syscall.SIGTERM)
	require.Equal(t, 0, frozen.wait(waitLimit).ExitStatus())
}

// Each ends with 0 within 15 s of SIGTERM: an active relay, a standby, and one that can reach no server.
func TestARelayEndsWhenItIsAskedTo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		prepare func(s *stage) *process
	}{
		{"active, under load", func(s *stage) *process {
			s.fill(s.topic, 10, 5000)
			p := s.spawn(childConfig{Holder: "p", Batch: 50})
			testkit.Wait(s.t, "rows going out", func() (bool, error) { return s.count("SELECT count(*) FROM troupe.outbox") < 49_000, nil })
			return p
		}},
		{"standby", func(s *stage) *process {
			leader := s.start(s.config())
			waitRole(s.t, leader, relay.Active)
			p := s.spawn(childConfig{Holder: "p", Batch: 50})
			testkit.Wait(s.t, "a listening standby", func() (bool, error) {
				return s.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN \"troupe_relay\"%'") == 1, nil
			})
			return p
		}},
		{"the broker is away", func(s *stage) *process {
			s.fill(s.topic, 10, 10)
			s.brokers = []string{"127.0.0.1:1"}
			p := s.spawn(childConfig{Holder: "p", Batch: 50})
			s.waitLeader("p")
			return p
		}},
		{"the broker does not answer", func(s *stage) *process {
			s.fill(s.topic, 10, 10)
			silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never responds
			require.NoError(s.t, err)
			s.t.Cleanup(func() { _ = silent.Close() })
			s.brokers = []string{silent.Addr().String()}
			p := s.spawn(childConfig{Holder: "p", Batch: 50})
			s.waitLeader("p")
			return p
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			p := c.prepare(s)
			began := time.Now()
			p.signal(syscall.SIGTERM)
			require.Equal(t, 0, p.wait(15*time.Second).ExitStatus())
			took := time.Since(began)
			t.Logf("ended after %s", took.Round(time.Millisecond))
			require.Less(t, took, 5*time.Second, "nothing is in flight that would be worth waiting for")
			require.Zero(t, s.count("SELECT count(*) FROM troupe.relay_leases WHERE holder = 'p' AND expires_at > clock_timestamp()"))
		})
	}
}

func TestARelayEndsWhenItIsAskedToWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		atAcks bool // the database becomes unavailable between acknowledgement and delete
	}{{"idle", false}, {"with rows to delete", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			wire := &wire{}
			cfg := s.config()
			cfg.Pool = wire.pool(t, s.pool)
			cfg.Drain = 2 * time.Second // which it waits for the rows; more than the default would not be let through
			if c.atAcks {
				cfg.Hooks.Acked = func(int, time.Duration) { wire.cut() }
			}
			r := s.start(cfg)
			waitRole(t, r, relay.Active)
			if c.atAcks {
				s.insert(s.topic, "k", "0")
			} else {
				wire.cut()
			}
			testkit.Wait(t, "the relay to notice", func() (bool, error) { return r.Status().LastError != "", nil })
			began := time.Now()
			require.NoError(t, r.stop())
			require.Less(t, time.Since(began), waitLimit)
		})
	}
}
