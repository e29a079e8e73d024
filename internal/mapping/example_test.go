package mapping_test

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/troupe-go/troupe/internal/mapping"
)

func ExampleFromOptions() {
	// The options after transforms.outbox. in the connector, and the headers to write.
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

// A row that could not be published is stored, and mapped again after the mapping was corrected.
func ExampleRow() {
	row := mapping.Row{
		Columns: []mapping.Column{
			{Name: "id", Type: pgtype.TextOID, Modifier: -1}, {Name: "kind", Type: pgtype.TextOID, Modifier: -1},
			{Name: "aggregateid", Type: pgtype.TextOID, Modifier: -1}, {Name: "payload", Type: pgtype.TextOID, Modifier: -1},
		},
		Values: []mapping.Value{{Data: []byte("0193")}, {Data: []byte("order")}, {}, {Data: []byte("{}")}},
	}
	kept, err := json.Marshal(row)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, by := range []string{"aggregatetype", "kind"} {
		m, err := mapping.New(mapping.Config{RouteBy: by, Headers: mapping.EventRouter})
		if err != nil {
			fmt.Println(err)
			return
		}
		var again mapping.Row
		if err := json.Unmarshal(kept, &again); err != nil {
			fmt.Println(err)
			return
		}
		message, err := again.Message(m)
		fmt.Printf("%q %v %v\n", message.Topic, message.Key == nil, errors.Is(err, mapping.ErrRow))
	}
	// Output:
	// "" true true
	// "outbox.event.order" true false
}

func ExampleOptions() {
	for _, o := range mapping.Options()[6:9] {
		fmt.Println(o.Name, o.Default, o.Words)
	}
	// Output:
	// table.fields.additional.placement  []
	// table.field.additional.missing error [error ignore]
	// table.op.invalid.behavior warn [warn error fatal]
}
