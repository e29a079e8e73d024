package explore_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/explore"
	"github.com/troupe-go/troupe/saga"
)

const flight = "testdata/flight.saga.json"

func edited(t testing.TB, file string, oldnew ...string) *saga.Definition {
	t.Helper()
	text := string(load(t, file).JSON())
	for i := 0; i < len(oldnew); i += 2 {
		require.Contains(t, text, oldnew[i])
	}
	d, err := saga.Parse([]byte(strings.NewReplacer(oldnew...).Replace(text)))
	require.NoError(t, err)
	return d
}

func TestAStepWithForEachKeepsItsPromises(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]explore.Config{
		"alone": {}, "exhausted": {Exhausted: true, States: 400_000}, "duplicates": {Duplicates: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := explore.Explore(t.Context(), load(t, flight), cfg)
			require.NoError(t, err)
			t.Logf("%d states, ends %v, %v", r.States, r.Ends, r.Lines())
			if r.Counterexample != nil {
				t.Fatalf("%s", r.Counterexample)
			}
			require.Empty(t, r.Lines())
		})
	}
}

// itemMutants are defects in how a step with ForEach decides.
var itemMutants = map[string]struct {
	cfg    explore.Config
	decide decide
	breaks string
}{
	"an item that is done is forgotten by the compensation": {explore.Config{}, before(func(s *saga.State, e *saga.Event) {
		if first := at(s, "seat[0]"); e.Outcome == "failure" && first.Phase == saga.Done {
			first.Phase = saga.Skipped
		}
	}), "step pay is undone before seat[0]"},
	"an item that runs is not waited for": {explore.Config{}, before(func(s *saga.State, e *saga.Event) {
		if other := at(s, "seat[1]"); e.Outcome == "failure" && e.Step == "seat[0]" && other.Phase == saga.Intent {
			other.Phase = saga.Skipped
			s.Deadlines = nil
		}
	}), "step pay is undone before seat[1]"},
	"values are collected in the order of their arrival": {explore.Config{}, after(func(_ saga.State, _ saga.Event, next *saga.State, _ *saga.Effects) {
		if seats, is := next.Data["seats"].([]any); is {
			seats = slices.Clone(seats)
			slices.SortStableFunc(seats, func(a, b any) int { return boolToInt(a == nil) - boolToInt(b == nil) })
			next.Data["seats"] = seats
		}
	}), "data.seats[0] is seats-2, the value of another item"},
	"the value of an item is lost": {explore.Config{}, after(func(_ saga.State, e saga.Event, next *saga.State, _ *saga.Effects) {
		if seats, is := next.Data["seats"].([]any); is && e.Step == "seat[1]" && len(seats) > 0 {
			seats = slices.Clone(seats)
			seats[0] = nil
			next.Data["seats"] = seats
		}
	}), "data.seats[0] had the value of its item and has lost it"},
	"the step is done with its first item": {explore.Config{}, after(func(s saga.State, e saga.Event, next *saga.State, _ *saga.Effects) {
		if e.Step == "seat[0]" && next.Status == saga.Running {
			at(next, "seat").Phase = saga.Done
		}
	}), "step seat is done, and its item seat[1] is intent"},
	"more items run than may": {explore.Config{}, func(d *saga.Definition, s saga.State, e saga.Event, now time.Time) (saga.State, saga.Effects) {
		return saga.Decide(wider(d), s, e, now)
	}, "3 items of step seat run at once: want at most 2"},
	"all items send the command of the first": {explore.Config{}, after(func(_ saga.State, _ saga.Event, _ *saga.State, fx *saga.Effects) {
		fx.Commands = slices.Clone(fx.Commands)
		for i, c := range fx.Commands {
			fx.Commands[i].Step = strings.Replace(c.Step, "[1]", "[0]", 1)
		}
	}), "step seat[0]: the forward command 2 is sent under the idempotency key of command 1"},
	"an answer counts for the item before": {explore.Config{}, before(func(_ *saga.State, e *saga.Event) {
		e.Step = strings.Replace(e.Step, "[1]", "[0]", 1)
	}), "data.seats[0] is seats-2, the value of another item"},
	"the list is read again": {explore.Config{}, before(func(s *saga.State, _ *saga.Event) {
		if list, is := s.Lists["seat"].([]any); is && len(list) > 0 {
			s.Lists = map[string]any{"seat": append(list[1:len(list):len(list)], list[0])}
		}
	}), "the list of step seat has changed since it began"},
	"an empty list is never done": {explore.Config{}, after(func(_ saga.State, e saga.Event, next *saga.State, fx *saga.Effects) {
		if list, is := next.Lists["seat"].([]any); is && len(list) == 0 && e.Step == "pay" && e.Outcome == "success" && next.Status == saga.Running {
			at(next, "seat").Phase, at(next, "ticket").Phase = saga.Intent, saga.StepWaiting
			fx.Commands, next.Deadlines = nil, nil
		}
	}), "nothing will ever happen"},
	"an item begins while the saga goes back": {explore.Config{}, after(func(s saga.State, e saga.Event, next *saga.State, fx *saga.Effects) {
		if last := at(next, "seat[2]"); s.Back && e.Step == "seat[1]" && last.Phase == saga.Skipped {
			last.Phase, last.Started = saga.Intent, 1
			fx.Commands = append(slices.Clip(fx.Commands), saga.Send{Step: "seat[2]", Operation: "forward", Hop: "seats", Type: "BookSeat"})
		}
	}), "seat[2] begins while the saga compensates"},
	"a time-out of an item counts as a refusal": {explore.Config{}, refusedWhenLate, "is refused, and may still take effect"},
	"a retry of an item forgets the doubt": {explore.Config{Buttons: 1, Exhausted: true, States: 300_000}, after(func(
		_ saga.State, e saga.Event, next *saga.State, _ *saga.Effects,
	) {
		if e.Kind == saga.ActRetry {
			at(next, e.Step).Doubt = false
		}
	}), "is refused, and may still take effect"},
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// wider returns d with a step whose items all run at once.
func wider(d *saga.Definition) *saga.Definition {
	spec := d.Spec()
	spec.Steps = slices.Clone(spec.Steps)
	each := *spec.Steps[1].ForEach
	each.Parallel = 0
	spec.Steps[1].ForEach = &each
	wide, err := saga.Define(spec)
	if err != nil {
		panic(err)
	}
	return wide
}

func TestEveryMutantOfForEachIsFound(t *testing.T) {
	t.Parallel()
	for name, m := range itemMutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m.cfg.Decide = m.decide
			r, err := explore.Explore(t.Context(), load(t, flight), m.cfg)
			require.NoError(t, err)
			require.NotNil(t, r.Counterexample, "%d states, complete: %t", r.States, r.Complete)
			require.Contains(t, r.Counterexample.Problem, m.breaks)
			t.Logf("%d states\n%s", r.States, r.Counterexample)
		})
	}
}

