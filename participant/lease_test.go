package participant_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestAFrozenMemberHoldsNobodyUp freezes a member, lets another take its partitions, and wakes it: inside its transaction,
// which must not delay the new owner, and between two.
func TestAFrozenMemberHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	const keys, each = 5, 20
	for point, inside := range map[string]bool{
		"before the handler": true, "before the commit": true, "after the commit": false, "before the commit of offsets": false,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			nth := int64(keys * each / 2)
			if point == "before the commit of offsets" {
				nth = 1
			}
			frozen := s.memberOf(task{Die: point, Nth: nth, Freeze: true, Batch: 4})
			s.send(s.commands(keys, each)...)
			s.waitFrozen(frozen)
			second := s.member("", 0)
			s.expectAll(keys, each)
			if inside {
				second.waitSaid(t, "their sessions were ended")
			}
			require.NoError(t, frozen.Process.Signal(syscall.SIGCONT))
			s.send(s.commandsFrom(each, keys, each)...)
			s.expectAll(keys, 2*each)
			frozen.terminate(t)
			second.terminate(t)
			s.expectExactly(keys, 2*each)
			// The end does not wait for a database that is slow to answer; then it logs this.
			refused := strings.Count(frozen.log.String()+second.log.String(), "lease not released")
			require.LessOrEqual(t, s.count("SELECT count(*) FROM troupe.leases WHERE released_at IS NULL"), refused)
		})
	}
}

// waitFrozen waits until the process is stopped.
func (s *stage) waitFrozen(m *process) {
	s.t.Helper()
	testkit.Wait(s.t, "the member is frozen", func() (bool, error) {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(m.Process.Pid, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		return pid == m.Process.Pid && status.Stopped(), err
	})
}

// TestAMemberFrozenAsItMovesTheMarkHoldsNobodyUp checks that transaction, which has the lease's row locked: the next owner
// must be able to end it like the transactions of handlers.
func TestAMemberFrozenAsItMovesTheMarkHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	_, err := s.pool.Exec(t.Context(), fmt.Sprintf(`
		CREATE TABLE moves (guarded boolean NOT NULL);
		CREATE FUNCTION moved() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO moves SELECT EXISTS (
				SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND mode = 'ShareLock'
					AND classid = %d AND objid = NEW.id);
			RETURN NULL;
		END $$;
		CREATE TRIGGER moved AFTER UPDATE OF watermark ON troupe.leases FOR EACH ROW EXECUTE FUNCTION moved();`, participant.LeaseClass))
	require.NoError(t, err)
	run := func() (stop func()) {
		p := s.new(onePartition)
		participant.Handle(p, count)
		return s.start(p)
	}
	stop := run()
	s.send(s.commands(2, 5)...)
	s.expectAll(2, 5)
	waitFor(t, "the mark to move", func() bool { return s.count("SELECT count(*) FROM moves") > 0 })
	stop()
	require.Zero(t, s.count("SELECT count(*) FROM moves WHERE NOT guarded"))

	frozen, err := s.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer frozen.Release()
	for _, sql := range []string{
		"BEGIN", fmt.Sprintf("SELECT pg_advisory_xact_lock_shared(%d, id) FROM troupe.leases", participant.LeaseClass),
		"UPDATE troupe.leases SET watermark = watermark",
	} {
		_, err = frozen.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	run()
	s.send(s.commandsFrom(5, 2, 1)...)
	s.expectAll(2, 6)
	_, err = frozen.Exec(t.Context(), "SELECT 1")
	require.Error(t, err, "its session was ended")
}

// TestAMemberFrozenAsItTakesALeaseHoldsNobodyUp checks that transaction, which has the exclusive lock, so that Postgres
// ends it, not the next owner.
func TestAMemberFrozenAsItTakesALeaseHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	_, err := s.pool.Exec(t.Context(), `
		CREATE TABLE takes (idle text NOT NULL);
		CREATE FUNCTION took() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO takes VALUES (current_setting('idle_in_transaction_session_timeout'));
			RETURN NULL;
		END $$;
		CREATE TRIGGER took AFTER UPDATE OF term ON troupe.leases FOR EACH ROW EXECUTE FUNCTION took();`)
	require.NoError(t, err)
	run := func() (stop func()) {
		p := s.new(onePartition)
		participant.Handle(p, count)
		return s.start(p)
	}
	stop := run()
	s.send(s.commands(2, 5)...)
	s.expectAll(2, 5)
	stop()
	require.Equal(t, s.count("SELECT count(*) FROM takes"), s.count("SELECT count(*) FROM takes WHERE idle = '5s'"))
	require.Positive(t, s.count("SELECT count(*) FROM takes"))

	frozen, err := s.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer frozen.Release()
	for _, sql := range []string{
		"BEGIN", "SET LOCAL idle_in_transaction_session_timeout = '5s'",
		fmt.Sprintf("SELECT pg_advisory_xact_lock(%d, id) FROM troupe.leases", participant.LeaseClass),
	} {
		_, err = frozen.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	run()
	s.send(s.commandsFrom(5, 2, 1)...)
	s.expectAll(2, 6)
}

// TestALeaseThatIsTakenFences checks that statements of an earlier owner fail, and that it joins again.
func TestALeaseThatIsTakenFences(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.batch = 4
	m := s.member("", 0)
	s.send(s.commands(3, 5)...)
	s.expectAll(3, 5)
	done := 5
	waitFor(t, "the member to be fenced", func() bool { // a member that was slow beyond its session joins again by itself
		_, err := s.pool.Exec(t.Context(), "UPDATE troupe.leases SET term = term + 1")
		require.NoError(t, err)
		s.send(s.commandsFrom(done, 3, 5)...)
		done += 5
		s.expectAll(3, done)
		return strings.Contains(m.log.String(), "another member owns the partition")
	})
	m.terminate(t)
}

// TestAQuietMemberNoticesThatItsLeaseIsTaken checks also that it does not count as a loss of the database's.
func TestAQuietMemberNoticesThatItsLeaseIsTaken(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var log safeBuffer
	p := s.new(onePartition, func(c *participant.Config) { c.Log = zerolog.New(&log) })
	participant.Handle(p, count)
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM done")
	s.waitCount(0, "SELECT watermark FROM troupe.leases WHERE topic = $1", s.hop.Commands())
	waitFor(t, "the log", func() bool { // the member takes the lease again as soon as it has noticed
		_, err := s.pool.Exec(t.Context(), "UPDATE troupe.leases SET term = term + 1")
		require.NoError(t, err)
		return strings.Contains(log.String(), "another member owns the partition")
	})
	require.NotContains(t, log.String(), "has lost transactions")
}
