package protobuf_test

import (
	"context"
	"fmt"
	"log"

	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/schemas/protobuf"
	"github.com/troupe-go/troupe/schemas/protobuf/testdata/orderpb"
)

func ExampleNew() {
	server := srfake.New() // stands for your registry
	defer server.Close()
	registry, err := schemas.NewRegistry(server.URL())
	if err != nil {
		log.Fatal(err)
	}
	codec, err := schemas.New(context.Background(), schemas.Config{
		Registry: registry,
		Formats:  []schemas.Format{protobuf.New(orderpb.Files, &orderpb.OrderCancelled{})},
	})
	if err != nil {
		log.Fatal(err)
	}

	// Outboxes and participants do this with the codec that they are configured with.
	encoded, err := codec.Encode("shop.order.events", &orderpb.OrderCancelled{OrderId: "o-1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(encoded.Type, encoded.ContentType)
	var cancelled orderpb.OrderCancelled
	err = codec.Decode(envelope.Message{ContentType: encoded.ContentType, Payload: encoded.Payload}, &cancelled)
	fmt.Println(cancelled.GetOrderId(), err)
	// Output:
	// troupe.shop.OrderCancelled application/protobuf
	// o-1 <nil>
}
