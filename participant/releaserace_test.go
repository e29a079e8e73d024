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
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

var ann = admin.Actor{Name: "ann", Reason: "ticket 4711"}

func (s *stage) desk() *repair.Desk {
	s.t.Helper()
	d, err := repair.New(repair.Config{Pool: s.pool})
	require.NoError(s.t, err)
	return d
}

// heldPlace returns the place of the only held message.
func (s *stage) heldPlace() (p repair.Place) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), `SELECT topic, partition, "offset" FROM troupe.held`).Scan(&p.Topic, &p.Partition, &p.Offset))
	return p
}

// TestAReleaseWaitsForADuplicateThatRuns checks that a message without a key, of which the relay has sent a second copy, does
// not both take effect and become a dead letter.
func TestAReleaseWaitsForADuplicateThatRuns(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition, holdLong)
	var runs atomic.Int64
	inside, goOn := make(chan struct{}), make(chan struct{})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		switch runs.Add(1) {
		case 1:
			return participant.Outcome{}, errAsked
		case 2:
			close(inside)
			<-goOn
		}
		_, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt) VALUES ('none', 1, 1)")
		return participant.Succeed(Counted{}), err
	})
	s.start(p)
	m := s.command("", Count{N: 1})
	m.Key, m.IdempotencyKey = nil, ""
	s.send(m)
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
	s.send(m)
	<-inside
	place, released := s.heldPlace(), make(chan repair.ReleaseResult, 1)
	go func() {
		r, err := s.desk().Release(context.Background(), place, repair.ReleaseConfig{By: ann})
		must(err)
		released <- r
	}()
	testkit.Wait(t, "the release ends or waits for the run", func() (bool, error) {
		return len(released) > 0 || s.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0, nil
	})
	close(goOn)
	require.Zero(t, (<-released).DeadLetter, "the duplicate has taken effect")
	s.waitCount(1, "SELECT count(*) FROM done")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.held"))
}

// TestAReleaseOnARetryTopicIsKnownUnderTheFirstIdentity checks a message whose id is no UUID and whose source the relay added:
// the copy on the retry topic has another source than the message, and the identity of the message.
func TestAReleaseOnARetryTopicIsKnownUnderTheFirstIdentity(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	retryTopic := s.hop.Retry(time.Second)
	testkit.Topics(t, s.client, 1, retryTopic)
	m := s.command("a", Count{N: 1})
	m.ID, m.Source, m.IdempotencyKey = "4711", "", ""
	fails := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 })
	participant.Handle(fails, func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
		return participant.Outcome{}, errAsked
	}, participant.RetryTopics(time.Second))
	stop := s.start(fails)
	s.send(m)
	s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", retryTopic)
	stop()
	// a version without a handler for this type holds the copy
	old := s.new(onePartition, func(c *participant.Config) { c.UnknownTypeWait = time.Hour })
	participant.Handle(old, func(context.Context, pgx.Tx, participant.Command[Other]) (participant.Outcome, error) {
		return participant.Succeed(Counted{}), nil
	}, participant.RetryTopics(time.Second))
	stop = s.start(old)
	copies := s.entries(retryTopic)
	require.Len(t, copies, 1)
	require.Equal(t, 1, s.publish(retryTopic, 1))
	s.waitCount(1, "SELECT count(*) FROM troupe.held")
	r, err := s.desk().Release(t.Context(), s.heldPlace(), repair.ReleaseConfig{By: ann})
	require.NoError(t, err)
	require.NotZero(t, r.DeadLetter)
	stop()

	var passed atomic.Int64
	mends := s.new(onePartition, func(c *participant.Config) {
		c.Hooks.Passed = func(p participant.Passed) {
			if p.Reason == participant.Duplicate {
				passed.Add(1)
			}
		}
	})
	participant.Handle(mends, count, participant.RetryTopics(time.Second))
	s.start(mends)
	again := copies[0]
	again.Source = "payment"
	s.send(again) // the relay crashed before it deleted the row
	waitFor(t, "the copy ends", func() bool { return passed.Load() > 0 || s.count("SELECT count(*) FROM done") > 0 })
	require.Zero(t, s.count("SELECT count(*) FROM done"), "the message took effect, and its dead letter is open")
}
