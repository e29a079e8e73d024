package saga_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

const overdueSteps = `"steps":[
  {"name":"a","command":{"hop":"a","type":"A"},"success":[{"event":"ADone"}],"failure":[{"event":"ANo"}],"timeout":"TIMEOUT","compensation":{"command":{"hop":"a","type":"AUndo"},"success":[{"event":"AUndone"}]}},
  {"name":"b","needs":["a"],"command":{"hop":"b","type":"B"},"success":[{"event":"BDone"}],"failure":[{"event":"BNo"}],"compensation":{"command":{"hop":"b","type":"BUndo"},"success":[{"event":"BUndone"}]}}
 ]}`

const orderOfCents = `{"saga":"order","version":1,"key":"id","data":{"id":"string","cents":"int"},`

// withoutCents starts a saga whose deadline over is due after two hours, and whose expressions fail while cents is 0.
func withoutCents(t *testing.T, text string) *sagatest.Fixture {
	f := sagatest.New(t, parse(t, orderOfCents+text+overdueSteps, "TIMEOUT", "9h"))
	f.WhenStarted("order", sagatest.Fields{"id": "o-1", "cents": 0})
	f.WhenPublished(sagatest.Success("a", "ADone", nil))
	f.WhenTimePasses(2*time.Hour).ThenStatus("order/o-1", saga.Parked).ThenNoEvents()
	require.True(t, f.State("order/o-1").Deadlines[0].Overdue)
	return f
}

func TestADeadlineThatCannotBeMetIsMetOnceTheSagaIsTakenUp(t *testing.T) {
	share := `{"event":"Late","input":{"share":"100 / data.cents"}}`
	set := action(saga.ActSet, "")
	set.Fields = map[string]any{"cents": int64(5)}
	late := sagatest.Emitted{Type: "Late", Fields: sagatest.Fields{"share": 20}}
	resume := action(saga.ActResume, "")

	t.Run("it compensates", func(t *testing.T) {
		f := withoutCents(t, `"deadlines":[{"name":"over","after":"2h","emit":[`+share+`],"then":"compensate"}],`)
		f.WhenActs("order/o-1", resume).ThenStatus("order/o-1", saga.Parked).ThenNoEvents() // the cause is not removed
		f.WhenActs("order/o-1", set)
		f.WhenActs("order/o-1", resume).ThenStatus("order/o-1", saga.Compensating).ThenEvents(late)
	})
	t.Run("an answer takes the saga up", func(t *testing.T) {
		f := withoutCents(t, `"deadlines":[{"name":"over","after":"2h","emit":[`+share+`],"then":"complete"}],`)
		f.WhenActs("order/o-1", set)
		f.WhenPublished(sagatest.Success("b", "BDone", nil)).ThenStatus("order/o-1", saga.Completed).ThenEvents(late)
	})
	t.Run("of several events none goes before all can", func(t *testing.T) {
		f := withoutCents(t, `"deadlines":[{"name":"over","after":"2h","emit":[{"event":"First"},`+share+`]}],`)
		f.WhenActs("order/o-1", set)
		f.WhenActs("order/o-1", resume).ThenStatus("order/o-1", saga.Running).ThenEvents(sagatest.Emitted{Type: "First"}, late)
	})
	t.Run("the end that it brings", func(t *testing.T) {
		f := withoutCents(t, `"completed":[`+share+`],"deadlines":[{"name":"over","after":"2h","emit":[{"event":"First"}],"then":"complete"}],`)
		require.Equal(t, saga.Intent, f.State("order/o-1").Steps[1].Phase)
		f.WhenActs("order/o-1", set)
		f.WhenActs("order/o-1", resume).ThenStatus("order/o-1", saga.Completed).ThenEvents(sagatest.Emitted{Type: "First"}, late)
	})
	t.Run("several, in the order in which they were due", func(t *testing.T) {
		f := withoutCents(t, `"deadlines":[{"name":"over","after":"2h","then":"complete"},{"name":"remind","after":"1h","emit":[`+share+`]}],`)
		f.WhenActs("order/o-1", set)
		f.WhenActs("order/o-1", resume).ThenStatus("order/o-1", saga.Completed).ThenEvents(late).ThenNoDeadlines()
	})
	t.Run("a person compensates instead", func(t *testing.T) {
		f := withoutCents(t, `"deadlines":[{"name":"over","after":"2h","emit":[`+share+`]}],`)
		f.WhenActs("order/o-1", action(saga.ActCompensate, "")).ThenStatus("order/o-1", saga.Compensating).ThenNoEvents().ThenNoDeadlines()
	})
}

func TestADeadlineEndsNoParkedSaga(t *testing.T) {
	over := `{"name":"over","after":"2h","then":"complete"}`
	t.Run("that another deadline parked", func(t *testing.T) {
		d := parse(t, orderOfCents+`"deadlines":[{"name":"review","after":"1h","then":"park"},`+over+`],`+overdueSteps, "TIMEOUT", "9h")
		f := sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-1"})
		f.WhenTimePasses(time.Hour).ThenStatus("order/o-1", saga.Parked)
		f.WhenTimePasses(time.Hour).ThenStatus("order/o-1", saga.Parked)
		f.WhenActs("order/o-1", action(saga.ActResume, "")).ThenStatus("order/o-1", saga.Completed)
	})
	t.Run("a step of which is in doubt", func(t *testing.T) {
		d := parse(t, `{"saga":"order","version":1,"key":"id","data":{"id":"string"},"deadlines":[`+over+`],"steps":[
		  {"name":"a","command":{"hop":"a","type":"A"},"success":[{"event":"ADone"}],"failure":[{"event":"ANo"}],"timeout":"1h"},
		  {"name":"b","needs":["a"],"command":{"hop":"b","type":"B"},"success":[{"event":"BDone"}],"failure":[{"event":"BNo"}]}]}`)
		f := sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-1"})
		f.WhenTimePasses(time.Hour).ThenStatus("order/o-1", saga.Parked)
		f.WhenTimePasses(time.Hour).ThenStatus("order/o-1", saga.Parked)
		f.WhenTimePasses(time.Hour).ThenStatus("order/o-1", saga.Parked)
		happened := action(saga.ActResolve, "a")
		happened.Happened = true
		f.WhenActs("order/o-1", happened).ThenStatus("order/o-1", saga.Completed).ThenNoCommands()
	})
}

// TestALogWithoutKeptDeadlinesGivesWhatItGave replays a log of an earlier version, which dropped such a deadline. It still gives
// the same state.
func TestALogWithoutKeptDeadlinesGivesWhatItGave(t *testing.T) {
	d := parse(t, orderOfCents+`"deadlines":[{"name":"over","after":"2h","emit":[{"event":"Late","input":{"share":"100 / data.cents"}}],"then":"compensate"},
		{"name":"up","after":"3h","then":"complete"}],`+overdueSteps, "TIMEOUT", "9h")
	s, _ := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1", "cents": 0}}, noon)
	s, _ = saga.Decide(d, s, saga.Event{Kind: saga.Fired, Deadline: "over"}, noon.Add(2*time.Hour))
	require.Equal(t, saga.Parked, s.Status)
	require.Len(t, s.Deadlines, 2) // the deadline up, and the step's
	s, _ = saga.Decide(d, s, saga.Event{Kind: saga.Fired, Deadline: "up"}, noon.Add(3*time.Hour))
	require.Equal(t, saga.Completed, s.Status)
}
