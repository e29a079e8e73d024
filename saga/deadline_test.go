package saga_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

const reminded = `{
 "saga":"order","version":1,"key":"id","data":{"id":"string","n":"int"},
 "deadlines":[{"name":"remind","after":"1h",SINCE"payload":{"x":"100 / data.n"},"emit":[{"event":"Remind","input":{"x":"deadline.x"}}]}],
 "steps":[
  {"name":"gate"},
  {"name":"b","needs":["gate"],"command":{"hop":"b","type":"B"},"success":[{"event":"BDone"}],"failure":[{"event":"BNo"}],"timeout":"3h","pivot":true}
 ]}`

// In TestAStepWithoutItsDeadlineDoesNotBegin the payload of a deadline that counts from the step cannot be evaluated.
func TestAStepWithoutItsDeadlineDoesNotBegin(t *testing.T) {
	d := parse(t, reminded, "SINCE", `"since":"gate",`)
	f := sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-1", "n": 0})
	f.ThenStatus("order/o-1", saga.Parked).ThenNoCommands()
	require.Contains(t, f.State("order/o-1").Reason, `gate: deadline remind: x: "100 / data.n": division by zero`)
	f.WhenTimePasses(time.Hour).ThenStatus("order/o-1", saga.Parked)
	f.WhenActs("order/o-1", action(saga.ActResume, "")).ThenStatus("order/o-1", saga.Parked).ThenNoCommands()

	f = sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-2", "n": 4})
	f.ThenScheduled("remind", time.Hour)
	f.WhenTimePasses(time.Hour).ThenEvents(sagatest.Emitted{Type: "Remind", Fields: sagatest.Fields{"x": 25}})
}

// In TestASagaWithoutItsDeadlineDoesNotStart the caller that starts the saga gets the error.
func TestASagaWithoutItsDeadlineDoesNotStart(t *testing.T) {
	d := parse(t, reminded, "SINCE", "")
	s, fx := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1", "n": 0}}, noon)
	require.Equal(t, `deadline remind: x: "100 / data.n": division by zero`, fx.Refused)
	require.Zero(t, s)
}
