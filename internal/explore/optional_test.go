package explore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/explore"
	"github.com/troupe-go/troupe/saga"
)

const trip = "testdata/trip.saga.json"

// optionalMutants are defects in the rules of optional steps and quorums.
var optionalMutants = map[string]struct {
	decide decide
	breaks string
}{
	"an optional step in doubt is not compensated": {after(func(_ saga.State, e saga.Event, next *saga.State, fx *saga.Effects) {
		if e.Deadline == "hotel.timeout" && dropped(fx, "compensate", "hotel") {
			at(next, "hotel").Phase = saga.Refused
		}
	}), "step hotel is refused, and may still take effect"},
	"the effect of an optional step in doubt is forgotten": {after(func(_ saga.State, e saga.Event, next *saga.State, fx *saga.Effects) {
		if e.Deadline == "hotel.timeout" && dropped(fx, "compensate", "hotel") {
			at(next, "hotel").Phase = saga.Undone
		}
	}), "has taken effect and is not undone"},
	"a quorum is smaller than declared": {weaker, "step payment begins, and 1 of the steps that it needs are done: want at least 2"},
	"a saga is completed before an optional step is undone": {after(func(
		s saga.State, _ saga.Event, next *saga.State, _ *saga.Effects,
	) {
		if !s.Ended() && next.Status == saga.Running && at(next, "payment").Phase == saga.Done {
			next.Status, next.Deadlines = saga.Completed, nil
		}
	}), "the saga is completed before step"},
	"a late success of an optional step counts, though it is undone": {before(func(s *saga.State, e *saga.Event) {
		if ss := at(s, e.Step); e.Operation == "forward" && e.Outcome == "success" && ss.Phase == saga.CompensateIntent && ss.Tolerated {
			ss.Phase = saga.Doubt
		}
	}), "is sent under the idempotency key"},
	"a step that is needed is tolerated": {before(func(s *saga.State, e *saga.Event) {
		if e.Step == "car" && e.Outcome == "failure" && e.Operation == "forward" {
			at(s, "car").Tolerated = true
		}
	}), "the saga goes on without step car, which is not optional"},
	"an optional step that was undone keeps the saga going back behind its pivot": {before(func(s *saga.State, e *saga.Event) {
		if e.Step == "payment" && e.Outcome == "success" && s.Back {
			for i := range s.Steps {
				s.Steps[i].Tolerated = false
			}
		}
	}), "pivot payment"},
}

// weaker decides as if the definition had a smaller quorum.
func weaker(d *saga.Definition, s saga.State, e saga.Event, now time.Time) (saga.State, saga.Effects) {
	spec := d.Spec()
	spec.Steps = append([]saga.Step(nil), spec.Steps...)
	for i := range spec.Steps {
		spec.Steps[i].AtLeast = min(spec.Steps[i].AtLeast, 1)
	}
	other, err := saga.Define(spec)
	if err != nil {
		panic(err)
	}
	return saga.Decide(other, s, e, now)
}

func TestOptionalStepsAndAQuorumKeepTheirPromises(t *testing.T) {
	t.Parallel()
	r := sound(t, load(t, trip), explore.Config{})
	require.Positive(t, r.Ends[saga.Completed])
	require.Positive(t, r.Ends[saga.Compensated])
}

func TestEveryMutantOfOptionalStepsIsFound(t *testing.T) {
	t.Parallel()
	for name, m := range optionalMutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := explore.Explore(t.Context(), load(t, trip), explore.Config{Buttons: 1, Decide: m.decide, States: 400_000})
			require.NoError(t, err)
			require.NotNil(t, r.Counterexample, "%d states, complete: %t", r.States, r.Complete)
			require.Contains(t, r.Counterexample.Problem, m.breaks)
		})
	}
}
