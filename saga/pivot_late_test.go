package saga_test

import (
	"testing"
	"time"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

// pivotThenEvent awaits an event without a timeout of its own once the pivot is done.
const pivotThenEvent = `"steps":[
{"name":"p","command":{"hop":"p","type":"P"},"success":[{"event":"PDone"}],"failure":[{"event":"PNo"}],"pivot":true,"timeout":"9h"},
{"name":"w","needs":["p"],"success":[{"event":"Paid","hop":"desk"}]}]}`

func TestATimeoutWhileThePivotRunsCountsAgainOnceThePivotIsDone(t *testing.T) {
	d := parse(t, orderOfCents+`"timeout":"1h",`+pivotThenEvent)
	f := sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-1"})
	f.WhenTimePasses(2*time.Hour).ThenStatus("order/o-1", saga.Compensating)
	f.WhenPublished(sagatest.Success("p", "PDone", nil)).ThenStatus("order/o-1", saga.Running)
	f.WhenTimePasses(2*time.Hour).ThenStatus("order/o-1", saga.Parked)
}

func TestADeadlineThatCompletesWhileThePivotRunsIsMetOnceThePivotIsDone(t *testing.T) {
	d := parse(t, orderOfCents+`"timeout":"1h","deadlines":[{"name":"over","after":"2h","then":"complete"}],`+pivotThenEvent)
	t.Run("the pivot is done", func(t *testing.T) {
		f := sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-1"})
		f.WhenTimePasses(3*time.Hour).ThenStatus("order/o-1", saga.Compensating)
		f.WhenPublished(sagatest.Success("p", "PDone", nil)).ThenStatus("order/o-1", saga.Completed).ThenNoDeadlines()
	})
	t.Run("the pivot is refused", func(t *testing.T) {
		f := sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-1"})
		f.WhenTimePasses(3 * time.Hour)
		f.WhenPublished(sagatest.Failure("p", "PNo", nil)).ThenStatus("order/o-1", saga.Compensated).ThenNoDeadlines()
	})
	t.Run("the pivot is in doubt until a person resolves it", func(t *testing.T) {
		f := sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-1"})
		f.WhenTimePasses(10*time.Hour).ThenStatus("order/o-1", saga.Parked)
		happened := action(saga.ActResolve, "p")
		happened.Happened = true
		f.WhenActs("order/o-1", happened).ThenStatus("order/o-1", saga.Completed)
	})
}
