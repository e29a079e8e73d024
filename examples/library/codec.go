package main

import (
	"context"

	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/schemas/protobuf"

	"github.com/troupe-go/troupe/examples/library/messages"
)

// newCodec registers the schemas of this service's messages, and returns the codec for them. It fails if the registry does not answer.
func newCodec(ctx context.Context, url string) (*schemas.Codec, error) {
	registry, err := schemas.NewRegistry(url)
	if err != nil {
		return nil, err
	}
	return schemas.New(ctx, schemas.Config{
		Registry: registry,
		Formats: []schemas.Format{protobuf.New(messages.Files,
			&messages.LendBook{}, &messages.BookLent{}, &messages.LoanRefused{},
			&messages.ReturnBook{}, &messages.BookReturned{},
			&messages.AssignLocker{}, &messages.LockerAssigned{}, &messages.NoLocker{},
			&messages.PickupReady{}, &messages.PickupFailed{},
		)},
	})
}
