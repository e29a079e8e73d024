package participanttest

import (
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

const advance = `
UPDATE troupe.held
SET next_try        = next_try - make_interval(secs => $2::float8),
    unhandled_since = unhandled_since - make_interval(secs => $2::float8)
WHERE consumer_group = $1
  AND next_try IS NOT NULL`

// Advance lets d pass for whatever is held now and for the deadlines that are pending, at once: what was to be tried
// within d is due, and the messages of the deadlines that are due are sent. Time goes on by itself as well, so a wait of
// milliseconds may be over before. A wait is random up to its bound unless the policy has NoJitter: to make all due,
// advance by Retry.Cap or more.
func (s *Stage) Advance(d time.Duration) {
	s.t.Helper()
	// A running participant knows from memory when what it holds is due, and reads it where it gets a partition.
	s.stop()
	for _, sql := range []string{advance, advanceDeadlines} {
		_, err := s.Pool.Exec(s.t.Context(), sql, s.cfg.Participant.Group, d.Seconds())
		require.NoError(s.t, err)
	}
	s.start()
	s.sendDeadlines()
}

// Replay delivers everything that was sent once more, in its order, as when somebody sets the group's offsets back to
// the start. It needs Settle before it, so that there is something to set back.
func (s *Stage) Replay() {
	s.t.Helper()
	s.stop()
	admin := kadm.NewClient(s.client)
	offsets, err := admin.FetchOffsets(s.t.Context(), s.cfg.Participant.Group)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, offsets, "nothing was consumed yet: call Settle before Replay")
	start := make(kadm.Offsets)
	offsets.Each(func(o kadm.OffsetResponse) { start.AddOffset(o.Topic, o.Partition, 0, -1) })
	// A member that could not say good-bye in time is in the group until its session ends, and nobody else may commit.
	s.wait("the group to take offsets from outside", func() error {
		return admin.CommitAllOffsets(s.t.Context(), s.cfg.Participant.Group, start)
	})
	s.start()
}
