package saga_test

import (
	"fmt"
	"strings"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/saga"
)

// BookRoom is the command to the hotel, and RoomBooked its answer.
type BookRoom struct {
	Trip   string `json:"trip"`
	Nights int    `json:"nights"`
}

type RoomBooked struct {
	Booking string `json:"booking"`
}

// ExampleCommandOf writes a definition in Go that refers to messages by their types, which Define checks.
func ExampleCommandOf() {
	codec := envelope.JSONCodec{} // or the schemas.Codec of the flow
	spec := saga.Spec{
		Saga: "trip", Version: 1, Key: "trip",
		Data: map[string]saga.Type{"trip": saga.String, "nights": saga.Int, "booking": saga.String},
		Steps: []saga.Step{{
			Name:    "hotel",
			Command: saga.CommandOf[BookRoom](codec, "hotel", saga.Mapping{"trip": "data.trip", "nights": "data.nights"}),
			Success: []saga.Answer{saga.AnswerOf[RoomBooked](codec, saga.Answer{Set: saga.Mapping{"booking": "event.booking"}})},
		}},
	}
	d, err := saga.Define(spec)
	fmt.Println(d, err)

	spec.Steps[0].Command.Input = saga.Mapping{"trip": "data.trip", "days": "data.nights"}
	_, err = saga.Define(spec)
	fmt.Println(err)
	// Output:
	// trip v1 <nil>
	// steps[0].command.input.days: BookRoom has no field "days"
}

func ExampleParse() {
	_, err := saga.Parse([]byte(`{
  "saga": "trip", "version": 1, "key": "trip",
  "data": {"trip": "string"},
  "steps": [{
    "name": "hotel",
    "command": {"hop": "hotel", "type": "BookRoom", "input": {"nights": "data.nights"}},
    "success": [{"event": "RoomBooked"}]
  }]
}`))
	fmt.Println(err)
	// Output:
	// line 6: steps[0].command.input.nights: "data.nights": column 5: undefined field 'nights'
}

func ExampleSchema() {
	fmt.Println(strings.Contains(string(saga.Schema()), "https://json-schema.org/draft/2020-12/schema"))
	// Output: true
}
