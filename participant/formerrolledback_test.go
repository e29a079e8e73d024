package participant_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
)

// TestMessagesOfAVersionThatWasRolledBackAreRetried checks members that run on while one of a new version comes, sends a message to a retry topic
// that only the new version has, and ends.
func TestMessagesOfAVersionThatWasRolledBackAreRetried(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]participant.HandlerOption{
		"another delay": {participant.RetryTopics(time.Hour)}, "no retry topics": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(6) // so that each member gets some, whatever it gets of the retry topics
			stays := s.new()
			stays.FormerAgain(retry.Policy{Initial: 100 * time.Millisecond, Cap: time.Second})
			participant.Handle(stays, count, opts...)
			sent := s.failsInNewVersion(stays)
			s.publish(s.hop.Retry(time.Second), 1)
			s.waitCount(sent, "SELECT count(*) FROM done")
		})
	}
}

// TestARetryTopicIsLeftToItsOnlyMemberThatRestarts checks that one look that finds no member of the topic is not enough to take it over.
func TestARetryTopicIsLeftToItsOnlyMemberThatRestarts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(6)
	var logged safeBuffer
	stays := s.new(func(c *participant.Config) { c.Log = zerolog.New(&logged) })
	stays.FormerAgain(retry.Policy{Initial: 100 * time.Millisecond, Cap: time.Hour})
	participant.Handle(stays, count)
	sent := s.failsInNewVersion(stays)
	testkit.Wait(t, "a look that finds no member", func() (bool, error) {
		return strings.Contains(logged.String(), "no member consumes these former retry topics"), nil
	})
	again := s.new()
	participant.Handle(again, count, participant.RetryTopics(time.Second))
	s.start(again)
	s.publish(s.hop.Retry(time.Second), 1)
	s.waitCount(sent, "SELECT count(*) FROM done")
	require.NotContains(t, logged.String(), "retry topics that no handler has any more are consumed")
}

// failsInNewVersion starts stays. Then it starts a member with another retry topic, and stops it when that has sent a message there. It returns the
// number of commands sent.
func (s *stage) failsInNewVersion(stays *participant.Participant) (sent int) {
	s.t.Helper()
	s.start(stays)
	testkit.Wait(s.t, "ready", func() (bool, error) { return stays.Ready() == nil, nil })
	next := s.new(func(c *participant.Config) { c.Immediate = -1 })
	participant.Handle(next, func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
		return participant.Outcome{}, errAsked
	}, participant.RetryTopics(time.Second))
	stop := s.start(next)
	keys := s.keys(6)
	testkit.Wait(s.t, "a message of the new version to fail", func() (bool, error) {
		for _, key := range keys {
			s.send(s.command(key, Count{N: sent}))
			sent++
		}
		return s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Retry(time.Second)) > 0, nil
	})
	stop()
	return sent
}
