package participant_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/participant"
)

// state lists the tables that a set back database has as they were.
var state = []string{
	"public.done", "troupe.outbox", "troupe.leases", "troupe.inbox", "troupe.inbox_recent", "troupe.inbox_offsets", "troupe.held",
	"troupe.deadlines", "troupe.rebuilds", "troupe.rebuild_partitions",
}

// save keeps the state of the database. The returned function sets it back. No member runs meanwhile.
func (s *projection) save() (restore func()) {
	s.t.Helper()
	saved := fmt.Sprintf("saved_%d", time.Now().UnixNano())
	exec := func(tx pgx.Tx, sql string) {
		_, err := tx.Exec(s.t.Context(), sql)
		require.NoError(s.t, err, sql)
	}
	each := func(statements string) {
		require.NoError(s.t, pgx.BeginFunc(s.t.Context(), s.pool, func(tx pgx.Tx) error {
			exec(tx, "SET LOCAL session_replication_role = replica")
			exec(tx, "CREATE SCHEMA IF NOT EXISTS "+saved)
			for _, table := range state {
				_, name, _ := strings.Cut(table, ".")
				exec(tx, fmt.Sprintf(statements, table, saved+"."+name))
			}
			return nil
		}))
	}
	each("CREATE TABLE %[2]s AS TABLE %[1]s")
	return func() {
		s.t.Helper()
		each("DELETE FROM %[1]s; INSERT INTO %[1]s OVERRIDING SYSTEM VALUE TABLE %[2]s")
	}
}

// TestARebuildWhoseDatabaseIsSetBack stops the members once a rebuild has finished, and sets the database back, as a restore does: to before
// the rebuild was started, to before it began, or to when it had handled a part. Kafka keeps the offsets that the members have committed.
// Each event has its effect once in the rebuild that the database has, in order, and events that came meanwhile have theirs after it.
func TestARebuildWhoseDatabaseIsSetBack(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]int{"to before its start": 0, "to before it began": 1, "to when it ran": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProjection(t, 1)
			var hangs atomic.Bool
			serve := func() (stop func()) {
				p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Drain = 5, 100*time.Millisecond })
				participant.On(p, s.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
					if hangs.Load() && e.Body.N == 7 {
						<-ctx.Done()
						return ctx.Err()
					}
					return project(ctx, tx, p, string(e.Message.Key), e.Body.N)
				})
				participant.OnDeadline(p, "late", func(context.Context, pgx.Tx, participant.Due[Paid]) error { return nil })
				return s.start(p)
			}
			const keys, each, more = 3, 10, 4
			var restore [3]func()
			stop := serve()
			s.send(s.events(0, keys, each)...)
			s.waitCount(keys*each, "SELECT count(*) FROM done")
			stop()
			_, err := s.pool.Exec(t.Context(), forget)
			require.NoError(t, err)
			restore[0] = s.save()
			s.clear()
			id := s.rebuild(1, false)
			restore[1] = s.save()
			hangs.Store(true)
			stop = serve()
			s.waitCount(keys*7, "SELECT count(*) FROM done")
			stop()
			hangs.Store(false)
			restore[2] = s.save()
			stop = serve()
			s.send(s.events(each, keys, more)...)
			s.waitFinished(id)
			s.waitCount(keys*(each+more), "SELECT count(*) FROM done")
			stop()

			restore[to]()
			serve()
			s.waitCount(keys*(each+more), "SELECT count(*) FROM done")
			s.send(s.event("k-0", Paid{N: each + more}))
			s.waitCount(keys*(each+more)+1, "SELECT count(*) FROM done")
			s.waitCount(0, "SELECT count(*) FROM troupe.rebuilds WHERE finished_at IS NULL")
			want := map[string][]int{"k-0": upTo(each + more + 1), "k-1": upTo(each + more), "k-2": upTo(each + more)}
			require.Equal(t, want, s.lines())
			written := 2 * (keys*more + 1)
			if to == 0 {
				written += 2 * keys * each
			}
			require.Equal(t, written, s.count("SELECT count(*) FROM troupe.outbox"))
		})
	}
}

// TestARedrivenMessageOfARebuildThatTheDatabaseHasLost sets the database back to before a rebuild in which an event failed and was redriven. The
// database then has the event's effect, and Kafka still has the redriven message, which must have none.
func TestARedrivenMessageOfARebuildThatTheDatabaseHasLost(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	serve := func() (stop func()) { return s.start(s.participant(onePartition, onlyOnce)) }
	stop := serve()
	first := s.event("k-0", Paid{N: 0, Fail: "error"})
	s.send(first, s.event("k-0", Paid{N: 1}))
	s.waitCount(2, "SELECT count(*) FROM done")
	stop()
	restore := s.save()
	s.clear()
	s.broken.Store(true)
	id := s.rebuild(1, false)
	stop = serve()
	s.waitFinished(id)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE status = 'open' AND redrives = 65536"))
	s.broken.Store(false)
	s.send(s.redriven(first, 65537))
	s.waitCount(2, "SELECT count(*) FROM done")
	stop()

	restore()
	_, err := s.pool.Exec(t.Context(), "DELETE FROM troupe.dead_letters")
	require.NoError(t, err)
	serve()
	s.send(s.event("k-0", Paid{N: 2}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 2")
	require.Equal(t, upTo(3), s.lines()["k-0"])
	require.Equal(t, 6, s.count("SELECT count(*) FROM troupe.outbox"))
}

// TestARebuildWithEachGroupProtocol checks that two members begin and finish a rebuild, with members or the broker assigning partitions.
func TestARebuildWithEachGroupProtocol(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]func(member int) []kgo.Opt{
		"the members assign": func(int) []kgo.Opt { return nil },
		"static membership": func(member int) []kgo.Opt {
			return append(quick(), kgo.InstanceID(fmt.Sprintf("member-%d", member)))
		},
		"the broker assigns, KIP-848": func(int) []kgo.Opt {
			return []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProjection(t, 4)
			for n := range 2 {
				s.start(s.participant(func(c *participant.Config) { c.Kafka = append(c.Kafka, protocol(n)...) }))
			}
			const keys, each = 8, 6
			s.send(s.events(0, keys, each)...)
			s.waitCount(keys*each, "SELECT count(*) FROM done")
			s.clear()
			id := s.rebuild(1, false)
			s.send(s.events(each, keys, 2)...)
			s.waitFinished(id)
			s.waitAll("each event", keys*(each+2), func() int { return s.count("SELECT count(*) FROM (SELECT DISTINCT key, n FROM done) AS d") })
			for key, lines := range s.lines() { // an event that came before the rebuild began is in it, too
				require.Equal(t, upTo(each+2), lines[len(lines)-each-2:], key)
			}
			require.Equal(t, 2*keys*2, s.count("SELECT count(*) FROM troupe.outbox"))
		})
	}
}
