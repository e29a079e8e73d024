package participant_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
)

const begunMarks = "SELECT count(*) FROM troupe.answers WHERE outcome = 'begun'"

// TestACompensationInDoubtOfACallThatWasNotMadeDoesNothing checks forward calls that a run has announced and not made. Their marks
// are gone when their runs have ended.
func TestACompensationInDoubtOfACallThatWasNotMadeDoesNothing(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, s *stage) {
		p := s.new(s.batched)
		participant.Handle(p, count, participant.Alone())
		participant.Handle(p, undo)
		s.start(p)
		unreadable := s.forwardCall("a")
		unreadable.Payload = []byte("{")
		s.give(unreadable)
		require.Equal(t, envelope.Exhausted, s.waitEvents(1)[0].Outcome)
		s.waitCount(0, begunMarks)
		s.give(s.undoCall("b"))
		require.Equal(t, "troupe.Nothing", s.waitEvents(2)[1].Type)
		require.Zero(t, s.count(undone))
	})
}

// TestARefusedCallLeavesNoMark checks a call that is refused since its answer may be forgotten.
func TestARefusedCallLeavesNoMark(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, s *stage) {
		s.forgets(time.Now().AddDate(0, 0, -33))
		var b bank
		p := s.new(s.batched)
		participant.Ask(p, "Count", b.ask, b.take)
		s.start(p)
		refused := s.forwardCall("a")
		refused.Extra = []envelope.Header{{Key: participant.HeaderSince, Value: []byte(time.Now().AddDate(0, 0, -34).Format(time.RFC3339))}}
		s.give(refused)
		require.Equal(t, envelope.Exhausted, s.waitEvents(1)[0].Outcome)
		s.waitCount(0, begunMarks)
		require.Zero(t, b.charged.Load())
	})
}

// TestACallWhoseBatchWasRolledBackBeforeItLeavesNoMark checks a call that then waits behind the message of its key that failed.
func TestACallWhoseBatchWasRolledBackBeforeItLeavesNoMark(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition, holdLong, func(c *participant.Config) { c.Batch, c.Concurrency = 10, 1 })
	participant.Ask(p, "Count", func(_ context.Context, c participant.Command[[]byte]) (bool, error) {
		return c.Message.SagaID != "", nil
	}, func(_ context.Context, _ pgx.Tx, _ participant.Command[[]byte], ofSaga bool) (participant.Outcome, error) {
		if ofSaga {
			return participant.Succeed(Counted{}), nil
		}
		return participant.Outcome{}, errAsked
	})
	participant.Handle(p, undo)
	s.send(s.command("a", Count{N: 7}), s.forwardCall("a"))
	s.start(p)
	s.waitCount(2, "SELECT count(*) FROM troupe.held")
	s.waitCount(0, begunMarks)
	s.send(s.undoCall("a"))
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE position('compensate'::bytea IN headers) > 0")
	_, err := s.pool.Exec(t.Context(), "DELETE FROM troupe.held WHERE attempts > 0")
	require.NoError(t, err)
	s.due()
	require.Equal(t, "troupe.Nothing", s.waitEvents(1)[0].Type)
}

// TestACompensationInTheBatchOfItsCallUndoesNothing checks a compensation in doubt that comes before the call of its batch, which
// is announced and not made.
func TestACompensationInTheBatchOfItsCallUndoesNothing(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, s *stage) {
		var b bank
		s.give(s.undoCall("a"), s.forwardCall("b"))
		p := s.new(s.batched, func(c *participant.Config) { c.Concurrency = 1 })
		participant.Ask(p, "Count", b.ask, b.take)
		participant.Handle(p, undo)
		s.start(p)
		for _, e := range s.waitEvents(2) {
			if b.charged.Load() == 0 {
				require.Equal(t, "troupe.Nothing", e.Type)
			}
		}
		require.EqualValues(t, b.charged.Load(), s.count(undone), "undone if it was made")
		s.waitCount(0, begunMarks)
	})
}

// TestAMarkIsOnDiskBeforeItsCallWhateverTheRoleSays checks roles that do not wait for the disk, and one that waits for more.
func TestAMarkIsOnDiskBeforeItsCallWhateverTheRoleSays(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{"off": "local", "remote_apply": "remote_apply"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			_, err := s.pool.Exec(t.Context(), `
				CREATE TABLE waited (setting text NOT NULL);
				CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
				BEGIN
				  INSERT INTO waited VALUES (current_setting('synchronous_commit'));
				  RETURN NEW;
				END $$;
				CREATE TRIGGER note BEFORE INSERT ON troupe.answers FOR EACH ROW WHEN (NEW.outcome = 'begun') EXECUTE FUNCTION note();`)
			require.NoError(t, err)
			config := s.pool.Config()
			config.ConnConfig.RuntimeParams["synchronous_commit"] = setting
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			defer pool.Close()
			var b bank
			p := s.new(onePartition, func(c *participant.Config) { c.Pool = pool })
			participant.Ask(p, "Count", b.ask, b.take)
			stop := s.start(p)
			s.send(s.forwardCall("a"))
			s.waitEvents(1)
			stop()
			var waited string
			require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT setting FROM waited").Scan(&waited))
			require.Equal(t, want, waited)
		})
	}
}
