package explore_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/explore"
	"github.com/troupe-go/troupe/saga"
)

type decide = func(*saga.Definition, saga.State, saga.Event, time.Time) (saga.State, saga.Effects)

// before is a defect in how an event, or the resulting state, is interpreted. s is the mutant's own.
func before(change func(s *saga.State, e *saga.Event)) decide {
	return func(d *saga.Definition, s saga.State, e saga.Event, now time.Time) (saga.State, saga.Effects) {
		own := clone(s)
		change(&own, &e)
		next, fx := saga.Decide(d, own, e, now)
		if fx.Ignored != "" || fx.Refused != "" {
			return s, fx
		}
		return next, fx
	}
}

// after is a defect in the effects of a decision.
func after(change func(s saga.State, e saga.Event, next *saga.State, fx *saga.Effects)) decide {
	return func(d *saga.Definition, s saga.State, e saga.Event, now time.Time) (saga.State, saga.Effects) {
		next, fx := saga.Decide(d, s, e, now)
		next = clone(next)
		change(s, e, &next, &fx)
		return next, fx
	}
}

func clone(s saga.State) saga.State {
	s.Steps, s.Deadlines, s.Data = slices.Clone(s.Steps), slices.Clone(s.Deadlines), maps.Clone(s.Data)
	return s
}

func at(s *saga.State, name string) *saga.StepState {
	i := slices.IndexFunc(s.Steps, func(ss saga.StepState) bool { return ss.Name == name })
	if i < 0 {
		return &saga.StepState{}
	}
	return &s.Steps[i]
}

func dropped(fx *saga.Effects, operation, step string) (found bool) {
	fx.Commands = slices.DeleteFunc(slices.Clone(fx.Commands), func(c saga.Send) bool {
		is := c.Operation == operation && c.Step == step
		found = found || is
		return is
	})
	return found
}

const (
	parallel = "testdata/parallel.saga.json"
	approval = "testdata/approval.saga.json"
)

