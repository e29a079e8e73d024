package saga_test

import (
	"fmt"
	"time"

	"github.com/troupe-go/troupe/saga"
)

func hotelAndFlight() saga.Spec {
	return saga.Spec{
		Saga: "trip", Version: 1, Key: "trip", Data: map[string]saga.Type{"trip": saga.String},
		Steps: []saga.Step{{
			Name:    "hotel",
			Command: &saga.Command{Hop: "hotel", Type: "BookRoom"},
			Success: []saga.Answer{{Event: "RoomBooked"}},
			Timeout: saga.Duration(time.Minute),
			Compensation: &saga.Compensation{
				Command: &saga.Command{Hop: "hotel", Type: "CancelRoom"}, Success: []saga.Answer{{Event: "RoomCancelled"}},
			},
		}, {
			Name: "flight", Needs: []string{"hotel"}, Pivot: true,
			Command: &saga.Command{Hop: "flight", Type: "BookSeat"},
			Success: []saga.Answer{{Event: "SeatBooked"}},
			Failure: []saga.Answer{{Event: "NoSeat"}},
			Timeout: saga.Duration(time.Minute),
		}},
	}
}

func ExampleDefine() {
	d, err := saga.Define(hotelAndFlight())
	fmt.Println(d, d.Hops(), err)

	spec := hotelAndFlight()
	spec.Steps[1].Needs = []string{"train"}
	_, err = saga.Define(spec)
	fmt.Println(err)
	// Output:
	// trip v1 [flight hotel] <nil>
	// steps[1].needs[0]: there is no step "train"
}

// ExampleDecide applies events in the way a coordinator does, without a coordinator.
func ExampleDecide() {
	d, err := saga.Define(hotelAndFlight())
	if err != nil {
		fmt.Println(err)
		return
	}
	var state saga.State
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, event := range []saga.Event{
		{Kind: saga.Started, Fields: map[string]any{"trip": "t-1"}},
		{Kind: saga.Answered, Step: "hotel", Operation: "forward", Outcome: "success", Type: "RoomBooked"},
		{Kind: saga.Answered, Step: "hotel", Operation: "forward", Outcome: "success", Type: "RoomBooked"}, // again
		{Kind: saga.Answered, Step: "flight", Operation: "forward", Outcome: "failure", Type: "NoSeat"},
		{Kind: saga.Answered, Step: "hotel", Operation: "compensate", Outcome: "success", Type: "RoomCancelled"},
	} {
		var follows saga.Effects
		state, follows = saga.Decide(d, state, event, now)
		fmt.Print(state.Version, " ", state.Status)
		for _, c := range follows.Commands {
			fmt.Print(", sends ", c.Type)
		}
		if follows.Ignored != "" {
			fmt.Print(", ignored: ", follows.Ignored)
		}
		fmt.Println()
	}
	fmt.Println(state.Reason)
	// Output:
	// 1 running, sends BookRoom
	// 2 running, sends BookSeat
	// 2 running, ignored: step hotel is done: its answer RoomBooked is late or was given before
	// 3 compensating, sends CancelRoom
	// 4 compensated
	// NoSeat
}
