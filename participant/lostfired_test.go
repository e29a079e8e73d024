package participant_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
)

// TestADeadlineWhoseMessageIsLostWithTheTopicFiresAgain loses the message of a deadline between its publication and its handling. Other services
// can send their messages again. This one is the participant's own. A deadline that is a dead letter does not fire again.
func TestADeadlineWhoseMessageIsLostWithTheTopicFiresAgain(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*stage){
		"by the topic's retention":              func(s *stage) { s.deleteTo(2) },
		"by an offset that is set from outside": func(s *stage) { s.skipTo(2) },
		"with the topic": func(s *stage) {
			_, err := kadm.NewClient(s.client).DeleteTopic(s.t.Context(), s.hop.Commands())
			require.NoError(s.t, err)
			s.provision(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDeadlineStage(t)
			s.provision(1)
			p := s.expecting()
			stop, publish := s.start(p), s.relayed()
			bad := participant.Deadline{Name: overdueName, Scope: "o-0", Key: "a", Body: Overdue{Fail: "permanent"}}
			require.NoError(t, s.schedule(p, bad))
			s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
			waitFor(t, "the offset", func() bool { return s.committed(0) == 1 })
			publish()
			var fired time.Time
			require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT fired_at FROM troupe.deadlines").Scan(&fired))

			require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Scope: "o-1", Key: "a", Body: Overdue{N: 1}}))
			s.fired(1)
			stop()
			publish = s.relayed()
			s.waitCount(0, "SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Commands())
			publish()
			if name == "with the topic" {
				s.exec("UPDATE troupe.deadlines SET fired_at = fired_at + interval '1 hour' WHERE scope = 'o-1'") // the database's clock was ahead
			}
			lose(s)
			s.relayed()
			s.start(s.expecting())
			s.waitCount(1, "SELECT count(*) FROM met WHERE n = 1")
			require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines WHERE fired_at = $1", fired), "of the dead letter")
		})
	}
}

// TestADeadlineWhoseMessageIsInASkippedBatchFiresAgain: the batch cannot be read, and an operator skips it.
func TestADeadlineWhoseMessageIsInASkippedBatchFiresAgain(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	unpacksLess := func(c *participant.Config) { c.Kafka = append(c.Kafka, kgo.MaxDecompressBatchBytes(1<<20)) }
	p := s.expecting(unpacksLess)
	stop := s.start(p)
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Scope: "o-1", Key: "a", Body: Overdue{N: 1}}))
	due := s.fired(1)[0]
	stop()
	s.exec("DELETE FROM troupe.outbox")
	client, err := kafka.NewClient(s.brokers, kgo.ProducerBatchMaxBytes(4<<20), kgo.ProducerBatchCompression(kgo.GzipCompression()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	due.Payload = make([]byte, 2<<20)
	require.NoError(t, client.ProduceSync(t.Context(), kafka.Record(due)).FirstErr())
	s.relayed()
	s.start(s.expecting(unpacksLess))
	s.waitCount(1, "SELECT count(*) FROM troupe.unreadable_batches")
	require.Zero(t, s.count("SELECT count(*) FROM met"))
	_, err = s.desk().Skip(t.Context(), repair.Place{Topic: s.hop.Commands()}, s.hop.String(), ann)
	require.NoError(t, err)
	s.waitCount(1, "SELECT count(*) FROM met WHERE n = 1")
}

// TestADeadlineThatFiredADayAgoFiresAgain: a broker has lost the end of its log, which nothing shows.
func TestADeadlineThatFiredADayAgoFiresAgain(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	p := s.expecting()
	stop := s.start(p)
	for _, scope := range []string{"yesterday", "now"} {
		require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Scope: scope, Key: scope, Body: Overdue{N: 1}}))
	}
	s.fired(2)
	stop()
	s.exec("DELETE FROM troupe.outbox")
	s.exec("UPDATE troupe.deadlines SET fired_at = fired_at - interval '25 hours' WHERE scope = 'yesterday'")
	const now = "SELECT fired_at FROM troupe.deadlines WHERE scope = 'now'"
	var before, after time.Time
	require.NoError(t, s.pool.QueryRow(t.Context(), now).Scan(&before))
	s.relayed()
	s.start(s.expecting())
	s.waitCount(1, "SELECT count(*) FROM met WHERE scope = 'yesterday'")
	require.NoError(t, s.pool.QueryRow(t.Context(), now).Scan(&after))
	require.Equal(t, before, after)
}

// TestDeadlinesFireWhileLostOnesAreNotFound: another transaction has locked a deadline that may be lost, or a table that the search for lost ones
// reads.
func TestDeadlinesFireWhileLostOnesAreNotFound(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"row":   "SELECT FROM troupe.deadlines FOR UPDATE",
		"table": "LOCK TABLE troupe.dead_letters",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDeadlineStage(t)
			s.provision(1)
			p := s.expecting()
			stop := s.start(p)
			require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Scope: "o-1", Key: "a", Body: Overdue{N: 1}}))
			s.fired(1)
			stop()
			s.exec("DELETE FROM troupe.outbox")
			s.exec("UPDATE troupe.deadlines SET fired_at = fired_at - interval '25 hours'")
			other, err := s.pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = other.Exec(t.Context(), lock)
			require.NoError(t, err)
			p = s.expecting()
			s.start(p)
			require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Scope: "o-2", Key: "b", Body: Overdue{N: 2}}))
			s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE key = 'b'")
			require.NoError(t, other.Rollback(t.Context()))
		})
	}
}

// TestADeadlineWhoseRedrivenMessageIsLostIsRedrivenAgain opens its dead letter as docs/dead-letters.md says. If both messages come, the deadline
// is handled once.
func TestADeadlineWhoseRedrivenMessageIsLostIsRedrivenAgain(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	p := s.expecting()
	s.start(p)
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Scope: "o-1", Key: "a", Body: Overdue{N: 1, Fail: "permanent"}}))
	s.send(s.fired(1)...)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
	desk := s.desk()
	letters, _, err := desk.List(t.Context(), repair.Filter{}, repair.Page{})
	require.NoError(t, err)
	id := letters[0].ID
	require.NoError(t, desk.Edit(t.Context(), id, []byte(`{"n":1}`), ann))
	redrive := func() envelope.Message {
		s.exec("DELETE FROM troupe.outbox")
		r, err := desk.Redrive(t.Context(), repair.Filter{IDs: []uuid.UUID{id}}, repair.RedriveConfig{By: ann})
		require.NoError(t, err)
		require.Equal(t, 1, r.Redriven, r.Refusals)
		return s.fired(1)[0]
	}
	lost := redrive()
	operator := grantstest.New(t, s.pool, grants.Operator).Pool()
	_, err = operator.Exec(t.Context(), "UPDATE troupe.dead_letters SET status = 'open' WHERE id = $1 AND status = 'redriven'", id)
	require.NoError(t, err)
	s.send(redrive(), lost)
	waitFor(t, "both messages", func() bool { return s.committed(0) == 3 })
	require.Equal(t, 1, s.count("SELECT count(*) FROM met"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters WHERE status = 'open'"))
}
