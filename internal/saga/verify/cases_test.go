package verify_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

// tell returns a step that no rule objects to.
func tell(name, when string, join saga.Join, needs ...string) saga.Step {
	return saga.Step{
		Name: name, When: when, Join: join, Needs: needs,
		Retriable: true, Irreversible: "a notice cannot be withdrawn", Timeout: saga.Duration(time.Minute),
		Command: &saga.Command{Hop: "mail", Type: "Tell"}, Success: []saga.Answer{{Event: "Told"}},
	}
}

// await returns a step whose answers each set a variable to one constant.
func await(name, variable string, values ...string) saga.Step {
	st := saga.Step{Name: name, Timeout: saga.Duration(time.Hour)}
	for _, v := range values {
		st.Success = append(st.Success, saga.Answer{Event: "Found" + v, Hop: "desk", Set: saga.Mapping{variable: v}})
	}
	return st
}

func rulesOf(t *testing.T, spec saga.Spec) (rules []string) {
	t.Helper()
	spec.Saga, spec.Version, spec.Key = "x", 1, "id"
	spec.Data["id"] = saga.String
	d, err := saga.Define(spec)
	require.NoError(t, err)
	for _, f := range verify.Definition(d, verify.Options{}) {
		rules = append(rules, f.Rule)
	}
	return rules
}

func TestConditionsAreToldApart(t *testing.T) {
	t.Parallel()
	branches := func(a, b string, first ...saga.Step) []saga.Step {
		var needs []string
		for _, st := range first {
			needs = append(needs, st.Name)
		}
		return append(first, tell("a", a, saga.All, needs...), tell("b", b, saga.All, needs...), tell("c", "", saga.Merge, "a", "b"))
	}
	data := func() map[string]saga.Type {
		return map[string]saga.Type{"n": saga.Int, "m": saga.Int, "x": saga.Double, "s": saga.String, "any": saga.Any, "flag": saga.Bool}
	}
	for name, test := range map[string]struct {
		steps []saga.Step
		want  []string
	}{
		"numbers that meet":                         {branches("data.n < 10", "data.n >= 10"), nil},
		"numbers with a hole":                       {branches("data.n < 10", "data.n > 11"), []string{"guard-gap"}},
		"a double with a hole of one value":         {branches("data.x < 10.5", "data.x > 10.5"), []string{"guard-gap"}},
		"a double compared with whole numbers":      {branches("data.x < 10.0", "data.x >= 10.0"), nil},
		"both at the boundary":                      {branches("data.n <= 10", "data.n >= 10"), []string{"guard-boundary"}},
		"the boundary with another variable":        {branches("data.flag || data.n < 10", "!data.flag && data.n > 10"), []string{"guard-gap"}},
		"true or false":                             {branches("data.flag", "!data.flag"), nil},
		"text that is one or another":               {branches("data.s == 'a'", "data.s == 'b'"), []string{"guard-gap"}},
		"constants are all there is":                {branches("data.s == 'a'", "data.s == 'b'", await("w", "s", "'a'", "'b'")), nil},
		"a constant that no branch takes":           {branches("data.s == 'a'", "data.s == 'b'", await("w", "s", "'a'", "'b'", "'c'")), []string{"guard-gap"}},
		"what cannot be seen through says nothing":  {branches("data.s.startsWith('x')", "!data.s.startsWith('x')"), nil},
		"a list is not a comparison":                {branches("data.s in ['a', 'b']", "!(data.s in ['a', 'b'])"), nil},
		"two variables":                             {branches("data.n < data.m", "data.n >= data.m"), nil},
		"arithmetic":                                {branches("data.n - data.m < 10", "data.n - data.m >= 10"), nil},
		"a field of anything":                       {branches("data.any.kind == 'a'", "data.any.kind != 'a'"), nil},
		"a condition that contradicts itself":       {[]saga.Step{tell("a", "data.n < 5 && data.n > 5", saga.All)}, []string{"unreachable-step"}},
		"features that are independent are no hole": {[]saga.Step{tell("a", "data.flag", saga.All), tell("b", "data.n > 5", saga.All)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, rulesOf(t, saga.Spec{Data: data(), Steps: test.steps}))
		})
	}
}

