package testkit

import (
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

const advance = `
UPDATE troupe.held
SET next_try        = next_try - make_interval(secs => $2::float8),
    first_failed_at = first_failed_at - make_interval(secs => $2::float8),
    unhandled_since = unhandled_since - make_interval(secs => $2::float8)
WHERE consumer_group = $1
  AND next_try IS NOT NULL`

// Advance moves all held messages, pending deadlines and expectations d closer to their time: attempts, deadlines and
// expectations that were due within d are due now, and the messages of these deadlines are sent. Real time passes too, so a
// wait of a few milliseconds may end before the call. A wait is random up to its limit unless the policy has NoJitter: to make
// all attempts due, advance by Retry.Cap or more.
func (s *Stage) Advance(d time.Duration) {
	s.t.Helper()
	// A running participant has the times of its held messages in memory, and reads them when it gets a partition.
	s.stop()
	for _, sql := range []string{advance, advanceDeadlines, advanceExpectations} {
		_, err := s.Pool.Exec(s.t.Context(), sql, s.cfg.Participant.Group, d.Seconds())
		require.NoError(s.t, err)
	}
	s.start()
	s.sendDeadlines()
}

// Replay delivers all sent messages once more, in their order, as if the group's offsets had been reset to the start. Call Settle
// before it, so that there are offsets to reset.
func (s *Stage) Replay() {
	s.t.Helper()
	s.stop()
	admin := kadm.NewClient(s.client)
	offsets, err := admin.FetchOffsets(s.t.Context(), s.cfg.Participant.Group)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, offsets, "nothing was consumed yet: call Settle before Replay")
	start := make(kadm.Offsets)
	offsets.Each(func(o kadm.OffsetResponse) { start.AddOffset(o.Topic, o.Partition, 0, -1) })
	// A member that could not leave in time stays in the group until its session ends, and until then no other client may commit.
	s.wait("the group to take offsets from outside", func() error {
		return admin.CommitAllOffsets(s.t.Context(), s.cfg.Participant.Group, start)
	})
	s.start()
}
