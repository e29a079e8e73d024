package participant_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
)

// TestADeadlineThatFiresAgainAfterASetBackEmitsTheSameIDs checks a database that was set back to before a deadline was handled. Its
// message is written again, at another time, and the services that consume what its handler emits recognise the repetition.
func TestADeadlineThatFiresAgainAfterASetBackEmitsTheSameIDs(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	p := s.new(onePartition)
	participant.OnDeadline(p, overdueName, func(ctx context.Context, tx pgx.Tx, _ participant.Due[Overdue]) error {
		return p.Outbox().Write(ctx, tx, outbox.Entry{Topic: s.hop.Events(), Key: "a", Type: "Reminder", Payload: []byte("{}")})
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		return participant.Succeed(Counted{}), p.Schedule(ctx, tx, participant.Deadline{Name: overdueName, Body: Overdue{}})
	})
	s.start(p)
	cause := kafka.Record(s.command("a", Count{N: 1}))
	cause.Timestamp = time.Now()
	reminder := func(written time.Duration) (id string) {
		s.produce(cause)
		due := kafka.Record(s.fired(1)[0])
		due.Timestamp = cause.Timestamp.Add(written)
		s.produce(due)
		const sent = "FROM troupe.outbox WHERE type = 'Reminder'"
		s.waitCount(1, "SELECT count(*) "+sent)
		require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT id::text "+sent).Scan(&id))
		_, err := s.pool.Exec(t.Context(), `DELETE FROM troupe.deadlines; DELETE FROM troupe.outbox; DELETE FROM troupe.answers;
			DELETE FROM troupe.inbox; DELETE FROM troupe.inbox_recent`)
		require.NoError(t, err)
		return id
	}
	require.Equal(t, reminder(time.Second), reminder(time.Minute))
}
