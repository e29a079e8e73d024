package coordinator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
)

// A value from an answer may be the one by which later events find the saga, and also an event that came before.
func TestASagaIsFoundByWhatAnAnswerBrought(t *testing.T) {
	d := booked(t)
	for name, early := range map[string]bool{"before the answer": true, "after it": false} {
		t.Run(name, func(t *testing.T) {
			m, err := decisions.NewMemory(noon, d)
			require.NoError(t, err)
			id, err := m.Start("trip", map[string]any{"trip": "t-1"})
			require.NoError(t, err)
			messages := []decisions.Message{roomBooked(id), confirmed("m-2")}
			if early {
				messages = []decisions.Message{confirmed("m-2"), roomBooked(id)}
			}
			for _, message := range messages {
				require.NoError(t, m.Take(message))
			}
			require.Equal(t, saga.Completed, m.Sagas()[0].Status)
		})
	}
}

// An event that comes after the saga of its value has ended looks like one that comes before the next saga of that value: it
// is stashed as long as any other, and not lost.
func TestAnEventBehindTheEndWaitsForTheNextOfItsValue(t *testing.T) {
	for name, want := range map[string]struct {
		after  time.Duration
		status saga.Status
	}{"in time": {59 * time.Minute, saga.Completed}, "too late": {time.Hour, saga.Running}} {
		t.Run(name, func(t *testing.T) {
			m, err := decisions.NewMemory(noon, booked(t))
			require.NoError(t, err)
			first, err := m.Start("trip", map[string]any{"trip": "t-1"})
			require.NoError(t, err)
			for _, message := range []decisions.Message{roomBooked(first), confirmed("m-2"), confirmed("m-3")} {
				require.NoError(t, m.Take(message))
			}
			require.Equal(t, saga.Completed, m.Sagas()[0].Status)
			ended := m.Sagas()[0]
			require.NoError(t, m.Advance(want.after))
			next, err := m.Start("trip", map[string]any{"trip": "t-2"})
			require.NoError(t, err)
			require.NoError(t, m.Take(roomBooked(next)))
			require.Equal(t, want.status, m.Sagas()[1].Status)
			require.Equal(t, ended, m.Sagas()[0])
		})
	}
}

// TestAnAwaitedEventWithoutItsAssociationIsADeadLetter, with the field that it lacks.
func TestAnAwaitedEventWithoutItsAssociationIsADeadLetter(t *testing.T) {
	byKey := parsed(t, `{"saga":"order","version":1,"key":"id","data":{"id":"string"},
 "steps":[{"name":"seen","success":[{"event":"Confirmed","hop":"desk"}],"timeout":"24h"}]}`)
	m, err := decisions.NewMemory(noon, booked(t), byKey)
	require.NoError(t, err)
	id, err := m.Start("trip", map[string]any{"trip": "t-1"})
	require.NoError(t, err)
	require.NoError(t, m.Take(roomBooked(id)))
	for name, fields := range map[string]map[string]any{"null": {"booking": nil}, "missing": {}, "empty": {"booking": ""}} {
		lost := confirmed("m-" + name)
		lost.Fields = fields
		require.ErrorContains(t, m.Take(lost), "its field for the variable booking is null, empty or missing", name)
	}
	require.ErrorContains(t, m.Take(decisions.Message{ID: "m-1", Hop: "desk", Type: "Confirmed"}), "has no key")
	require.NoError(t, m.Take(decisions.Message{ID: "m-2", Hop: "desk", Type: "Another"}), "no saga awaits it")
	require.Equal(t, saga.Running, m.Sagas()[0].Status)
	require.NoError(t, m.Take(confirmed("m-3")), "with the value")
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
}

// TestAnEventThatOneOfTwoSagasCannotBeFoundByIsTakenByTheOther, and becomes no dead letter.
func TestAnEventThatOneOfTwoSagasCannotBeFoundByIsTakenByTheOther(t *testing.T) {
	byKey := parsed(t, `{"saga":"order","version":1,"key":"id","data":{"id":"string"},
 "steps":[{"name":"seen","success":[{"event":"Confirmed","hop":"bank"}],"timeout":"24h"}]}`)
	m, err := decisions.NewMemory(noon, booked(t), byKey)
	require.NoError(t, err)
	_, err = m.Start("order", map[string]any{"id": "b-7"})
	require.NoError(t, err)
	e := confirmed("m-1")
	e.Fields = map[string]any{"booking": nil}
	require.NoError(t, m.Take(e))
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
}

func roomBooked(id string) decisions.Message {
	return decisions.Message{
		ID: "answer to " + id, Hop: "hotel", Type: "RoomBooked", Outcome: "success", SagaID: id,
		SagaStep: "book", SagaOperation: "forward", Fields: map[string]any{"booking": "b-7"},
	}
}

func confirmed(message string) decisions.Message {
	return decisions.Message{ID: message, Hop: "bank", Type: "Confirmed", Key: "b-7", Fields: map[string]any{"booking": "b-7"}}
}

// booked returns a trip that events find by its booking.
func booked(t *testing.T) *saga.Definition {
	d, err := saga.Define(saga.Spec{
		Saga: "trip", Version: 1, Key: "trip", Data: map[string]saga.Type{"trip": saga.String, "booking": saga.String},
		Steps: []saga.Step{
			{
				Name: "book", Command: &saga.Command{Hop: "hotel", Type: "BookRoom"},
				Success: []saga.Answer{{Event: "RoomBooked", Set: saga.Mapping{"booking": "event.booking"}}},
			},
			{Name: "confirm", Needs: []string{"book"}, Success: []saga.Answer{
				{Hop: "bank", Event: "Confirmed", By: &saga.Association{Variable: "booking", Field: "booking"}},
			}},
		},
	})
	require.NoError(t, err)
	return d
}