// mutants are defects of published patterns, and some others, put into Decide. The numbers are from the list of defects.
var mutants = map[string]struct {
	file   string
	cfg    explore.Config
	decide decide
	breaks string // part of the problem's text
}{
	"a compensation is forgotten (3)": {order, explore.Config{}, before(func(s *saga.State, e *saga.Event) {
		if inv := at(s, "inventory"); inv.Phase == saga.Done && e.Outcome == "failure" {
			inv.Phase = saga.Skipped
		}
	}), "payment is undone before inventory"},
	"a command is never sent (A02)": {order, explore.Config{}, after(func(_ saga.State, _ saga.Event, _ *saga.State, fx *saga.Effects) {
		dropped(fx, "forward", "shipping")
	}), "can never come"},
	"a compensation is never sent (8)": {order, explore.Config{}, after(func(_ saga.State, _ saga.Event, _ *saga.State, fx *saga.Effects) {
		dropped(fx, "compensate", "payment")
	}), "can never come"},
	"the compensation has no end (8)": {order, explore.Config{}, func(
		d *saga.Definition, s saga.State, e saga.Event, now time.Time,
	) (saga.State, saga.Effects) {
		if e.Operation == "compensate" {
			return s, saga.Effects{Ignored: "no worker sets this state"}
		}
		return saga.Decide(d, s, e, now)
	}, "can never come"},
	"the version stays (4)": {order, explore.Config{}, after(func(s saga.State, _ saga.Event, next *saga.State, _ *saga.Effects) {
		next.Version = max(s.Version, 1)
	}), "want one more"},
	"all commands have one idempotency key (9)": {order, explore.Config{Buttons: 1, Exhausted: true}, after(func(
		_ saga.State, e saga.Event, next *saga.State, fx *saga.Effects,
	) {
		if e.Kind == saga.ActRetry {
			for i := range fx.Commands {
				fx.Commands[i].Epoch = 0
			}
			at(next, e.Step).Epoch, at(next, e.Step).BackEpoch = 0, 0
		}
	}), "under the idempotency key"},
	"a time-out counts as a refusal (11)": {order, explore.Config{}, refusedWhenLate, "is refused, and may still take effect"},
	"a time-out ends a step that is done (12)": {order, explore.Config{}, after(func(
		s saga.State, e saga.Event, next *saga.State, _ *saga.Effects,
	) {
		if e.Kind == saga.Answered && e.Step == "payment" && e.Outcome == "success" && e.Operation == "forward" {
			next.Deadlines = append(next.Deadlines, s.Deadlines...)
		}
	}), "deadline payment.timeout is armed"},
	"a late answer opens the saga again (12)": {order, explore.Config{Duplicates: 1}, func(
		d *saga.Definition, s saga.State, e saga.Event, now time.Time,
	) (saga.State, saga.Effects) {
		if s.Status == saga.Compensated && e.Outcome == "success" {
			s.Status, s.Version = saga.Running, s.Version+1
			return s, saga.Effects{}
		}
		return saga.Decide(d, s, e, now)
	}, "had ended as compensated"},
	"progress of the compensation is forgotten (13)": {order, explore.Config{}, after(func(
		_ saga.State, e saga.Event, next *saga.State, _ *saga.Effects,
	) {
		if inv := at(next, "inventory"); inv.Phase == saga.Undone && e.Step == "inventory" {
			inv.Phase = saga.CompensateIntent
		}
	}), "can never come"},
	"a failed compensation counts as done (14)": {order, explore.Config{Exhausted: true}, before(func(_ *saga.State, e *saga.Event) {
		if e.Operation == "compensate" {
			e.Outcome, e.Epoch = "success", 0
		}
	}), "is not undone"},
	"a compensation is sent as the forward call (15)": {order, explore.Config{}, after(func(
		_ saga.State, _ saga.Event, _ *saga.State, fx *saga.Effects,
	) {
		fx.Commands = slices.Clone(fx.Commands)
		for i := range fx.Commands {
			fx.Commands[i].Operation = "forward"
		}
	}), "under the idempotency key"},
	"a compensation does not say that it is in doubt (20)": {order, explore.Config{}, after(func(
		_ saga.State, _ saga.Event, _ *saga.State, fx *saga.Effects,
	) {
		fx.Commands = slices.Clone(fx.Commands)
		for i := range fx.Commands {
			fx.Commands[i].Doubt = false
		}
	}), "never took effect"},
	"a running step is forgotten by the compensation": {parallel, explore.Config{}, before(func(s *saga.State, e *saga.Event) {
		if e.Outcome != "failure" || e.Operation != "forward" || at(s, e.Step).Phase != saga.Intent {
			return
		}
		for i := range s.Steps {
			if s.Steps[i].Phase == saga.Intent && s.Steps[i].Name != e.Step {
				s.Steps[i].Phase = saga.Skipped
				s.Deadlines = slices.DeleteFunc(s.Deadlines, func(a saga.Armed) bool { return strings.HasPrefix(a.Name, s.Steps[i].Name) })
			}
		}
	}), "has taken effect and is not undone"},
	"compensation goes forward": {order, explore.Config{}, after(func(_ saga.State, _ saga.Event, next *saga.State, fx *saga.Effects) {
		pay, inv := at(next, "payment"), at(next, "inventory")
		if pay.Phase == saga.Done && inv.Phase == saga.CompensateIntent {
			pay.Phase, inv.Phase = inv.Phase, pay.Phase
			fx.Commands = slices.Clone(fx.Commands)
			fx.Commands[0].Step, fx.Commands[0].Hop, fx.Commands[0].Type = "payment", "payment", "RefundPayment"
		}
	}), "undone before inventory"},
	"given up counts as refused": {order, explore.Config{Exhausted: true}, before(func(_ *saga.State, e *saga.Event) {
		if e.Outcome == "exhausted" && e.Operation == "forward" {
			e.Outcome = "failure"
		}
	}), "is refused, and may still take effect"},
	"a step in intent is overlooked at the end": {parallel, explore.Config{}, after(func(
		s saga.State, _ saga.Event, next *saga.State, _ *saga.Effects,
	) {
		if !s.Ended() && at(next, "pay").Phase == saga.Done {
			next.Status, next.Deadlines = saga.Completed, nil
		}
	}), "the saga is completed, and step ticket is intent"},
	"the pivot does not hold": {parallel, explore.Config{Exhausted: true}, after(func(
		s saga.State, _ saga.Event, next *saga.State, fx *saga.Effects,
	) {
		if s.Status == saga.Running && next.Status == saga.Parked && at(next, "pay").Phase == saga.Done {
			next.Status, next.Back, next.Deadlines = saga.Compensating, true, nil
			at(next, "car").Phase = saga.CompensateIntent
			fx.Commands = []saga.Send{{Step: "car", Operation: "compensate", Hop: "cars", Type: "CancelCar"}}
		}
	}), "after the pivot pay"},
	"a pivot under way is not waited for": {parallel, explore.Config{}, before(func(s *saga.State, e *saga.Event) {
		if e.Kind == saga.Fired && e.Deadline == saga.TimeoutName && at(s, "pay").Phase == saga.Intent {
			at(s, "pay").Phase = saga.Refused
		}
	}), "is refused, and may still take effect"},
	"a duplicate starts the next step again (D11)": {order, explore.Config{Duplicates: 1}, after(func(
		s saga.State, e saga.Event, _ *saga.State, fx *saga.Effects,
	) {
		if e.Step == "payment" && fx.Ignored != "" && at(&s, "inventory").Phase == saga.Intent {
			fx.Commands = []saga.Send{{Step: "inventory", Operation: "forward", Hop: "inventory", Type: "ReserveStock"}}
		}
	}), "under the idempotency key"},
	"an ended saga keeps its deadlines (D14)": {approval, explore.Config{}, after(func(
		s saga.State, _ saga.Event, next *saga.State, _ *saga.Effects,
	) {
		if next.Ended() {
			next.Deadlines = s.Deadlines
		}
	}), "is armed"},
	"an early event is lost (D02)": {approval, explore.Config{}, after(func(_ saga.State, _ saga.Event, _ *saga.State, fx *saga.Effects) {
		fx.Early = false
	}), "nothing will ever happen"},
	"no alert is sent that it is parked (A26)": {order, explore.Config{Exhausted: true}, after(func(
		_ saga.State, _ saga.Event, _ *saga.State, fx *saga.Effects,
	) {
		fx.Alert = ""
	}), "without an alert"},
	"a person can do nothing (14)": {order, explore.Config{Exhausted: true}, func(
		d *saga.Definition, s saga.State, e saga.Event, now time.Time,
	) (saga.State, saga.Effects) {
		if e.Kind.Action() && e.Kind != saga.ActAbandon {
			return s, saga.Effects{Refused: "not now"}
		}
		return saga.Decide(d, s, e, now)
	}, "can do nothing but abandon"},
	"the answer to an earlier command decides": {parallel, explore.Config{Buttons: 1, Duplicates: 1}, before(func(
		s *saga.State, e *saga.Event,
	) {
		if e.Kind == saga.Answered && e.Operation == "forward" {
			e.Epoch = at(s, e.Step).Epoch
		}
	}), "ticket is refused, and may still take effect"},
	"a retry forgets the doubt": {order, explore.Config{Buttons: 1, Exhausted: true}, after(func(
		_ saga.State, e saga.Event, next *saga.State, _ *saga.Effects,
	) {
		if e.Kind == saga.ActRetry {
			at(next, e.Step).Doubt = false
		}
	}), "is refused, and may still take effect"},
}

