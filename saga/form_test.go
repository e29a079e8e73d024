package saga_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

func limit(n int64) *int64 { return &n }

// approval is a definition with a step that an operator may answer.
func approval() saga.Spec {
	return saga.Spec{
		Saga: "loan", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String, "cents": saga.Int, "note": saga.String, "rate": saga.Double},
		Steps: []saga.Step{
			{
				Name: "approval", Timeout: saga.Duration(time.Hour), Optional: true,
				Success: []saga.Answer{{
					Event: "Approved", Hop: "desk",
					Set: saga.Mapping{"cents": "event.cents", "rate": "event.rate", "note": "has(event.note) ? event.note : ''"},
					Form: &saga.Form{Title: "Approve the loan", Fields: []saga.Field{
						{Name: "cents", Type: saga.Int, Min: limit(1), Max: limit(100)}, {Name: "rate", Type: saga.Double},
						{Name: "note", Type: saga.String, Optional: true, Max: limit(5), Personal: true},
					}},
				}},
				Failure: []saga.Answer{{
					Event: "Declined", Hop: "desk", When: "event.why != 'other'", Reason: "event.why",
					Form: &saga.Form{Fields: []saga.Field{{Name: "why", Type: saga.String, OneOf: []string{"income", "age", "other"}}}},
				}},
			},
			{Name: "later", Needs: []string{"approval"}, Success: []saga.Answer{{Event: "Signed", Hop: "desk", Form: &saga.Form{}}}},
		},
	}
}

func asAnswered(event string, fields map[string]any) saga.Event {
	return saga.Event{Kind: saga.ActAnswer, Step: "approval", Type: event, Fields: fields, Actor: "ann", Reason: "ticket 7"}
}

// An operator's answer has the effect of the same event from its hop.
func TestAnOperatorsAnswerIsTheEvent(t *testing.T) {
	t.Parallel()
	d, err := saga.Define(approval())
	require.NoError(t, err)
	begun, _ := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "l-1"}}, noon)
	key := "l-1"
	for event, fields := range map[string]map[string]any{
		"Approved": {"cents": int64(7), "rate": 2.0, "note": "short"}, "Declined": {"why": "income"},
	} {
		fromHop, fx := saga.Decide(d, begun, saga.Event{Kind: saga.Observed, Hop: "desk", Type: event, Key: &key, Fields: fields}, noon)
		require.Empty(t, fx.Ignored+fx.Refused)
		byHand, fxHand := saga.Decide(d, begun, asAnswered(event, fields), noon)
		require.Equal(t, fromHop, byHand, event)
		require.Equal(t, fx, fxHand, event)
	}
	whole, fx := saga.Decide(d, begun, asAnswered("Approved", map[string]any{"cents": 7, "rate": int64(2), "note": ""}), noon)
	require.Empty(t, fx.Refused)
	require.Equal(t, map[string]any{"id": "l-1", "cents": int64(7), "rate": 2.0, "note": ""}, whole.Data, "a form without the optional field")
}

