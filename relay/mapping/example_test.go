package mapping_test

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/troupe-go/troupe/relay/mapping"
)

func ExampleFromOptions() {
	// What stands behind transforms.outbox. in the connector, and which headers to write.
	cfg, err := mapping.FromOptions(map[string]string{
		"route.topic.replacement":           "${routedByValue}.events",
		"table.fields.additional.placement": "type:header:eventType",
		"headers":                           mapping.EventRouter,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := mapping.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}

	// Once per Relation message, or per query.
	table, err := m.Bind([]mapping.Column{
		{Name: "id", Type: pgtype.TextOID, Modifier: -1},
		{Name: "aggregatetype", Type: pgtype.TextOID, Modifier: -1},
		{Name: "aggregateid", Type: pgtype.TextOID, Modifier: -1},
		{Name: "type", Type: pgtype.TextOID, Modifier: -1},
		{Name: "payload", Type: pgtype.JSONBOID, Modifier: -1},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	// Once per row, as the server sent it.
	message, err := table.Message([]mapping.Value{
		{Data: []byte("0193")}, {Data: []byte("order")}, {Data: []byte("order-17")}, {Data: []byte("OrderPlaced")},
		{Data: []byte("\x01{}"), Binary: true},
	})
	fmt.Printf("%s %s %s %v\n", message.Topic, message.Key, message.Payload, err)
	for _, h := range message.Headers() {
		fmt.Printf("%s: %s\n", h.Key, h.Value)
	}
	// Output:
	// order.events order-17 {} <nil>
	// id: 0193
	// eventType: OrderPlaced
}
