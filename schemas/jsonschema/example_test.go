package jsonschema_test

import (
	"context"
	"fmt"
	"log"

	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/schemas/jsonschema"
)

func ExampleNew() {
	server := srfake.New() // stands for your registry
	defer server.Close()
	registry, err := schemas.NewRegistry(server.URL())
	if err != nil {
		log.Fatal(err)
	}
	type Charged struct {
		ID    string `json:"id"`
		Cents int64  `json:"cents"`
	}
	codec, err := schemas.New(context.Background(), schemas.Config{
		Registry: registry,
		Formats: []schemas.Format{jsonschema.New(jsonschema.Bind[Charged](`{
			"title": "shop.Charged", "type": "object", "required": ["id", "cents"],
			"properties": {"id": {"type": "string"}, "cents": {"type": "integer", "minimum": 1}}}`))},
	})
	if err != nil {
		log.Fatal(err)
	}

	encoded, err := codec.Encode("shop.payment.events", Charged{ID: "c-1", Cents: 500})
	fmt.Println(encoded.Type, string(encoded.Payload[5:]), err)
	_, err = codec.Encode("shop.payment.events", Charged{ID: "c-2"})
	fmt.Println(err)
	// Output:
	// shop.Charged {"id":"c-1","cents":500} <nil>
	// encode shop.Charged: cents does not fit the schema's minimum
}
