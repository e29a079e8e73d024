package explore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/explore"
	"github.com/troupe-go/troupe/saga"
)

const cancelled = "testdata/cancel.saga.json"

func TestASagaThatIsCancelledKeepsItsPromises(t *testing.T) {
	t.Parallel()
	for _, cfg := range []explore.Config{{}, {Duplicates: 1}, {Exhausted: true, Buttons: 1}, {Unordered: true}} {
		r := sound(t, load(t, cancelled), cfg)
		require.Positive(t, r.Ends[saga.Completed])
		require.Positive(t, r.Ends[saga.Compensated])
	}
}

// cancelMutants are defects in the rules of a cancel.
var cancelMutants = map[string]struct {
	decide decide
	breaks string
}{
	"a cancel is accepted while the pivot runs": {before(func(s *saga.State, e *saga.Event) {
		if e.Type == "CancelRequested" || e.Kind == saga.ActCancel {
			at(s, "payment").Phase = saga.StepWaiting
		}
	}), "a cancel is accepted after step payment has begun"},
	"a cancel is refused before the pivot": {before(func(s *saga.State, e *saga.Event) {
		if e.Type == "CancelRequested" && at(s, "flight").Phase == saga.Done {
			at(s, "payment").Phase = saga.Done
		}
	}), "a cancel is refused before its step or a pivot has begun"},
	"an accepted cancel does not compensate": {after(func(_ saga.State, _ saga.Event, next *saga.State, fx *saga.Effects) {
		if next.Cancel == saga.CancelAccepted && dropped(fx, "compensate", "flight") {
			at(next, "flight").Phase, next.Status, next.Deadlines = saga.Undone, saga.Compensated, nil
		}
	}), "step flight has taken effect and is not undone"},
	"a cancelled saga goes on": {after(func(_ saga.State, _ saga.Event, next *saga.State, _ *saga.Effects) {
		if next.Cancel == saga.CancelAccepted && next.Status == saga.Compensating {
			next.Back, next.Status = false, saga.Running
		}
	}), "a cancel is accepted, and the saga does not go back"},
	"a refused cancel is not announced": {after(func(_ saga.State, e saga.Event, _ *saga.State, fx *saga.Effects) {
		if e.Type == "CancelRequested" {
			fx.Events = nil
		}
	}), "a cancel is refused, and 0 events say so: want 1"},
}

func TestEveryMutantOfACancelIsFound(t *testing.T) {
	t.Parallel()
	for name, m := range cancelMutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := explore.Explore(t.Context(), load(t, cancelled), explore.Config{Decide: m.decide})
			require.NoError(t, err)
			require.NotNil(t, r.Counterexample, "%d states, complete: %t", r.States, r.Complete)
			require.Contains(t, r.Counterexample.Problem, m.breaks)
		})
	}
}

// A cancel whose condition never holds is a part that no execution uses.
func TestACancelThatNoExecutionUsesIsUnseen(t *testing.T) {
	t.Parallel()
	spec := load(t, cancelled).Spec()
	spec.Cancel = &saga.Cancel{Operator: true, Events: []saga.Answer{{Hop: "customer", Event: "CancelRequested", When: "event.n > 1 && event.n < 1"}}}
	d, err := saga.Define(spec)
	require.NoError(t, err)
	r, err := explore.Explore(t.Context(), d, explore.Config{})
	require.NoError(t, err)
	require.False(t, r.Complete)
	require.Equal(t, []string{"cancel.events[0]: CancelRequested"}, r.Unseen.Answers)
}
