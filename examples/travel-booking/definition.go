// Package travelbooking is an example: a saga that books a trip. Of three bookings two must succeed, a person approves the trip,
// and an insurance is tried once it is paid. A second saga books a seat for each passenger of a group. README.md explains both.
package travelbooking

import (
	_ "embed" // the definition

	"github.com/troupe-go/troupe/saga"
)

//go:embed trip.saga.json
var trip []byte

//go:embed group.saga.json
var group []byte

// Group returns the definition of group.saga.json.
func Group() (*saga.Definition, error) { return saga.Parse(group) }

// Definition returns the definition of trip.saga.json.
func Definition() (*saga.Definition, error) { return saga.Parse(trip) }
