package saga_test

import (
	"fmt"
	"time"

	"github.com/troupe-go/troupe/saga"
)

func ExampleMigrate() {
	define := func(version int, typ string) *saga.Definition {
		d, err := saga.Define(saga.Spec{
			Saga: "visit", Version: version, Key: "id", Data: map[string]saga.Type{"id": saga.String},
			Steps: []saga.Step{{
				Name: "book", Command: &saga.Command{Hop: "desk", Type: typ}, Success: []saga.Answer{{Event: "Booked"}},
				Irreversible: "a booking costs nothing",
			}},
		})
		if err != nil {
			panic(err)
		}
		return d
	}
	was := define(1, "Book")
	s, _ := saga.Decide(was, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "v-1"}}, time.Unix(0, 0))
	_, err := saga.Migrate(was, define(2, "BookRoom"), s)
	fmt.Println(err)
	// Output: step book is intent and asks for Book of hop desk, not BookRoom of hop desk
}