func TestTheExplorerMakesTheListsOfAnExpression(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"data.passengers.map(p, p.name)", "data.passengers.filter(p, p != '')", "data.passengers.all"} {
		d := edited(t, flight, `"data.passengers"`, `"`+list+`"`, "passenger.name", "string(passenger)")
		r := sound(t, d, explore.Config{})
		require.Equal(t, 4, r.Ends[saga.Completed], "a list of 0, 1, 2 and 3 elements")
	}
	_, err := explore.Explore(t.Context(), edited(t, flight, `"data.passengers"`, `"[1, 2]"`), explore.Config{})
	require.ErrorContains(t, err, `steps[1].forEach.list: the explorer found no values of variables for which "[1, 2]" is a list of 0, 1, 2 and 3 elements: `+
		`give it the variables at the start`)
}

func TestTheExplorerTakesTheListsThatItIsGiven(t *testing.T) {
	t.Parallel()
	four := []any{}
	for _, name := range []string{"Ada", "Bob", "Cyd", "Dan"} {
		four = append(four, map[string]any{"name": name})
	}
	r := sound(t, load(t, flight), explore.Config{Start: []map[string]any{{"id": "f-1", "passengers": four}}})
	require.Equal(t, 1, r.Ends[saga.Completed])
}

func TestACounterexampleNamesTheItems(t *testing.T) {
	t.Parallel()
	d := edited(t, flight, `"seats": "data.seats"`, `"seats": "data.seats[0]"`)
	r, err := explore.Explore(t.Context(), d, explore.Config{})
	require.NoError(t, err)
	require.Len(t, r.Lines(), 1)
	require.Contains(t, r.Lines()[0], `a saga is parked: seats: "data.seats[0]": `)
	m := itemMutants["the step is done with its first item"]
	r, err = explore.Explore(t.Context(), load(t, flight), explore.Config{Decide: m.decide})
	require.NoError(t, err)
	require.Contains(t, r.Counterexample.String(), "pay done, seat done, ticket waiting, seat[0] done, seat[1] intent")
}
