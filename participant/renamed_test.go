package participant_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestDeadlinesOfAFormerGroupAreLogged checks deadlines of a group that was renamed, and the statement that gives them the new name.
func TestDeadlinesOfAFormerGroupAreLogged(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	former := s.expecting()
	require.NoError(t, s.schedule(former, participant.Deadline{Name: overdueName, Key: "a", Body: Overdue{}}))
	s.exec("UPDATE troupe.deadlines SET due_at = now() - interval '2 hours'")
	var logged safeBuffer
	renamed := s.expecting(func(c *participant.Config) { c.Group, c.Log = "renamed", zerolog.New(&logged) })
	stop := s.start(renamed)
	waitFor(t, "the line", func() bool {
		return strings.Contains(logged.String(), "overdue by more than an hour") && strings.Contains(logged.String(), former.Group())
	})
	stop()
	s.exec(`UPDATE troupe.deadlines
		SET consumer_group = 'renamed', headers = jsonb_set(headers, '{__troupe.deadline}', to_jsonb('renamed/' || name))
		WHERE consumer_group = $1 AND fired_at IS NULL AND raw_headers IS NULL`, former.Group())
	s.relayed()
	again := s.expecting(func(c *participant.Config) { c.Group = "renamed" })
	s.start(again)
	s.waitMet(1)
}
