package saga_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

func set(fields map[string]any) saga.Event {
	return saga.Event{Kind: saga.ActSet, Fields: fields, Actor: "ann", Reason: "looked it up"}
}

func setting(t *testing.T) *sagatest.Fixture {
	d, err := saga.Parse([]byte(`{
 "saga":"order","version":1,"key":"id","data":{"id":"string","n":"int","rate":"double","all":"any"},
 "steps":[
  {"name":"a","command":{"hop":"a","type":"A","input":{"each":"100 / data.n"}},"success":[{"event":"ADone"}],"failure":[{"event":"ANo"}],
   "compensation":{"command":{"hop":"a","type":"UndoA","input":{"each":"100 / data.n"}},"success":[{"event":"AUndone"}]}},
  {"name":"b","needs":["a"],"command":{"hop":"b","type":"B"},"success":[{"event":"BDone"}],"failure":[{"event":"BNo"}]}
 ]}`))
	require.NoError(t, err)
	return sagatest.New(t, d)
}

// In TestAPersonSetsAVariableThatAnExpressionCannotUse the saga continues when it is resumed.
func TestAPersonSetsAVariableThatAnExpressionCannotUse(t *testing.T) {
	f := setting(t).WhenStarted("order", sagatest.Fields{"id": "o-1", "n": 0})
	f.ThenStatus("order/o-1", saga.Parked)
	f.WhenActs("order/o-1", set(map[string]any{"n": json.Number("4"), "rate": json.Number("3")}))
	f.ThenStatus("order/o-1", saga.Parked)
	require.Equal(t, map[string]any{"id": "o-1", "n": int64(4), "rate": 3.0}, f.State("order/o-1").Data)
	f.WhenActs("order/o-1", action(saga.ActResume, "")).ThenCommands(sagatest.Command{Type: "A", Fields: sagatest.Fields{"each": 25}})
}

func TestAVariableIsOnlySetToWhatItsTypeAllows(t *testing.T) {
	f := setting(t).WhenStarted("order", sagatest.Fields{"id": "o-1", "n": 1})
	for name, fields := range map[string]map[string]any{
		"variable n is int":                {"n": "seven"},
		"saga order has no variable other": {"other": 1},
		"variable id is the saga's key":    {"id": "o-2", "n": 5},
	} {
		f.WhenActs("order/o-1", set(fields)).ThenRefused(name)
	}
	require.Equal(t, map[string]any{"id": "o-1", "n": int64(1)}, f.State("order/o-1").Data)
	f.WhenActs("order/o-1", action(saga.ActAbandon, "")).WhenActs("order/o-1", set(map[string]any{"n": 2})).ThenRefused("has ended")
}

// In TestACompensationThatCannotBeBuiltIsLeftToAPerson an operator can retry, skip or resolve the step.
func TestACompensationThatCannotBeBuiltIsLeftToAPerson(t *testing.T) {
	failed := func() *sagatest.Fixture {
		f := setting(t).WhenStarted("order", sagatest.Fields{"id": "o-1", "n": 1})
		f.WhenPublished(sagatest.Success("a", "ADone", nil))
		f.WhenActs("order/o-1", set(map[string]any{"n": 0}))
		f.WhenPublished(sagatest.Failure("b", "BNo", nil)).ThenStatus("order/o-1", saga.Parked)
		require.Equal(t, saga.CompensateFailed, f.State("order/o-1").Steps[0].Phase)
		return f
	}
	f := failed().WhenActs("order/o-1", set(map[string]any{"n": 50})).WhenActs("order/o-1", action(saga.ActRetry, "a"))
	f.ThenCommands(sagatest.Command{Type: "UndoA", Fields: sagatest.Fields{"each": 2}})
	f.WhenPublished(sagatest.Success("a", "AUndone", nil)).ThenStatus("order/o-1", saga.Compensated)
	for _, k := range []saga.Kind{saga.ActSkip, saga.ActResolve} {
		failed().WhenActs("order/o-1", action(k, "a")).ThenStatus("order/o-1", saga.Compensated)
	}
}

// TestEventsFindASagaByTheValueThatAPersonHasSet checks that events that arrived earlier find it too, and that the old value no
// longer finds it.
func TestEventsFindASagaByTheValueThatAPersonHasSet(t *testing.T) {
	d, err := saga.Parse([]byte(`{
 "saga":"bill","version":1,"key":"id","data":{"id":"string","invoice":"string"},
 "steps":[
  {"name":"seen","success":[{"event":"Seen","hop":"bank","by":{"variable":"invoice","field":"invoice"}}],"timeout":"24h"},
  {"name":"paid","needs":["seen"],"success":[{"event":"Paid","hop":"bank","by":{"variable":"invoice","field":"invoice"}}],"timeout":"24h"}]}`))
	require.NoError(t, err)
	f := sagatest.New(t, d).WhenStarted("bill", sagatest.Fields{"id": "b-1", "invoice": "i-1"})
	f.WhenPublished(sagatest.Event("bank", "Seen", "x", sagatest.Fields{"invoice": "i-2"}))
	f.WhenActs("bill/b-1", set(map[string]any{"invoice": "i-2"}))
	require.Equal(t, saga.Done, f.State("bill/b-1").Steps[0].Phase)
	f.WhenPublished(sagatest.Event("bank", "Paid", "x", sagatest.Fields{"invoice": "i-1"})).ThenStatus("bill/b-1", saga.Running)
	f.WhenPublished(sagatest.Event("bank", "Paid", "x", sagatest.Fields{"invoice": "i-2"})).ThenStatus("bill/b-1", saga.Completed)
}
