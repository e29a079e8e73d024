package saga_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

// setCents returns the action that sets the variable with which the expressions of orderOfCents fail while it is 0.
func setCents(cents int64) saga.Event {
	set := action(saga.ActSet, "")
	set.Fields = map[string]any{"cents": cents}
	return set
}

const withoutCentsFree = orderOfCents + `"ends":[{"when":"data.cents == 0","then":"complete","emit":[{"event":"Free","input":{"share":"100 / data.cents"}}]}],`

func TestAnEndWhoseEventCannotBeBuiltSkipsNoStep(t *testing.T) {
	const charge = `{"name":"a"NEEDS,"command":{"hop":"a","type":"A"},"success":[{"event":"ADone"}],"failure":[{"event":"ANo"}],"timeout":"9h","irreversible":"x"}]}`
	t.Run("before its first step", func(t *testing.T) {
		f := sagatest.New(t, parse(t, withoutCentsFree+`"steps":[`+charge, "NEEDS", ""))
		f.WhenStarted("order", sagatest.Fields{"id": "o-1", "cents": 0}).ThenStatus("order/o-1", saga.Parked).ThenNoEvents()
		f.WhenActs("order/o-1", setCents(5))
		f.WhenActs("order/o-1", action(saga.ActResume, "")).ThenStatus("order/o-1", saga.Running).ThenCommands(sagatest.Command{Type: "A"})
	})
	t.Run("while a step awaits its event", func(t *testing.T) {
		d := parse(t, withoutCentsFree+`"steps":[{"name":"w","success":[{"event":"Paid","hop":"desk"}],"timeout":"9h"},`+charge, "NEEDS", `,"needs":["w"]`)
		f := sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-1", "cents": 5})
		f.WhenActs("order/o-1", setCents(0)).ThenStatus("order/o-1", saga.Parked)
		f.WhenActs("order/o-1", setCents(5))
		f.WhenPublished(sagatest.Message{Hop: "desk", Type: "Paid", Key: "o-1", Outcome: "success"})
		f.ThenStatus("order/o-1", saga.Running).ThenCommands(sagatest.Command{Type: "A"})
	})
	t.Run("an event that came early is kept", func(t *testing.T) {
		d := parse(t, withoutCentsFree+`"steps":[{"name":"q","success":[{"event":"Asked","hop":"desk"}],"timeout":"9h"},
{"name":"w","needs":["q"],"success":[{"event":"Paid","hop":"desk"}],"timeout":"9h"}]}`)
		f := sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-1", "cents": 5})
		f.WhenPublished(sagatest.Message{Hop: "desk", Type: "Paid", Key: "o-1", Outcome: "success"})
		f.WhenActs("order/o-1", setCents(0)).ThenStatus("order/o-1", saga.Parked)
		f.WhenActs("order/o-1", setCents(5))
		f.WhenPublished(sagatest.Message{Hop: "desk", Type: "Asked", Key: "o-1", Outcome: "success"})
		f.ThenStatus("order/o-1", saga.Completed)
	})
}

func TestARetryThatCannotBeBuiltLeavesItsStepAsItWas(t *testing.T) {
	d := parse(t, orderOfCents+`"steps":[{"name":"a","command":{"hop":"a","type":"A","input":{"share":"100 / data.cents"}},
"success":[{"event":"ADone"}],"failure":[{"event":"ANo"}],"timeout":"1h","irreversible":"x"}]}`)
	f := sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-1", "cents": 5})
	f.WhenTimePasses(2*time.Hour).ThenStatus("order/o-1", saga.Parked)
	f.WhenActs("order/o-1", setCents(0))
	was := f.State("order/o-1").Steps[0]
	f.WhenActs("order/o-1", action(saga.ActRetry, "a")).ThenStatus("order/o-1", saga.Parked).ThenNoCommands()
	require.Equal(t, was, f.State("order/o-1").Steps[0])
	f.WhenPublished(sagatest.Failure("a", "ANo", nil)).ThenStatus("order/o-1", saga.Compensated)
}
