package saga_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestAnEndpointNamesNoOtherPlace checks that a room without a name does not turn DELETE /rooms/{room} into DELETE /rooms/.
func TestAnEndpointNamesNoOtherPlace(t *testing.T) {
	d, err := saga.Define(saga.Spec{
		Saga: "trip", Version: 1, Key: "trip_id", Data: map[string]saga.Type{"trip_id": saga.String, "room": saga.String},
		Steps: []saga.Step{{
			Name: "hotel", Call: &saga.Call{Hop: "hotel", Method: "DELETE", Endpoint: "/rooms/{room}"}, Irreversible: "it is gone",
		}},
	})
	require.NoError(t, err)
	for room, path := range map[string]string{"7": "/rooms/7", "a/b": "/rooms/a%2Fb", "...": "/rooms/...", "": "", ".": "", "..": ""} {
		s, fx := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"trip_id": "t-1", "room": room}}, noon)
		require.Empty(t, fx.Refused)
		if path == "" {
			require.Equal(t, saga.Parked, s.Status, room)
			require.Contains(t, s.Reason, "endpoint: data.room is")
			require.Empty(t, fx.Commands)
			continue
		}
		require.Equal(t, path, fx.Commands[0].Fields["path"])
	}
}

// TestAnEndpointOfAnItemHasATextOrANumber: the elements of a list have any type.
func TestAnEndpointOfAnItemHasATextOrANumber(t *testing.T) {
	d, err := saga.Define(saga.Spec{
		Saga: "trip", Version: 1, Key: "trip_id", Data: map[string]saga.Type{"trip_id": saga.String, "rooms": saga.Any},
		Steps: []saga.Step{{
			Name: "hotel", Call: &saga.Call{Hop: "hotel", Method: "PUT", Endpoint: "/rooms/{room}"}, Irreversible: "it stays",
			ForEach: &saga.ForEach{List: "data.rooms", As: "room", Max: 1},
		}},
	})
	require.NoError(t, err)
	for room, path := range map[string]string{
		`"7"`: "/rooms/7", `7`: "/rooms/7", `1e6`: "/rooms/1000000", `true`: "/rooms/true", `null`: "", `{"number":7}`: "", `[7]`: "",
	} {
		fields, err := saga.ReadFields([]byte(`{"trip_id":"t-1","rooms":[` + room + `]}`))
		require.NoError(t, err)
		s, fx := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: fields}, noon)
		require.Empty(t, fx.Refused)
		if path == "" {
			require.Equal(t, saga.Parked, s.Status, room)
			require.Empty(t, fx.Commands)
			continue
		}
		require.Equal(t, path, fx.Commands[0].Fields["path"])
	}
}
