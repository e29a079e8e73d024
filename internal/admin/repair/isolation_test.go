package repair_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/testkit"
)

// TestActionsWorkWhateverTheDefaultIsolation redrives a dead letter that another session changes meanwhile, in a database whose
// default is repeatable read.
func TestActionsWorkWhateverTheDefaultIsolation(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.exec(`DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''repeatable read''', current_database()); END $$`)
	s.pool.Reset()
	s.fails("*", "no", true)
	stop := s.participant()
	s.send(s.command("a", Charge{N: 1}), s.command("b", Charge{N: 2}))
	s.waitCount(2, openLetters)
	stop()
	other, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), "UPDATE troupe.dead_letters SET edited_payload = payload")
	require.NoError(t, err)
	redriven := make(chan error, 1)
	go func() {
		_, err := s.desk.Redrive(context.Background(), repair.Filter{}, quickly)
		redriven <- err
	}()
	testkit.Wait(t, "the redrive waits for the other session", func() (bool, error) {
		return s.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0, nil
	})
	require.NoError(t, other.Commit(t.Context()))
	require.NoError(t, <-redriven)
	require.Zero(t, s.count(openLetters))
}