func TestAnUnsetVariableNeedsAGuard(t *testing.T) {
	t.Parallel()
	for input, want := range map[string][]string{
		"has(data.s) ? data.s : ''":                   nil,
		"!has(data.s) ? '' : data.s":                  nil,
		"has(data.s) && data.s == 'a' ? 'yes' : 'no'": nil,
		"data.s":                    {"unset-variable"},
		"has(data.s) ? '' : data.s": {"unset-variable"},
		"(has(data.s) || data.flag) ? data.s : 'whatever'": {"unset-variable"},
	} {
		beside := tell("a", "", saga.All)
		beside.Command.Input = saga.Mapping{"s": input}
		require.Equal(t, want, rulesOf(t, saga.Spec{
			Data: map[string]saga.Type{"flag": saga.Bool, "s": saga.String}, Steps: []saga.Step{await("w", "s", "'a'"), beside},
		}), input)
	}
}

func TestAnAnswerOfALaterStepIsUnset(t *testing.T) {
	t.Parallel()
	later := await("w", "s", "'a'")
	later.Needs, later.Join = []string{"first"}, saga.Merge
	spec := saga.Spec{Data: map[string]saga.Type{"s": saga.String}, Steps: []saga.Step{
		{Name: "first"}, tell("asks", "has(data.s)", saga.All), later,
	}}
	require.Empty(t, rulesOf(t, spec), "it may have come: w is parallel")
	spec.Steps[2].Needs = []string{"first", "asks"}
	require.Equal(t, []string{"unreachable-step"}, rulesOf(t, spec))
}

// TestAConditionMayHaveTwoResults checks conditions with one text that two steps evaluate at two times.
func TestAConditionMayHaveTwoResults(t *testing.T) {
	t.Parallel()
	sets := func(st saga.Step, variable string) saga.Step {
		st.Success[0].Set = saga.Mapping{variable: "event.n"}
		return st
	}
	for name, when := range map[string]string{
		"a variable that is set in between": "has(data.x) && data.x > 3",
		"the same, calculated":              "has(data.x) && data.x + 0 > 3",
		"the time":                          "now.getHours('Europe/Berlin') < 12",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			last := tell("last", "", saga.Merge, "first", "second")
			last.Command.Input = saga.Mapping{"v": "data.v"}
			require.Contains(t, rulesOf(t, saga.Spec{
				Data: map[string]saga.Type{"x": saga.Int, "v": saga.Int},
				Steps: []saga.Step{
					sets(tell("first", when, saga.All), "v"), sets(tell("set", "", saga.All), "x"), tell("second", when, saga.All, "set"), last,
				},
			}), "unset-variable", "first is skipped, second is not")
			also := tell("also", when, saga.All)
			last = tell("last", "", saga.All, "first", "also")
			last.Command.Input = saga.Mapping{"v": "data.v"}
			require.NotContains(t, rulesOf(t, saga.Spec{
				Data:  map[string]saga.Type{"x": saga.Int, "v": saga.Int},
				Steps: []saga.Step{sets(tell("first", when, saga.All), "v"), sets(tell("set", "", saga.All), "x"), also, last},
			}), "unset-variable", "both begin in one decision")
		})
	}
}

// TestStepsThatNeedTheSameStepsHaveOneResult: they begin in one decision, whatever the order of the names, unless one begins after the first of them.
func TestStepsThatNeedTheSameStepsHaveOneResult(t *testing.T) {
	t.Parallel()
	const morning = "now.getHours('Europe/Berlin') < 12"
	for name, c := range map[string]struct {
		also  saga.Step
		rules []string
	}{
		"in the same order":   {tell("also", morning, saga.All, "a", "b"), nil},
		"in another order":    {tell("also", morning, saga.All, "b", "a"), nil},
		"with another join":   {tell("also", morning, saga.Merge, "a", "b"), nil},
		"after the first one": {tell("also", morning, saga.First, "a", "b"), []string{"first-goes-on", "join-incomplete"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.rules, rulesOf(t, saga.Spec{Data: map[string]saga.Type{}, Steps: []saga.Step{
				tell("a", "", saga.All), tell("b", "", saga.All), tell("first", morning, saga.All, "a", "b"), c.also, tell("last", "", saga.All, "first", "also"),
			}}))
		})
	}
}
