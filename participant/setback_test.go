package participant_test

import (
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestMessagesOfALogThatWasSetBackAreHandled checks a broker that was restored from a copy of its disks: the log and the group's offset are older than
// the watermark, and messages that are written now have offsets up to the watermark. Their leader's epoch is not later than the watermark's, as when
// the leader had changed between the copy and the restore.
func TestMessagesOfALogThatWasSetBackAreHandled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var log safeBuffer
	run := func() (stop func()) {
		p := s.new(onePartition, func(c *participant.Config) { c.Log = zerolog.New(&log) })
		participant.Handle(p, count)
		return s.start(p)
	}
	stop := run()
	s.send(s.commands(2, 5)...)
	s.expectAll(2, 5)
	stop()
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 9", s.hop.Commands()))
	require.NotContains(t, log.String(), "set back")

	// The log had ten messages more that have ended, and two behind a gap: an owner crashed.
	_, err := s.pool.Exec(t.Context(), `
		WITH ahead AS (UPDATE troupe.leases SET watermark = 19, released_at = NULL WHERE topic = $1 RETURNING id, topic_id, watermark_epoch)
		INSERT INTO troupe.inbox_offsets (lease_id, topic_id, low, high, epoch)
		SELECT id, topic_id, 21, 22, watermark_epoch FROM ahead`, s.hop.Commands())
	require.NoError(t, err)
	stop = run()
	s.send(s.commandsFrom(5, 2, 2)...)
	s.expectAll(2, 7)
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 13", s.hop.Commands())
	stop()
	require.Contains(t, log.String(), "set back")

	run()
	s.send(s.commandsFrom(7, 2, 6)...) // up to offset 25
	s.expectAll(2, 13)
}