func refusedWhenLate(d *saga.Definition, s saga.State, e saga.Event, now time.Time) (saga.State, saga.Effects) {
	if step, ok := strings.CutSuffix(e.Deadline, "."+saga.TimeoutName); ok && at(&s, step).Phase == saga.Intent {
		e = saga.Event{Kind: saga.Answered, Step: step, Operation: "forward", Outcome: "failure", Type: "TimedOut"}
	}
	return saga.Decide(d, s, e, now)
}

func TestEveryMutantIsFound(t *testing.T) {
	t.Parallel()
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := load(t, m.file)
			sound(t, d, m.cfg)
			m.cfg.Decide = m.decide
			r, err := explore.Explore(t.Context(), d, m.cfg)
			require.NoError(t, err)
			require.NotNil(t, r.Counterexample, "%d states, complete: %t", r.States, r.Complete)
			require.Contains(t, r.Counterexample.Problem, m.breaks)
			t.Logf("%d states\n%s", r.States, r.Counterexample)
		})
	}
}

// Decide is pure: the same arguments always give the same decision.
func TestADecisionByChanceIsFound(t *testing.T) {
	t.Parallel()
	calls := 0
	r, err := explore.Explore(t.Context(), load(t, order), explore.Config{Decide: func(
		d *saga.Definition, s saga.State, e saga.Event, now time.Time,
	) (saga.State, saga.Effects) {
		next, fx := saga.Decide(d, s, e, now)
		if calls++; calls%5 == 0 {
			next.Back = !next.Back
		}
		return next, fx
	}})
	require.NoError(t, err)
	require.NotNil(t, r.Counterexample)
}
