package participant_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// changing returns a participant with Local or with Brokers, of one group, whose commands fail until works is true.
func (s *stage) changing(local bool, works *atomic.Bool) *participant.Participant {
	p := s.new(onePartition, holdLong, func(c *participant.Config) {
		if c.Local = local; local {
			c.Brokers = nil
		}
	})
	participant.OnDeadline(p, overdueName, overdue)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if works.Load() {
			c.Body.Fail = ""
		}
		return count(ctx, tx, c)
	})
	return p
}

// strands waits until p reports messages that it does not handle.
func (s *stage) strands(p *participant.Participant, want participant.Stranded) {
	s.t.Helper()
	testkit.Wait(s.t, "stranded messages", func() (bool, error) { return len(p.Stats().Stranded) > 0, nil })
	require.Equal(s.t, []participant.Stranded{want}, p.Stats().Stranded)
}

func (s *stage) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
}

func (s *stage) redriveAll() {
	s.t.Helper()
	desk, err := repair.New(repair.Config{Pool: s.pool})
	require.NoError(s.t, err)
	r, err := desk.Redrive(s.t.Context(), repair.Filter{}, repair.RedriveConfig{By: admin.Actor{Name: "ann", Reason: "test"}, Rate: -1})
	require.NoError(s.t, err)
	require.Equal(s.t, 1, r.Redriven)
}

// TestAHopThatBecomesLocalLosesNothing checks its held messages, deadlines and dead letters. The held messages wait for a
// participant with Brokers, as the local one reports.
func TestAHopThatBecomesLocalLosesNothing(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	var works atomic.Bool
	before := s.changing(false, &works)
	stop := s.start(before)
	s.send(s.command("a", Count{N: 1, Fail: "error"}), s.command("a", Count{N: 2}), s.command("b", Count{N: 3, Fail: "permanent"}))
	require.NoError(t, s.schedule(before, participant.Deadline{Name: overdueName, Key: "c", After: time.Hour, Body: Overdue{N: 4}}))
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
	stop()

	works.Store(true)
	s.exec("UPDATE troupe.held SET next_try = now() - interval '1 hour' WHERE attempts > 0")
	local := s.changing(true, &works)
	s.start(local)
	s.strands(local, participant.Stranded{Topic: s.hop.Commands(), Messages: 2})
	s.exec("UPDATE troupe.deadlines SET due_at = now()")
	s.waitCount(1, "SELECT count(*) FROM met WHERE n = 4")
	s.redriveAll()
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 3")

	s.start(s.changing(false, &works)) // together with the local one
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 2")
	require.Equal(t, []string{"a 1", "a 2", "b 3"}, s.effects())
	require.Zero(t, s.count("SELECT count(*) FROM troupe.held"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.deadlines"))
}

// TestALocalHopThatGoesBackToKafkaLosesNothing checks its entries that wait, deadlines and dead letters. The entries wait until
// the topic is given back, as the participant with Brokers reports.
func TestALocalHopThatGoesBackToKafkaLosesNothing(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	var works atomic.Bool
	local := s.changing(true, &works)
	stop := s.start(local)
	testkit.Wait(t, "ready", func() (bool, error) { return local.Ready() == nil, local.Ready() })
	s.write("a", Count{N: 1, Fail: "error"}, Count{N: 2})
	s.write("b", Count{N: 3, Fail: "permanent"})
	require.NoError(t, s.schedule(local, participant.Deadline{Name: overdueName, Key: "c", After: time.Hour, Body: Overdue{N: 4}}))
	s.waitCount(1, "SELECT count(*) FROM troupe.local_work WHERE status = 'pending' AND attempts > 0")
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
	stop()

	works.Store(true)
	s.exec("UPDATE troupe.local_work SET next_try = now() - interval '1 hour' WHERE attempts > 0 AND ended_at IS NULL")
	after := s.changing(false, &works)
	s.start(after)
	s.strands(after, participant.Stranded{Topic: s.hop.Commands(), Partition: -1, Messages: 1})
	s.exec("SELECT troupe.end_local($1)", s.hop.Commands())
	s.exec("UPDATE troupe.deadlines SET due_at = now()")
	s.redriveAll()
	s.relayed()
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 2")
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 3")
	s.waitCount(1, "SELECT count(*) FROM met WHERE n = 4")
	require.Equal(t, []string{"a 1", "a 2", "b 3"}, s.effects())
	require.Zero(t, s.count("SELECT count(*) FROM troupe.deadlines"))
}

// effects returns the key and number of each effect, by key and in order.
func (s *stage) effects() []string {
	s.t.Helper()
	rows, err := s.pool.Query(s.t.Context(), "SELECT key || ' ' || n FROM done ORDER BY key, position")
	require.NoError(s.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s.t, err)
	return all
}

// TestHeldMessagesWhoseFirstOneEndedAreReportedToo has an operator release the first message of a key after the hop has become local. No member
// tries the later ones, which have no next try.
func TestHeldMessagesWhoseFirstOneEndedAreReportedToo(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	var works atomic.Bool
	before := s.changing(false, &works)
	stop := s.start(before)
	s.send(s.command("a", Count{N: 1, Fail: "error"}), s.command("a", Count{N: 2}))
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	stop()

	desk, err := repair.New(repair.Config{Pool: s.pool})
	require.NoError(t, err)
	released, err := desk.Release(t.Context(), repair.Place{Topic: s.hop.Commands()}, repair.ReleaseConfig{By: admin.Actor{Name: "ann", Reason: "test"}})
	require.NoError(t, err)
	require.Equal(t, 1, released.Behind)
	s.exec("UPDATE troupe.leases SET released_at = now() - interval '1 hour'")
	local := s.changing(true, &works)
	s.start(local)
	s.strands(local, participant.Stranded{Topic: s.hop.Commands(), Messages: 1})

	// A role with no more than its rights can read all of it.
	role := grantstest.New(t, s.pool, grants.LocalWork)
	_, err = role.Pool().Exec(t.Context(), participant.StrandedTopics, pgx.NamedArgs{"group": s.hop.String()})
	require.NoError(t, err)
}
