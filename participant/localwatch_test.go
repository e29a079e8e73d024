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