// An answer that cannot be applied changes nothing, and the reason says what to do.
func TestAnOperatorsAnswerThatCannotBeAppliedIsRefused(t *testing.T) {
	t.Parallel()
	d, err := saga.Define(approval())
	require.NoError(t, err)
	start := func(s saga.State, es ...saga.Event) saga.State {
		for _, e := range append([]saga.Event{{Kind: saga.Started, Fields: map[string]any{"id": "l-1"}}}, es...) {
			var fx saga.Effects
			s, fx = saga.Decide(d, s, e, noon.Add(2*time.Hour))
			require.Empty(t, fx.Ignored+fx.Refused)
		}
		return s
	}
	begun := start(saga.State{})
	fine := map[string]any{"cents": 7, "rate": 2, "note": "short"}
	with := func(name string, v any) map[string]any {
		all := map[string]any{"cents": 7, "rate": 2}
		if all[name] = v; v == nil {
			delete(all, name)
		}
		return all
	}
	due := begun
	due.Deadlines = []saga.Armed{{Name: "approval.timeout", At: noon}}
	late, _ := saga.Decide(d, due, saga.Event{Kind: saga.Fired, Deadline: "approval.timeout", Keep: true}, noon.Add(2*time.Hour))
	answered := start(saga.State{}, asAnswered("Approved", fine))
	ended := start(saga.State{}, saga.Event{Kind: saga.ActAbandon, Reason: "enough"})
	back := start(saga.State{}, saga.Event{Kind: saga.ActCompensate, Reason: "enough"})
	later := asAnswered("Signed", nil)
	later.Step = "later"
	none := asAnswered("Signed", nil)
	none.Step = "none"
	for name, row := range map[string]struct {
		s    saga.State
		e    saga.Event
		want string
	}{
		"a missing field":         {begun, asAnswered("Approved", with("cents", nil)), "Approved: cents: want a value of type int"},
		"another type":            {begun, asAnswered("Approved", with("cents", "many")), "cents: want a value of type int"},
		"a fraction":              {begun, asAnswered("Approved", with("cents", 7.5)), "cents: want a value of type int"},
		"too little":              {begun, asAnswered("Approved", with("cents", 0)), "cents: 0: want at least 1"},
		"too much":                {begun, asAnswered("Approved", with("cents", 101)), "cents: 101: want at most 100"},
		"a long text":             {begun, asAnswered("Approved", with("note", "äöüäöü")), "note: 6 characters: want at most 5"},
		"no UTF-8":                {begun, asAnswered("Approved", with("note", "\xff")), "note: want text in UTF-8"},
		"a NUL":                   {begun, asAnswered("Approved", with("note", "a\x00")), "note: want text in UTF-8 without the character NUL"},
		"a field too many":        {begun, asAnswered("Approved", with("colour", "red")), `"colour": the form has no such field`},
		"a value off the list":    {begun, asAnswered("Declined", map[string]any{"why": "looks"}), "why: want one of income, age, other"},
		"no condition holds":      {begun, asAnswered("Declined", map[string]any{"why": "other"}), "no answer of step approval accepts these values"},
		"another event":           {begun, asAnswered("Signed", nil), `no form for the event "Signed": want Approved or Declined`},
		"a step that has not":     {begun, later, "step later has not begun"},
		"an unknown step":         {begun, none, `no step "none"`},
		"a second answer":         {answered, asAnswered("Declined", map[string]any{"why": "age"}), "answered before, with Approved: nothing was changed"},
		"a late answer":           {late, asAnswered("Approved", fine), "step approval is optional, and the saga has gone on without it"},
		"a saga that has ended":   {ended, asAnswered("Approved", fine), "the saga has ended: abandoned"},
		"a saga that was undone":  {back, asAnswered("Approved", fine), "the saga has ended: compensated"},
		"a saga that was started": {saga.State{}, asAnswered("Approved", fine), ""},
	} {
		s, fx := saga.Decide(d, row.s, row.e, noon.Add(3*time.Hour))
		require.Contains(t, fx.Refused, row.want, name)
		require.Equal(t, row.s, s, name)
	}
}

// A step that needs no answer any more refuses one while the saga goes on with other steps.
func TestAnOperatorsAnswerToAStepThatIsOverIsRefused(t *testing.T) {
	t.Parallel()
	spec := approval()
	spec.Steps[0].Optional = false
	spec.Steps[1] = saga.Step{
		Name: "work", Command: &saga.Command{Hop: "work", Type: "Work"}, Success: []saga.Answer{{Event: "Worked"}},
		Compensation: &saga.Compensation{Command: &saga.Command{Hop: "work", Type: "Undo"}, Success: []saga.Answer{{Event: "Undone"}}},
	}
	decided := func(spec saga.Spec, es ...saga.Event) (*saga.Definition, saga.State) {
		d, err := saga.Define(spec)
		require.NoError(t, err)
		var s saga.State
		for _, e := range append([]saga.Event{{Kind: saga.Started, Fields: map[string]any{"id": "l-1"}}}, es...) {
			var fx saga.Effects
			s, fx = saga.Decide(d, s, e, noon.Add(2*time.Hour))
			require.Empty(t, fx.Ignored+fx.Refused)
			for i := range s.Deadlines {
				s.Deadlines[i].At = noon
			}
		}
		return d, s
	}
	refused := func(d *saga.Definition, s saga.State, want string) {
		t.Helper()
		after, fx := saga.Decide(d, s, asAnswered("Approved", map[string]any{"cents": 7, "rate": 2}), noon.Add(3*time.Hour))
		require.Contains(t, fx.Refused, want)
		require.Equal(t, s, after)
	}
	d, late := decided(spec, saga.Event{Kind: saga.Fired, Deadline: "approval.timeout"})
	require.False(t, late.Ended(), "the other step is not undone yet")
	refused(d, late, "no answer to step approval came in time")

	spec.Steps[0].When = "data.id == 'l-2'"
	d, skipped := decided(spec)
	refused(d, skipped, "step approval is skipped: it awaits no answer any more")
}

