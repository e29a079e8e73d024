package coordinator_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// both runs a test over Kafka and in one database without it.
func both(t *testing.T, do func(t *testing.T, f *flow)) {
	for name, local := range map[string]bool{"Kafka": false, "Postgres alone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			do(t, newFlow(t, local))
		})
	}
}

// Completed sagas run each step once, and their logs fold to their rows: promises A03, A14 and B09.
func TestSagasComplete(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flow) {
		var ids []string
		for i := range 20 {
			ids = append(ids, f.start(fmt.Sprint("o-", i)))
		}
		for i, id := range ids {
			s := f.await(id, saga.Completed)
			require.Equal(t, "s-1", s.Data["shipment_id"])
			require.Equal(t, []string{"payment/forward", "inventory/forward", "shipping/forward"}, f.effects(fmt.Sprint("o-", i)))
			f.replayed(id)
		}
	})
}

// A refused shipment compensates the steps that are done, each once: promises A16 and B12, and defect 3.
func TestARefusedShipmentUndoesTheRest(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flow) {
		f.set(f.refuse, "o-1 shipping/forward", "no carrier")
		id := f.start("o-1")
		s := f.await(id, saga.Compensated)
		require.Equal(t, "no carrier", s.Reason)
		require.Equal(t, []string{"payment/forward", "payment/compensate", "inventory/forward", "inventory/compensate"}, f.effects("o-1"))
		f.replayed(id)
	})
}

// A command that is given up parks the saga, and an operator acts: promise A24, and defect 14.
func TestAnExhaustedStepParksAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flow) {
		f.setFail("o-1 inventory/forward", errors.New("no forklift"))
		id := f.start("o-1")
		s := f.await(id, saga.Parked)
		require.Contains(t, s.Reason, "no forklift")
		_, err := f.act(id, saga.Event{Kind: saga.ActRetry, Step: "payment"})
		require.ErrorContains(t, err, "only a failed step can be retried")
		f.setFail("o-1 inventory/forward", nil)
		_, err = f.act(id, saga.Event{Kind: saga.ActRetry, Step: "inventory"})
		require.NoError(t, err)
		f.await(id, saga.Completed)
		require.Equal(t, []string{"payment/forward", "inventory/forward", "shipping/forward"}, f.effects("o-1"))
		f.replayed(id)
	})
}

// A command without an answer is in doubt when its time is up. Its compensation overtakes it, and the command then has no
// effect.
func TestAStepThatIsNotAnsweredInTimeIsUndone(t *testing.T) {
	t.Parallel()
	spec := order(t).Spec()
	spec.Steps[1].Timeout = saga.Duration(300 * time.Millisecond)
	minute := saga.Duration(time.Minute)
	spec.Steps[1].Retry = &saga.Retry{Attempts: 100, Initial: minute, Cap: minute, Try: saga.Duration(time.Second)}
	d, err := saga.Define(spec)
	require.NoError(t, err)
	f := newFlow(t, false, d)
	f.setFail("o-1 inventory/forward", errors.New("the pallet is blocked"))
	id := f.start("o-1")
	testkit.Wait(t, id+" to be compensated", func() (is bool, err error) {
		return is, f.pool.QueryRow(t.Context(), "SELECT status = 'compensated' FROM troupe.sagas WHERE id = $1", id).Scan(&is)
	})
	require.Equal(t, []string{"payment/forward", "payment/compensate"}, f.effects("o-1"))
	var why string
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT why FROM troupe.saga_log WHERE saga_id = $1 AND what = 'StepTimedOut'", id).Scan(&why))
	require.Equal(t, "no answer within 300ms", why)
}

// TestAnEffectThatComesAfterAPersonDeniedItIsADeadLetter: a person states that a step did not happen, and another person redrives the
// dead letter of its command afterwards.
func TestAnEffectThatComesAfterAPersonDeniedItIsADeadLetter(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flow) {
		f.setFail("o-1 inventory/forward", errors.New("no forklift"))
		id := f.start("o-1")
		f.await(id, saga.Parked)
		_, err := f.act(id, saga.Event{Kind: saga.ActResolve, Step: "inventory"})
		require.NoError(t, err)
		f.await(id, saga.Compensated)
		f.setFail("o-1 inventory/forward", nil)
		desk, err := repair.New(repair.Config{Pool: f.pools["inventory"]})
		require.NoError(t, err)
		_, err = desk.Redrive(t.Context(), repair.Filter{Key: repair.Key("o-1")}, repair.RedriveConfig{
			By: admin.Actor{Name: "ann", Reason: "a test"}, Rate: -1,
		})
		require.NoError(t, err)
		f.waitCount("a dead letter of the answer", 1, "SELECT count(*) FROM troupe.dead_letters WHERE error LIKE '%step inventory took effect%'")
		require.Equal(t, []string{"payment/forward", "payment/compensate", "inventory/forward"}, f.effects("o-1"))
		f.replayed(id)
	})
}
