package verify_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/saga"
)

// asked returns a step that the business may refuse. Its answer sets ref.
func asked(name, ref string, optional bool, needs ...string) saga.Step {
	st := tell(name, "", saga.All, needs...)
	st.Optional, st.Retriable = optional, false
	st.Success = []saga.Answer{{Event: "Told", Set: saga.Mapping{ref: "event.ref"}}}
	st.Failure = []saga.Answer{{Event: "NotTold"}}
	return st
}

func with(st saga.Step, change func(st *saga.Step)) saga.Step {
	change(&st)
	return st
}

func reads(expression string) func(st *saga.Step) {
	return func(st *saga.Step) {
		st.Command = &saga.Command{Hop: "mail", Type: "Tell", Input: saga.Mapping{"in": expression}}
	}
}

func TestTheVerifierKnowsThatAnOptionalStepMayFail(t *testing.T) {
	t.Parallel()
	quorum := func(n int) func(st *saga.Step) { return func(st *saga.Step) { st.AtLeast = n } }
	join := func(j saga.Join) func(st *saga.Step) { return func(st *saga.Step) { st.Join = j } }
	pivot := func(st *saga.Step) { st.Pivot, st.Irreversible = true, "" }
	a, b := asked("a", "aref", true), asked("b", "bref", true)
	undone := func(st *saga.Step) {
		st.Irreversible, st.Compensation = "", &saga.Compensation{
			Command: &saga.Command{Hop: "mail", Type: "Undo"}, Success: []saga.Answer{{Event: "Undone"}},
		}
	}
	for name, test := range map[string]struct {
		steps []saga.Step
		want  string // "" or the rule and a part of the text
	}{
		"a variable of a step that may fail": {[]saga.Step{a, with(tell("c", "", saga.All, "a"), reads("data.aref"))},
			"unset-variable: steps[1].command.input.in: data.aref may not be set: a sets it, which is optional and may fail"},
		"a variable that is asked for": {[]saga.Step{a, with(tell("c", "", saga.All, "a"), reads("has(data.aref) ? data.aref : ''"))}, ""},
		"a variable of a needed step":  {[]saga.Step{asked("a", "aref", false), with(tell("c", "", saga.All, "a"), reads("data.aref"))}, ""},
		"one of two is enough, and the variable of one is read": {
			[]saga.Step{a, b, with(with(tell("c", "", saga.All, "a", "b"), quorum(1)), reads("data.aref"))}, "unset-variable: steps[2]"},
		"both are enough, and the variable of one is read": {
			[]saga.Step{a, b, with(with(tell("c", "", saga.All, "a", "b"), quorum(2)), reads("data.aref"))}, ""},
		"the first of two optional steps": {[]saga.Step{a, b, with(tell("c", "", saga.All, "a", "b"), join(saga.Merge))},
			"warning: join-incomplete: steps[2].needs: c is skipped where the optional steps that it needs fail: a, b"},
		"a quorum that is never reached": {[]saga.Step{
			with(a, func(st *saga.Step) { st.When = "data.n < 1" }), with(b, func(st *saga.Step) { st.When = "data.n >= 1" }),
			with(tell("c", "", saga.All, "a", "b"), quorum(2))},
			"join-never: steps[2].atLeast: c never begins: of a, b never so many as 2 are done"},
		"a step behind the pivot may fail":   {[]saga.Step{with(tell("p", "", saga.All), pivot), asked("a", "aref", true, "p")}, ""},
		"a quorum behind the pivot may fail": {[]saga.Step{with(tell("p", "", saga.All), pivot), asked("a", "aref", true, "p"), with(tell("c", "", saga.All, "a"), quorum(1))}, "fallible-after-pivot: steps[2]"},
		"an optional quorum behind the pivot": {[]saga.Step{with(tell("p", "", saga.All), pivot), asked("a", "aref", true, "p"),
			with(with(tell("c", "", saga.All, "a"), quorum(1)), func(st *saga.Step) { st.Optional = true })}, ""},
		"an optional step that is undone behind the pivot": {[]saga.Step{with(tell("p", "", saga.All), pivot), with(asked("a", "aref", true, "p"), undone)}, ""},
		"a quorum sends a step back that nothing undoes": {[]saga.Step{
			with(a, func(st *saga.Step) { st.Irreversible = "" }), b, with(tell("c", "", saga.All, "a", "b"), quorum(2))},
			"no-way-back: steps[0]: a stays done when c fails"},
		"the compensation reads what a late step did not set": {[]saga.Step{with(with(a, undone), func(st *saga.Step) {
			st.Timeout, st.Compensation.Command.Input = 0, saga.Mapping{"in": "data.aref"}
		})}, "compensation-unset: steps[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := saga.Define(saga.Spec{Saga: "x", Version: 1, Key: "id", Timeout: saga.Duration(1 << 50), Steps: test.steps,
				Data: map[string]saga.Type{"id": saga.String, "aref": saga.String, "bref": saga.String, "n": saga.Int}})
			require.NoError(t, err)
			var found []string
			for _, f := range verify.Definition(d, verify.Options{}) {
				found = append(found, f.String())
			}
			all := strings.Join(found, "\n")
			if test.want == "" {
				require.Empty(t, all)
			}
			require.Contains(t, all, test.want)
		})
	}
}
