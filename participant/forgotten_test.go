package participant_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
)

// TestAnAnswerOfASagasStepIsKeptLongerThanTheInbox checks also that other answers are not.
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

// forgets stores an answer of another saga's step that was given at a time, and deletes answers older than 30 days.
func (s *stage) forgets(answered time.Time) {
	s.t.Helper()
	p := s.new(s.batched, func(c *participant.Config) { c.BarrierRetention = 30 * 24 * time.Hour })
	_, err := s.pool.Exec(s.t.Context(), `
INSERT INTO troupe.answers (consumer_group, message_type, idempotency_key, outcome, type, content_type, command_key, answered_at)
VALUES ($1, 'forward charge', 'another', 'success', 'Charged', '', 'k', $2)`, p.Group(), answered)
	require.NoError(s.t, err)
	require.NoError(s.t, p.PruneInbox())
}

// asked is a command with the time of its first call.
type asked struct {
	call
	since time.Time
}

// ask sends each call, with the time of the first call, and compares the answers.
func (s *stage) ask(all map[string]asked) {
	s.t.Helper()
	for name, c := range all {
		c.saga, c.step, c.key, c.n = name, "charge", c.operation+":1", 1
		m := c.message(s, name)
		m.Extra = append(m.Extra, envelope.Header{Key: participant.HeaderSince, Value: []byte(c.since.Format(time.RFC3339))})
		s.give(m)
		s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE topic = $1 AND key = $2", s.hop.Events(), name)
		var got string
		require.NoError(s.t, s.pool.QueryRow(s.t.Context(),
			"SELECT headers ->> 'ce_outcome' || ' ' || type FROM troupe.outbox WHERE topic = $1 AND key = $2", s.hop.Events(), name).Scan(&got))
		require.Equal(s.t, c.want, got, name)
	}
}

// TestAStepWhoseAnswerMayBeForgottenIsLeftToAPerson checks that a missing answer does not count as none given. The deletions
// count, and not the retention of the member that runs now.
func TestAStepWhoseAnswerMayBeForgottenIsLeftToAPerson(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, s *stage) {
		deleted := time.Now().AddDate(0, 0, -33)
		s.forgets(deleted)
		p := s.new(s.batched, func(c *participant.Config) { c.BarrierRetention = -1 })
		participant.Handle(p, count)
		participant.Handle(p, undo)
		s.start(p)
		old, young := deleted.AddDate(0, 0, -1), deleted.AddDate(0, 0, 1)
		s.ask(map[string]asked{
			"in doubt, long ago":    {call{operation: "compensate", doubt: true, want: "exhausted troupe.Exhausted"}, old},
			"in doubt":              {call{operation: "compensate", doubt: true, want: "success troupe.Nothing"}, young},
			"undone again long ago": {call{operation: "compensate", want: "exhausted troupe.Exhausted"}, old},
			"undone again":          {call{operation: "compensate", want: "success Undone"}, young},
			"asked again long ago":  {call{operation: "forward", want: "exhausted troupe.Exhausted"}, old},
			"asked again":           {call{operation: "forward", want: "success Counted"}, young},
		})
	})
}

// TestNothingIsForgottenWhereNoAnswerWasDeleted checks this for old commands and short retentions.
func TestNothingIsForgottenWhereNoAnswerWasDeleted(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, s *stage) {
		p := s.new(s.batched, func(c *participant.Config) { c.BarrierRetention = 24 * time.Hour })
		require.NoError(t, p.PruneInbox())
		participant.Handle(p, count)
		participant.Handle(p, undo)
		s.start(p)
		old := time.Now().AddDate(0, 0, -40)
		s.ask(map[string]asked{
			"in doubt":    {call{operation: "compensate", doubt: true, want: "success troupe.Nothing"}, old},
			"asked again": {call{operation: "forward", want: "success Counted"}, old},
		})
	})
}

// TestTheForgottenTimeOnlyGrows checks that a deletion of older answers neither lowers nor removes the time of the youngest
// deleted one.
func TestTheForgottenTimeOnlyGrows(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var forgotten *time.Time
	read := func() *time.Time {
		t.Helper()
		require.NoError(t, s.pool.QueryRow(t.Context(),
			"SELECT max(barrier_forgotten) FROM troupe.inbox_groups WHERE consumer_group = $1", s.hop.String()).Scan(&forgotten))
		return forgotten
	}
	day := func(days int) time.Time { return time.Now().UTC().AddDate(0, 0, -days).Truncate(time.Second) }
	require.Nil(t, read())
	s.forgets(day(29))
	require.Nil(t, read(), "nothing was old enough")
	_, err := s.pool.Exec(t.Context(), "DELETE FROM troupe.answers")
	require.NoError(t, err)
	youngest := day(35)
	s.forgets(youngest)
	require.Equal(t, youngest, read().UTC())
	s.forgets(day(50))
	require.Equal(t, youngest, read().UTC())
	_, err = s.new().Turn(time.Now())
	require.NoError(t, err)
	require.Equal(t, youngest, read().UTC(), "the group's days are another column of its row")
}
