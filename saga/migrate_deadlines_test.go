package saga_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

const oneStep = `"steps":[{"name":"a","command":{"hop":"a","type":"A"},"success":[{"event":"ADone"WHEN}],"failure":[{"event":"ANo"}],"irreversible":"x"}]}`

func TestASagaDoesNotMoveToAnAnswerOrAnEndThatReadsAMissingValue(t *testing.T) {
	const text = `{"saga":"order","version":VER,"key":"id","data":{"id":"string","cents":"int","n":"int"},"start":[{"hop":"web","event":"E","set":{"id":"event.id"SET}}],ENDS` + oneStep
	const set = `,"cents":"event.cents"`
	const free = `"ends":[{"when":"CONDITION","then":"complete","emit":[{"event":"Free","input":{"x":"data.cents"}}]}],`
	v1 := parse(t, text, "VER", "1", "SET", "", "ENDS", "", "WHEN", "")
	s, fx := saga.Decide(v1, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1"}}, noon)
	require.Empty(t, fx.Refused)
	for name, c := range map[string]struct{ ends, when, want string }{
		"the condition of an answer":   {"", `,"when":"event.n > data.cents"`, "an answer to step a reads data.cents"},
		"the variables that it sets":   {"", `,"set":{"n":"data.cents + 1"}`, "an answer to step a reads data.cents"},
		"the event of an end":          {strings.ReplaceAll(free, "CONDITION", "saga.key == 'o-1'"), "", "ends[0] reads data.cents"},
		"an end that is not met unset": {strings.ReplaceAll(free, "CONDITION", "data.cents > 3"), "", ""},
		"an answer that tests it":      {"", `,"when":"has(data.cents) && event.n > data.cents"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			to := parse(t, text, "VER", "2", "SET", set, "ENDS", c.ends, "WHEN", c.when)
			_, err := saga.Migrate(v1, to, s)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestASagaThatWaitsForItsLockDoesNotMoveToADeadlineThatReadsAMissingValue(t *testing.T) {
	v1 := parse(t, `{"saga":"order","version":1,"key":"id","lock":"data.id","timeout":"1h","data":{"id":"string"},`+oneStep, "WHEN", "")
	v2 := parse(t, `{"saga":"order","version":2,"key":"id","lock":"data.id","timeout":"1h","data":{"id":"string","cents":"int"},
"start":[{"hop":"web","event":"E","set":{"id":"event.id","cents":"event.cents"}}],"deadlines":[{"name":"over","after":"2h","payload":{"c":"data.cents"},"then":"park"}],`+oneStep, "WHEN", "")
	for locked, want := range map[bool]string{true: "deadline over reads data.cents", false: ""} {
		s, fx := saga.Decide(v1, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1"}, Locked: locked}, noon)
		require.Empty(t, fx.Refused)
		_, err := saga.Migrate(v1, v2, s)
		if want == "" {
			require.NoError(t, err, "no deadline of it counts from the start any more")
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

func TestASagaDoesNotMoveToADeadlineThatReadsAMissingPayload(t *testing.T) {
	const text = `{"saga":"order","version":VER,"key":"id","data":{"id":"string"},
"deadlines":[{"name":"over","after":"2h","payload":{"PAYLOAD":"data.id"},"emit":[{"event":"Late","input":{"x":"READ"}}]}],` + oneStep
	v1 := parse(t, text, "VER", "1", "PAYLOAD", "old", "READ", "deadline.old", "WHEN", "")
	s, _ := saga.Decide(v1, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1"}}, noon)
	_, err := saga.Migrate(v1, parse(t, text, "VER", "2", "PAYLOAD", "of", "READ", "deadline.of", "WHEN", ""), s)
	require.ErrorContains(t, err, "deadline over reads deadline.of")
	for _, read := range []string{"has(deadline.of) ? deadline.of : ''", "data.id"} {
		_, err = saga.Migrate(v1, parse(t, text, "VER", "2", "PAYLOAD", "of", "READ", read, "WHEN", ""), s)
		require.NoError(t, err)
	}
}

// TestTheEventOfADeadlineIsNoEventOfAnotherOneAfterAMove has a deadline that emits a reminder. Once it is met, the saga is moved to a definition
// that lists another deadline before it, which emits a reminder too. The id of an event depends on its path.
func TestTheEventOfADeadlineIsNoEventOfAnotherOneAfterAMove(t *testing.T) {
	const text = `{"saga":"order","version":VER,"key":"id","data":{"id":"string"},
"deadlines":[MORE{"name":"first","after":"1h","emit":[{"event":"Remind"}]}],"steps":[
  {"name":"a","success":[{"event":"ADone","hop":"a"}]},{"name":"b","needs":["a"],"success":[{"event":"BDone","hop":"b"}]}]}`
	v1 := parse(t, text, "VER", "1", "MORE", "")
	v2 := parse(t, text, "VER", "2", "MORE", `{"name":"second","after":"1h","since":"b","emit":[{"event":"Remind"}]},`)
	r := &run{t: t, d: v1, now: noon}
	r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1"}})
	r.now = noon.Add(time.Hour)
	first := r.take(saga.Event{Kind: saga.Fired, Deadline: "first"}).Events
	moved, err := saga.Migrate(v1, v2, r.s)
	require.NoError(t, err)
	r.d, r.s = v2, moved
	r.take(saga.Event{Kind: saga.Observed, Hop: "a", Type: "ADone"})
	r.now = noon.Add(2 * time.Hour)
	second := r.take(saga.Event{Kind: saga.Fired, Deadline: "second"}).Events
	require.Equal(t, "deadlines.first.emit[0]", first[0].Path)
	require.Equal(t, "deadlines.second.since.b.emit[0]", second[0].Path)
}

// TestADeadlineThatCountsFromAnotherStepAfterAMoveEmitsAnotherEvent has a deadline that emits a reminder. The saga is moved to a definition in
// which the deadline counts from a step that has not begun, so it is met once more. If both reminders had the same path, they would have the
// same id, and services would take the second one for a duplicate.
func TestADeadlineThatCountsFromAnotherStepAfterAMoveEmitsAnotherEvent(t *testing.T) {
	const text = `{"saga":"order","version":VER,"key":"id","data":{"id":"string"},
"deadlines":[{"name":"late","after":"1h",SINCE"emit":[{"event":"Remind"}]}],"steps":[
  {"name":"a","success":[{"event":"ADone","hop":"a"}]},{"name":"b","needs":["a"],"success":[{"event":"BDone","hop":"b"}]}]}`
	v2 := parse(t, text, "VER", "2", "SINCE", `"since":"b",`)
	for name, since := range map[string]string{"from the start": "", "from a step": `"since":"a",`} {
		t.Run(name, func(t *testing.T) {
			v1 := parse(t, text, "VER", "1", "SINCE", since)
			r := &run{t: t, d: v1, now: noon}
			r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1"}})
			_, err := saga.Migrate(v1, v2, r.s)
			require.ErrorContains(t, err, "deadline late is scheduled and counts from", "it would be met twice as the deadline of b")
			r.now = noon.Add(time.Hour)
			first := r.take(saga.Event{Kind: saga.Fired, Deadline: "late"}).Events
			r.s, err = saga.Migrate(v1, v2, r.s)
			require.NoError(t, err)
			r.d = v2
			r.take(saga.Event{Kind: saga.Observed, Hop: "a", Type: "ADone"})
			r.now = noon.Add(2 * time.Hour)
			second := r.take(saga.Event{Kind: saga.Fired, Deadline: "late"}).Events
			require.Len(t, second, 1)
			require.NotEqual(t, first[0].Path, second[0].Path)
		})
	}
}
