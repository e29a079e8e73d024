package participant_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// TestAFrozenMemberHoldsNobodyUp_B16 freezes a member, lets another take its partitions, and wakes it: inside its
// transaction, where the new owner must not wait for it, and between two.
func TestAFrozenMemberHoldsNobodyUp_B16(t *testing.T) {
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
			// A database that is slow to answer is not waited for at the end, which is said.
			refused := strings.Count(frozen.log.String()+second.log.String(), "lease not released")
			require.LessOrEqual(t, s.count("SELECT count(*) FROM troupe.leases WHERE released_at IS NULL"), refused)
		})
	}
}

// waitFrozen waits until nothing moves any more.
func (s *stage) waitFrozen(m *process) {
	s.t.Helper()
	testkit.Wait(s.t, "the member is frozen", func() (bool, error) {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(m.Process.Pid, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		return pid == m.Process.Pid && status.Stopped(), err
	})
}

// TestALeaseThatIsTakenFences: what an owner of yesterday does fails, and it joins again.
func TestALeaseThatIsTakenFences(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.batch = 4
	m := s.member("", 0)
	s.send(s.commands(3, 5)...)
	s.expectAll(3, 5)
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.leases SET term = term + 1")
	require.NoError(t, err)
	s.send(s.commandsFrom(5, 3, 5)...)
	s.expectAll(3, 10)
	m.waitSaid(t, "another member owns the partition")
	m.terminate(t)
}
