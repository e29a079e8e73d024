package participant_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

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
			lose(s)
			s.relayed()
			s.start(s.expecting())
			s.waitCount(1, "SELECT count(*) FROM met WHERE n = 1")
			require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines WHERE fired_at = $1", fired), "of the dead letter")
		})
	}
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
	s.relayed()
	s.start(s.expecting())
	s.waitCount(1, "SELECT count(*) FROM met WHERE scope = 'yesterday'")
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines WHERE scope = 'now'"))
}
