package saga_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

// In TestAnAnswerWhoseConditionFailsLeavesItsStepToAPerson the condition compares "3" >= 2, which is neither true nor false.
func TestAnAnswerWhoseConditionFailsLeavesItsStepToAPerson(t *testing.T) {
	awaited := parse(t, `{"saga":"order","version":1,"key":"id","data":{"id":"string"},"steps":[
  {"name":"ok","success":[{"event":"Approved","hop":"desk","when":"event.level >= 2"}],"timeout":"24h"},
  {"name":"b","needs":["ok"],"command":{"hop":"b","type":"B"},"success":[{"event":"BDone"}],"failure":[{"event":"BNo"}],"timeout":"3h","pivot":true}]}`)
	asked := parse(t, `{"saga":"order","version":1,"key":"id","data":{"id":"string"},"steps":[
  {"name":"ok","command":{"hop":"desk","type":"Ask"},"success":[{"event":"Approved","when":"event.level >= 2"}],"failure":[{"event":"Refused","when":"event.level >= 2"}],"timeout":"24h","irreversible":"reads"},
  {"name":"b","needs":["ok"],"command":{"hop":"b","type":"B"},"success":[{"event":"BDone"}],"failure":[{"event":"BNo"}],"timeout":"3h","pivot":true}]}`)
	for name, level := range map[string]sagatest.Fields{"wrong type": {"level": "3"}, "missing": {}, "null": {"level": nil}} {
		for _, c := range []struct {
			d *saga.Definition
			m sagatest.Message
		}{
			{awaited, sagatest.Event("desk", "Approved", "o-1", level)},
			{asked, sagatest.Success("ok", "Approved", level)},
			{asked, sagatest.Failure("ok", "Refused", level)},
		} {
			t.Run(name, func(t *testing.T) {
				f := sagatest.New(t, c.d).WhenStarted("order", sagatest.Fields{"id": "o-1"}).WhenPublished(c.m)
				f.ThenStatus("order/o-1", saga.Parked)
				require.Contains(t, f.State("order/o-1").Reason, "when: ")
				require.Equal(t, saga.GivenUp, f.State("order/o-1").Steps[0].Phase)
				f.WhenTimePasses(30*time.Hour).ThenStatus("order/o-1", saga.Parked)
				f.WhenActs("order/o-1", action(saga.ActSkip, "ok")).ThenCommands(sagatest.Command{Type: "B"})
			})
		}
	}
}

// TestTheReasonOfAStepThatNobodyAnswersNamesTheStep: the reason is in lists of sagas, and in the events of the saga's end.
func TestTheReasonOfAStepThatNobodyAnswersNamesTheStep(t *testing.T) {
	d := parse(t, `{"saga":"loan","version":1,"key":"id","data":{"id":"string"},
	 "steps":[{"name":"approval","success":[{"event":"Approved","hop":"desk"}],"timeout":"1h30m"}]}`)
	f := sagatest.New(t, d).WhenStarted("loan", sagatest.Fields{"id": "l-1"})
	f.WhenTimePasses(2*time.Hour).ThenStatus("loan/l-1", saga.Compensated)
	require.Equal(t, "no answer for step approval within 1h30m", f.State("loan/l-1").Reason)
}
