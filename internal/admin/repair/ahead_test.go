package repair_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/repair"
)

// TestADeadLetterFromAClockThatWasAheadIsRedrivenByItsID checks dead letters that were written while the database's clock was ahead: an operator who
// names them need not wait until their time has come.
func TestADeadLetterFromAClockThatWasAheadIsRedrivenByItsID(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fails("*", "no", true)
	stop := s.participant()
	s.send(s.command("a", Charge{N: 1}), s.command("b", Charge{N: 2}))
	s.waitCount(2, openLetters)
	stop()
	s.exec(`UPDATE troupe.dead_letters SET first_failed_at = first_failed_at + interval '1 day', last_failed_at = last_failed_at + interval '1 day',
		created_at = created_at + interval '1 day'`)
	letters := s.letters()
	r, err := s.desk.Redrive(t.Context(), repair.Filter{IDs: []uuid.UUID{letters[0].ID}}, quickly)
	require.NoError(t, err)
	require.Equal(t, 1, r.Redriven, r.Refusals)
	require.Equal(t, 1, r.Total)
	require.False(t, r.Before.IsZero())
	n, err := s.desk.Discard(t.Context(), repair.Filter{IDs: []uuid.UUID{letters[1].ID}}, ann)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}
