package saga_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

func TestASagaParkedByItsDefinitionWaitsForAnOperator(t *testing.T) {
	steps := `"steps":[
  {"name":"a","command":{"hop":"a","type":"A"},"success":[{"event":"ADone"}],"failure":[{"event":"ANo"}],"timeout":"3h","compensation":{"command":{"hop":"a","type":"AUndo"},"success":[{"event":"AUndone"}]}},
  {"name":"b","needs":["a"],"command":{"hop":"b","type":"B"},"success":[{"event":"BDone"}],"failure":[{"event":"BNo"}],"timeout":"3h","pivot":true}
 ]}`
	parked := func(t *testing.T, text string) *sagatest.Fixture {
		d, err := saga.Parse([]byte(`{"saga":"order","version":1,"key":"id","data":{"id":"string","cents":"int"},` + text + steps))
		require.NoError(t, err)
		f := sagatest.New(t, d).WhenStarted("order", sagatest.Fields{"id": "o-1", "cents": 5})
		f.WhenTimePasses(time.Hour)
		return f.ThenStatus("order/o-1", saga.Parked)
	}
	deadline := `"deadlines":[{"name":"review","after":"1h","then":"park"}],`
	t.Run("an answer does not take it up", func(t *testing.T) {
		f := parked(t, deadline).WhenPublished(sagatest.Success("a", "ADone", nil))
		f.ThenStatus("order/o-1", saga.Parked).ThenNoCommands()
		f.WhenActs("order/o-1", action(saga.ActResume, "")).ThenCommands(sagatest.Command{Type: "B"})
		f.WhenPublished(sagatest.Success("b", "BDone", nil)).ThenStatus("order/o-1", saga.Completed)
	})
	t.Run("a refusal does not either", func(t *testing.T) {
		f := parked(t, deadline).WhenPublished(sagatest.Failure("a", "ANo", nil))
		f.ThenStatus("order/o-1", saga.Parked)
		f.WhenActs("order/o-1", action(saga.ActResume, "")).ThenStatus("order/o-1", saga.Compensated)
	})
	t.Run("a person compensates it", func(t *testing.T) {
		f := parked(t, deadline).Given(sagatest.Success("a", "ADone", nil))
		f.WhenActs("order/o-1", action(saga.ActCompensate, "")).ThenCommands(sagatest.Command{Type: "AUndo"})
	})
	t.Run("an end lets it pass once a person has resumed it", func(t *testing.T) {
		f := parked(t, `"ends":[{"when":"data.cents > 3","then":"park"}],`)
		f.WhenActs("order/o-1", action(saga.ActResume, "")).ThenCommands(sagatest.Command{Type: "A"})
		f.WhenPublished(sagatest.Success("a", "ADone", nil)).ThenCommands(sagatest.Command{Type: "B"})
	})
}
