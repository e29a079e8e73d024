package participant_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/participant"
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
			participant.Handle(stays, count, opts...)
			s.start(stays)
			testkit.Wait(t, "ready", func() (bool, error) { return stays.Ready() == nil, nil })
			next := s.new(func(c *participant.Config) { c.Immediate = -1 })
			participant.Handle(next, func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
				return participant.Outcome{}, errAsked
			}, participant.RetryTopics(time.Second))
			stop := s.start(next)
			retryTopic := s.hop.Retry(time.Second)
			keys, sent := s.keys(6), 0
			testkit.Wait(t, "a message of the new version to fail", func() (bool, error) {
				for _, key := range keys {
					s.send(s.command(key, Count{N: sent}))
					sent++
				}
				return s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", retryTopic) > 0, nil
			})
			stop()
			s.publish(retryTopic, 1)
			s.waitCount(sent, "SELECT count(*) FROM done")
		})
	}
}
