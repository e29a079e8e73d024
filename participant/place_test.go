package participant_test

import (
	"context"
	"crypto/sha256"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
)

// TestADeadLetterLeavesItsPlaceToWhatAnotherLeaderWroteThere checks a log that was cut: the message that has the offset now
// fails, too.
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

// TestAFailingMessageAtAReusedOffsetIsHeldToo checks a log that was cut while a message was held: the message that has its
// offset now fails, too. Both take effect; if they have one key, in their order.
func TestAFailingMessageAtAReusedOffsetIsHeldToo(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"a", "b"} {
		t.Run("the earlier one has key "+key, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			var mended atomic.Bool
			run := func() (stop func()) {
				p := s.new(onePartition, func(c *participant.Config) { c.Retry.Attempts = 1 << 20 })
				participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
					if !mended.Load() {
						return participant.Outcome{}, errAsked
					}
					return count(ctx, tx, c)
				})
				return s.start(p)
			}
			s.provision(1)
			s.send(s.command("a", Count{N: 2}))
			stop := run()
			s.waitCount(1, "SELECT count(*) FROM troupe.held")
			stop()
			// As in TestTheWatermarkOutlastsTheInbox any leader is a later one. The row becomes one of a message that was cut
			// off.
			earlier := s.command(key, Count{N: 1})
			hold := sha256.Sum256([]byte("key " + key))
			_, err := s.pool.Exec(t.Context(), "UPDATE troupe.held SET key = $1, hold_key = $2, headers = $3, payload = $4, message_id = $5",
				earlier.Key, hold[:], envelope.MarshalHeaders(kafka.Headers(kafka.Record(earlier))), earlier.Payload, earlier.ID)
			require.NoError(t, err)
			_, err = s.pool.Exec(t.Context(), "DELETE FROM troupe.inbox_offsets; UPDATE troupe.leases SET watermark_epoch = -2; "+forget)
			require.NoError(t, err)
			s.rewind()
			run()
			s.waitCount(2, "SELECT count(*) FROM troupe.held")
			mended.Store(true)
			s.waitCount(0, "SELECT count(*) FROM troupe.held")
			require.Equal(t, 2, s.count("SELECT count(*) FROM done"))
			if key == "a" {
				require.Equal(t, 2, s.count("SELECT n FROM done ORDER BY position DESC LIMIT 1"))
			}
		})
	}
}
