package participant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/erasure"
	"github.com/troupe-go/troupe/participant"
)

// TestMessagesOfAnErasedKeyThatKafkaDeliversAgainHaveNoEffect erases a key with a handled command and a dead letter, and the idempotency key
// of the command. It resets the group, and the database loses the watermark: the inbox recognises both. A copy of the command under another
// id gets the answer without content.
func TestMessagesOfAnErasedKeyThatKafkaDeliversAgainHaveNoEffect(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	serve := func() (stop func()) {
		p := s.new(onePartition)
		participant.Handle(p, count)
		return s.start(p)
	}
	stop := serve()
	handled := s.command("o-1", Count{N: 1})
	s.send(handled, s.command("o-1", Count{N: 2, Fail: "permanent"}))
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE status = 'open'")
	s.waitEvents(2)
	stop()
	_, err := s.pool.Exec(t.Context(), "DELETE FROM troupe.outbox; UPDATE troupe.dead_letters SET status = 'discarded'")
	require.NoError(t, err)
	for key, table := range map[string]string{"o-1": "dead_letters", handled.IdempotencyKey: "answers"} {
		r, err := erasure.Desk{Pool: s.pool}.Erase(t.Context(), key, ann)
		require.NoError(t, err)
		require.Equal(t, []erasure.Change{{Table: table, Rows: 1, Effect: "blanked"}}, r.Changes)
	}

	s.rewind()
	_, err = s.pool.Exec(t.Context(), "DELETE FROM troupe.leases; DELETE FROM troupe.inbox_offsets")
	require.NoError(t, err)
	serve()
	handled.ID = envelope.NewID()
	s.send(handled)
	event := s.waitEvents(1)[0]
	require.Equal(t, "o-1", string(event.Key))
	require.Empty(t, event.Payload)
	require.Equal(t, 1, s.count("SELECT total FROM counters WHERE key = 'o-1'"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters WHERE octet_length(payload) > 0"))
}
