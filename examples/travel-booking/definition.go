// Package travelbooking is an example: a saga that books a trip. Of three bookings two must succeed, a person approves the trip,
// and an insurance is tried once it is paid. README.md explains it.
package travelbooking

import (
	_ "embed" // the definition

	"github.com/troupe-go/troupe/saga"
)

//go:embed trip.saga.json
var trip []byte

// Definition returns the definition of trip.saga.json.
func Definition() (*saga.Definition, error) { return saga.Parse(trip) }