// A form that cannot be filled in, and an expression that reads what the form does not have, are mistakes of the definition.
func TestMistakesInForms(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		change func(approved, declined *saga.Answer, steps []saga.Step)
		want   string
	}{
		"an undeclared field":  {func(a, _ *saga.Answer, _ []saga.Step) { a.Set["cents"] = "event.amount" }, "steps[0].success[0].set.cents: "},
		"another type":         {func(a, _ *saga.Answer, _ []saga.Step) { a.Set["note"] = "event.cents" }, "steps[0].success[0].set.note: "},
		"a wrong comparison":   {func(_, d *saga.Answer, _ []saga.Step) { d.When = "event.why > 7" }, "steps[0].failure[0].when: "},
		"a reason of a number": {func(a, d *saga.Answer, _ []saga.Step) { d.Reason = "event.other" }, "steps[0].failure[0].reason: "},
		"a second answer of the event reads another field": {func(a, _ *saga.Answer, steps []saga.Step) {
			a.When = "event.cents > 7"
			steps[0].Success = append(steps[0].Success, saga.Answer{Event: "Approved", Hop: "desk", When: "event.other"})
		}, "steps[0].success[1].when: "},
		"a second form": {func(a, d *saga.Answer, steps []saga.Step) {
			steps[0].Success = append(steps[0].Success, *a)
		}, "steps[0].success[1].form: Approved has a form in this step already"},
		"a command":          {func(_, _ *saga.Answer, steps []saga.Step) { steps[0].Command = &saga.Command{Hop: "desk", Type: "Ask"} }, "success[0].form: only an event that a step awaits"},
		"any":                {func(a, _ *saga.Answer, _ []saga.Step) { a.Form.Fields[0].Type = saga.Any }, `type "any": want string, int, double or bool`},
		"a name":             {func(a, _ *saga.Answer, _ []saga.Step) { a.Form.Fields[1].Name = "a b" }, `"a b": want letters, digits and underscores`},
		"a field twice":      {func(a, _ *saga.Answer, _ []saga.Step) { a.Form.Fields[1].Name = "cents" }, `two fields "cents"`},
		"limits crossed":     {func(a, _ *saga.Answer, _ []saga.Step) { a.Form.Fields[0].Min = limit(101) }, "101 is more than max"},
		"limits of a bool":   {func(a, _ *saga.Answer, _ []saga.Step) { a.Form.Fields[0].Type = saga.Bool }, "a bool has no limits"},
		"too long a text":    {func(a, _ *saga.Answer, _ []saga.Step) { a.Form.Fields[2].Max = limit(10_001) }, "1 to 10000 for max"},
		"a list of numbers":  {func(a, _ *saga.Answer, _ []saga.Step) { a.Form.Fields[0].OneOf = []string{"1"} }, "only a string without min and max has a list"},
		"a value twice":      {func(_, d *saga.Answer, _ []saga.Step) { d.Form.Fields[0].OneOf = []string{"a", "a"} }, "oneOf[1]: want a text of 1 to 200 characters on one line, listed once"},
		"a title of lines":   {func(a, _ *saga.Answer, _ []saga.Step) { a.Form.Title = "a\nb" }, "form.title: want at most 200 characters on one line"},
		"a title of a field": {func(a, _ *saga.Answer, _ []saga.Step) { a.Form.Fields[0].Title = strings.Repeat("a", 201) }, "fields[0].title: want at most 200"},
		"too many fields":    {func(a, _ *saga.Answer, _ []saga.Step) { a.Form.Fields = make([]saga.Field, 33) }, "33 fields: at most 32"},
	} {
		spec := approval()
		row.change(&spec.Steps[0].Success[0], &spec.Steps[0].Failure[0], spec.Steps)
		_, err := saga.Define(spec)
		require.ErrorContains(t, err, row.want, name)
	}
	spec := approval()
	spec.Cancel = &saga.Cancel{Events: []saga.Answer{{Event: "Stop", Hop: "customer", Form: &saga.Form{}}}}
	_, err := saga.Define(spec)
	require.ErrorContains(t, err, "cancel.events[0].form: only an event that a step awaits")
}
