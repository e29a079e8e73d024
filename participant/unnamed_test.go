package participant_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
)

// unnamed returns a command of a program that writes neither ids nor idempotency keys.
func (s *stage) unnamed(key string, body Count) envelope.Message {
	m := s.command(key, body)
	m.ID, m.CorrelationID, m.IdempotencyKey = "", "", ""
	return m
}

// cutLog removes the messages of the commands topic and lets later ones have their offsets, as a leader does that was elected
// without them. The group must have no members, and its members must be byName, for which the topic's id stays the same.
func (s *stage) cutLog() {
	s.t.Helper()
	admin := kadm.NewClient(s.client)
	waitFor(s.t, "the topic to be deleted", func() bool {
		_, _ = admin.DeleteTopics(s.t.Context(), s.hop.Commands())
		found, err := admin.ListTopics(s.t.Context(), s.hop.Commands())
		return err == nil && !found.Has(s.hop.Commands())
	})
	s.client.PurgeTopicsFromClient(s.hop.Commands())
	s.provision(1)
	// As in TestTheWatermarkOutlastsTheInbox any leader is a later one.
	_, err := s.pool.Exec(s.t.Context(), "DELETE FROM troupe.inbox_offsets; UPDATE troupe.leases SET watermark_epoch = -2")
	require.NoError(s.t, err)
}

// byName makes a participant identify topics by their names.
func byName(c *participant.Config) {
	c.Kafka = append(c.Kafka, kgo.MaxVersions(kversion.V2_7_0()))
}

// TestAMessageWithoutAnIDAtAReusedOffsetTakesEffect checks that it is no duplicate of the message that had its offset before the
// log was cut, whatever became of that one, and that it is one when it is read again.
func TestAMessageWithoutAnIDAtAReusedOffsetTakesEffect(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]string{"handled": "", "a dead letter": "permanent"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			run := func() (stop func()) {
				p := s.new(onePartition, byName)
				participant.Handle(p, count)
				return s.start(p)
			}
			ended := "SELECT (SELECT count(*) FROM done) + (SELECT count(*) FROM troupe.dead_letters)"
			s.send(s.unnamed("a", Count{N: 1, Fail: fails}))
			stop := run()
			s.waitCount(1, ended)
			waitFor(t, "the offset", func() bool { return s.committed(0) == 1 })
			stop()
			s.cutLog()
			s.send(s.unnamed("a", Count{N: 2, Fail: fails}))
			stop = run()
			s.waitCount(2, ended)
			events := s.waitEvents(2)
			require.NotEqual(t, events[0].ID, events[1].ID)
			require.NotEqual(t, events[0].CausationID, events[1].CausationID)
			waitFor(t, "the offset", func() bool { return s.committed(0) == 1 })
			stop()

			_, err := s.pool.Exec(t.Context(), "DELETE FROM troupe.inbox_offsets; UPDATE troupe.leases SET watermark_epoch = -2")
			require.NoError(t, err)
			s.rewind()
			run()
			s.send(s.command("a", Count{N: 3}))
			s.waitCount(1, "SELECT count(*) FROM done WHERE n = 3")
			require.Equal(t, 3, s.count(ended), "it is known when it is read again")
		})
	}
}

// TestAMessageWithoutAnIDAtTheOffsetOfAHeldOneIsHeldToo checks that both take effect, in their order, each with its identity.
func TestAMessageWithoutAnIDAtTheOffsetOfAHeldOneIsHeldToo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var mended atomic.Bool
	run := func() (stop func()) {
		p := s.new(onePartition, byName, func(c *participant.Config) { c.Retry.Attempts = 1 << 20 })
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
			if !mended.Load() {
				return participant.Outcome{}, errAsked
			}
			return count(ctx, tx, c)
		})
		return s.start(p)
	}
	s.send(s.unnamed("a", Count{N: 1}))
	stop := run()
	s.waitCount(1, "SELECT count(*) FROM troupe.held")
	waitFor(t, "the offset", func() bool { return s.committed(0) == 1 })
	stop()
	s.cutLog()
	s.send(s.unnamed("a", Count{N: 2}))
	run()
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	mended.Store(true)
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	require.Equal(t, 2, s.count("SELECT count(*) FROM done"))
	require.Equal(t, 2, s.count("SELECT n FROM done ORDER BY position DESC LIMIT 1"))
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.inbox"))
	for _, e := range s.waitEvents(2) {
		require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.inbox WHERE message_id = $1", e.CausationID))
		require.Equal(t, 1, strings.Count(e.CausationID, "~"))
	}
}
