package participant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestADeadLetterLeavesItsPlaceToWhatAnotherLeaderWroteThere: the log was cut, and the message that has the offset now fails, too.
func TestADeadLetterLeavesItsPlaceToWhatAnotherLeaderWroteThere(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	s.send(s.command("a", Count{N: 1, Fail: "permanent"}))
	run := func() (stop func()) {
		p := s.new(onePartition)
		participant.Handle(p, count)
		return s.start(p)
	}
	stop := run()
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
	stop()
	// As in TestTheWatermarkOutlastsTheInbox any leader is a later one, and the message has another id than the dead letter.
	_, err := s.pool.Exec(t.Context(), `DELETE FROM troupe.inbox_offsets; UPDATE troupe.leases SET watermark_epoch = -2;
		UPDATE troupe.dead_letters SET message_id = 'before'; `+forget)
	require.NoError(t, err)
	s.rewind()
	run()
	s.waitCount(2, "SELECT count(*) FROM troupe.dead_letters")
	s.waitEvents(2)
}
