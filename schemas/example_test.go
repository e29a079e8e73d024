package schemas_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/schemas"
)

func ExampleNew() {
	server := srfake.New() // a registry in this process
	defer server.Close()
	ctx := context.Background()

	registry, err := schemas.NewRegistry(server.URL())
	if err != nil {
		log.Fatal(err)
	}
	codec, err := schemas.New(ctx, schemas.Config{Registry: registry, Types: messages.Types()})
	if err != nil {
		log.Fatal(err)
	}

	encoded, err := codec.Encode("order.payment.commands", messages.ChargePayment{OrderID: "o-17", CustomerID: "c-1", AmountCents: 1250})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, %s\n%x\n", encoded.Type, encoded.ContentType, encoded.Payload)

	var charge messages.ChargePayment
	err = codec.Decode(envelope.Message{ContentType: encoded.ContentType, Payload: encoded.Payload}, &charge)
	fmt.Printf("%+v %v\n", charge, err)
	// Output:
	// troupe.order.ChargePayment, application/avro
	// 0000000001086f2d313706632d31c413
	// {OrderID:o-17 CustomerID:c-1 AmountCents:1250} <nil>
}

func ExampleBind() {
	server := srfake.New()
	defer server.Close()
	ctx := context.Background()
	registry, err := schemas.NewRegistry(server.URL())
	if err != nil {
		log.Fatal(err)
	}

	// The current version of a message, and the version that wrote the messages still in the topic.
	type parcel struct {
		ID    string `avro:"id"`
		Grams int64  `avro:"grams"`
		Note  string `avro:"note"`
	}
	type oldParcel struct {
		ID    string `avro:"id"`
		Grams int32  `avro:"grams"`
	}
	today := schemas.Bind[parcel](`{"type": "record", "name": "shop.Parcel", "fields": [
		{"name": "id", "type": "string"},
		{"name": "grams", "type": "long"},
		{"name": "note", "type": "string", "default": "none"}]}`)
	before := schemas.Bind[oldParcel](`{"type": "record", "name": "shop.Parcel", "fields": [
		{"name": "id", "type": "string"},
		{"name": "grams", "type": "int"}]}`)

	writer, err := schemas.New(ctx, schemas.Config{Registry: registry, Types: []schemas.Type{before}})
	if err != nil {
		log.Fatal(err)
	}
	reader, err := schemas.New(ctx, schemas.Config{Registry: registry, Types: []schemas.Type{today}})
	if err != nil {
		log.Fatal(err)
	}
	encoded, err := writer.Encode("shop.parcel.events", oldParcel{ID: "p-1", Grams: 400})
	if err != nil {
		log.Fatal(err)
	}
	var p parcel
	err = reader.Decode(envelope.Message{Payload: encoded.Payload}, &p)
	fmt.Printf("%+v %v\n", p, err)
	// Output: {ID:p-1 Grams:400 Note:none} <nil>
}

func ExampleCodec_ToJSON() {
	server := srfake.New()
	defer server.Close()
	ctx := context.Background()
	registry, err := schemas.NewRegistry(server.URL())
	if err != nil {
		log.Fatal(err)
	}
	// A service has registered its schema. The program that shows a dead letter knows neither it nor the Go type.
	if _, err := registry.Register(ctx, "shop.Parcel", `{"type": "record", "name": "shop.Parcel", "fields": [
		{"name": "note", "type": ["null", "string"]}]}`); err != nil {
		log.Fatal(err)
	}
	codec, err := schemas.New(ctx, schemas.Config{Registry: registry})
	if err != nil {
		log.Fatal(err)
	}

	payload, err := codec.FromJSON(ctx, "shop.Parcel", []byte(`{"note": "fragile"}`))
	if err != nil {
		log.Fatal(err)
	}
	name, text, err := codec.ToJSON(ctx, payload.Payload)
	fmt.Println(name, string(text), err)
	// Output: shop.Parcel {"note":{"string":"fragile"}} <nil>
}

func ExampleJSONEncoder() {
	server := srfake.New()
	defer server.Close()
	ctx := context.Background()
	registry, err := schemas.NewRegistry(server.URL())
	if err != nil {
		log.Fatal(err)
	}
	if _, err := registry.Register(ctx, "shop.parcels-value", parcelSchema); err != nil {
		log.Fatal(err)
	}

	// The relay, with a row whose payload is JSON.
	encoder, err := schemas.NewJSONEncoder(registry, schemas.TopicName)
	if err != nil {
		log.Fatal(err)
	}
	encoded, err := encoder.Encode(ctx, "shop.parcels", "ParcelSent", []byte(`{"id": "p-1", "grams": 500}`))
	fmt.Println(encoded.ContentType, len(encoded.Payload), err)
	_, err = encoder.Encode(ctx, "shop.parcels", "ParcelSent", []byte(`{"id": "p-1", "grams": "heavy"}`))
	fmt.Println(errors.Is(err, envelope.ErrPayload), err)
	// Output:
	// application/avro 11 <nil>
	// true unreadable payload: shop.parcels-value: grams: want a long, got a string
}
