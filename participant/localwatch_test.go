package participant_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestLocalWorkOfAFormerGroupIsLogged changes the Group of local work: no member claims the entries of the former name.
func TestLocalWorkOfAFormerGroupIsLogged(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	s.write("a", Count{N: 1})
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.local_work SET created_at = created_at - interval '1 hour'")
	require.NoError(t, err)
	var logged safeBuffer
	p := s.new(func(c *participant.Config) { c.Group, c.Log = "renamed", zerolog.New(&logged) })
	participant.Handle(p, count)
	s.start(p)
	waitFor(t, "a log line", func() bool { return strings.Contains(logged.String(), `"former":"`+s.hop.String()+`"`) })
}

// TestLocalWorkThatACrashedMemberLeftBehindIsReported checks entries that are still in progress for a member that is gone: no other member
// with Local runs that would take them over, since the group was renamed, or takes its messages from Kafka now.
func TestLocalWorkThatACrashedMemberLeftBehindIsReported(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	s.makeLocal()
	s.write("a", Count{N: 1})
	s.exec(`UPDATE troupe.local_work SET status = 'in progress', locked_by = nextval('troupe.local_members'), term = 1,
		locked_at = now() - interval '1 hour', created_at = now() - interval '1 hour'`)
	kafka := s.new()
	participant.Handle(kafka, count)
	s.start(kafka)
	s.strands(kafka, participant.Stranded{Topic: s.hop.Commands(), Partition: -1, Messages: 1})
	var logged safeBuffer
	renamed := s.new(func(c *participant.Config) {
		c.Group, c.Local, c.Brokers, c.Log = "renamed", true, nil, zerolog.New(&logged)
	})
	participant.Handle(renamed, count)
	s.start(renamed)
	waitFor(t, "a log line", func() bool { return strings.Contains(logged.String(), `"former":"`+s.hop.String()+`"`) })
}
