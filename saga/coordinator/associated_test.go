package coordinator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

// What an answer brings may be what later events find the saga by, also one that came before.
func TestASagaIsFoundByWhatAnAnswerBrought_D06(t *testing.T) {
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
	for name, early := range map[string]bool{"before the answer": true, "after it": false} {
		t.Run(name, func(t *testing.T) {
			m, err := coordinator.NewMemory(noon, d)
			require.NoError(t, err)
			id, err := m.Start("trip", map[string]any{"trip": "t-1"})
			require.NoError(t, err)
			booked := coordinator.Message{ID: "m-1", Hop: "hotel", Type: "RoomBooked", Key: "t-1", Outcome: "success", SagaID: id,
				SagaStep: "book", SagaOperation: "forward", Fields: map[string]any{"booking": "b-7"}}
			confirmed := coordinator.Message{ID: "m-2", Hop: "bank", Type: "Confirmed", Key: "b-7", Fields: map[string]any{"booking": "b-7"}}
			messages := []coordinator.Message{booked, confirmed}
			if early {
				messages = []coordinator.Message{confirmed, booked}
			}
			for _, message := range messages {
				require.NoError(t, m.Take(message))
			}
			require.Equal(t, saga.Completed, m.Sagas()[0].Status)
		})
	}
}
