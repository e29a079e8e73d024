package participant_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
)

// TestAnAnswerOfASagasStepIsKeptLongerThanTheInbox, and others are not.
func TestAnAnswerOfASagasStepIsKeptLongerThanTheInbox(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(func(c *participant.Config) { c.BarrierRetention = 20 * 24 * time.Hour })
	const answered = `
INSERT INTO troupe.answers (consumer_group, message_type, idempotency_key, outcome, type, content_type, command_key, answered_at)
SELECT $1, 'forward charge', saga || days, 'success', 'Charged', '', command_key, now() - make_interval(days => days)
FROM (VALUES ('s', 'k'), ('none', NULL)) AS kinds (saga, command_key), unnest('{1, 8, 19, 21}'::integer[]) AS days`
	_, err := s.pool.Exec(t.Context(), answered, p.Group())
	require.NoError(t, err)
	require.NoError(t, p.PruneInbox())
	var kept []string
	require.NoError(t, s.pool.QueryRow(t.Context(),
		"SELECT array_agg(idempotency_key ORDER BY idempotency_key) FROM troupe.answers").Scan(&kept))
	require.Equal(t, []string{"none1", "s1", "s19", "s8"}, kept)
}

// TestAStepWhoseAnswerMayBeForgottenIsLeftToAPerson: that no answer is stored does not say that there was none.
func TestAStepWhoseAnswerMayBeForgottenIsLeftToAPerson(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, s *stage) {
		p := s.new(s.batched)
		participant.Handle(p, count)
		participant.Handle(p, undo)
		s.start(p)
		old, young := time.Now().AddDate(0, 0, -30), time.Now().AddDate(0, 0, -29)
		for name, c := range map[string]struct {
			call
			since time.Time
		}{
			"in doubt, long ago":    {call{operation: "compensate", doubt: true, want: "exhausted troupe.Exhausted"}, old},
			"in doubt":              {call{operation: "compensate", doubt: true, want: "success troupe.Nothing"}, young},
			"undone again long ago": {call{operation: "compensate", want: "exhausted troupe.Exhausted"}, old},
			"undone again":          {call{operation: "compensate", want: "success Undone"}, young},
			"asked again long ago":  {call{operation: "forward", want: "exhausted troupe.Exhausted"}, old},
			"asked again":           {call{operation: "forward", want: "success Counted"}, young},
		} {
			c.saga, c.step, c.key, c.n = name, "charge", c.operation+":1", 1
			m := c.message(s, name)
			m.Extra = append(m.Extra, envelope.Header{Key: participant.HeaderSince, Value: []byte(c.since.Format(time.RFC3339))})
			s.give(m)
			s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1 AND key = $2", s.hop.Events(), name)
			var got string
			require.NoError(t, s.pool.QueryRow(t.Context(),
				"SELECT headers ->> 'ce_outcome' || ' ' || type FROM troupe.outbox WHERE topic = $1 AND key = $2", s.hop.Events(), name).Scan(&got))
			require.Equal(t, c.want, got, name)
		}
	})
}
