package saga_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/typepb"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/saga"
)

// orderSpec returns testdata/order.saga.json in Go, with the order flow's own types.
func orderSpec() saga.Spec {
	codec := envelope.JSONCodec{}
	const tenMinutes = saga.Duration(10 * time.Minute)
	because := saga.Answer{Reason: "event.reason"}
	return saga.Spec{
		Saga: "order", Version: 1, Key: "order_id",
		Description: "payment, inventory, shipping; when one of them refuses, what the others did is undone",
		Data: map[string]saga.Type{
			"order_id": saga.String, "customer_id": saga.String, "amount_cents": saga.Int, "title": saga.Int, "quantity": saga.Int,
			"payment_id": saga.String, "reservation_id": saga.String, "shipment_id": saga.String,
		},
		Steps: []saga.Step{
			{
				Name: "payment",
				Command: saga.CommandOf[messages.ChargePayment](codec, "payment", saga.Mapping{
					"order_id": "data.order_id", "customer_id": "data.customer_id", "amount_cents": "data.amount_cents",
				}),
				Success: []saga.Answer{saga.AnswerOf[messages.PaymentCharged](codec, saga.Answer{
					Set: saga.Mapping{"payment_id": "event.payment_id"},
				})},
				Failure: []saga.Answer{saga.AnswerOf[messages.PaymentRefused](codec, because)},
				Timeout: tenMinutes,
				Compensation: &saga.Compensation{
					Command: saga.CommandOf[messages.RefundPayment](codec, "payment", saga.Mapping{
						"order_id": "data.order_id", "amount_cents": "data.amount_cents",
						"payment_id": "has(data.payment_id) ? data.payment_id : ''",
					}),
					Success: []saga.Answer{saga.AnswerOf[messages.PaymentRefunded](codec, saga.Answer{})},
				},
			},
			{
				Name: "inventory", Needs: []string{"payment"},
				Command: saga.CommandOf[messages.ReserveStock](codec, "inventory", saga.Mapping{
					"order_id": "data.order_id", "title": "data.title", "quantity": "data.quantity",
				}),
				Success: []saga.Answer{saga.AnswerOf[messages.StockReserved](codec, saga.Answer{
					Set: saga.Mapping{"reservation_id": "event.reservation_id"},
				})},
				Failure: []saga.Answer{saga.AnswerOf[messages.StockRefused](codec, because)},
				Timeout: tenMinutes,
				Compensation: &saga.Compensation{
					Command: saga.CommandOf[messages.ReleaseStock](codec, "inventory", saga.Mapping{
						"order_id": "data.order_id", "reservation_id": "has(data.reservation_id) ? data.reservation_id : ''",
					}),
					Success: []saga.Answer{saga.AnswerOf[messages.StockReleased](codec, saga.Answer{})},
				},
			},
			{
				Name: "shipping", Needs: []string{"inventory"}, Pivot: true,
				Command: saga.CommandOf[messages.ShipOrder](codec, "shipping", saga.Mapping{
					"order_id": "data.order_id", "customer_id": "data.customer_id",
					"title": "data.title", "quantity": "data.quantity",
				}),
				Success: []saga.Answer{saga.AnswerOf[messages.OrderShipped](codec, saga.Answer{
					Set: saga.Mapping{"shipment_id": "event.shipment_id"},
				})},
				Failure: []saga.Answer{saga.AnswerOf[messages.ShippingRefused](codec, because)},
			},
		},
		Completed: []saga.Emit{saga.EmitOf[messages.OrderCompleted](codec, saga.Emit{Input: saga.Mapping{
			"order_id": "data.order_id", "customer_id": "data.customer_id",
			"amount_cents": "data.amount_cents", "shipment_id": "data.shipment_id",
		}})},
		Compensated: []saga.Emit{saga.EmitOf[messages.OrderCancelled](codec, saga.Emit{Failure: true, Input: saga.Mapping{
			"order_id": "data.order_id", "customer_id": "data.customer_id",
			"reason": "saga.reason", "compensated": "saga.compensated",
		}})},
	}
}

func TestADefinitionInGoPrintsTheSameJSON(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/order.saga.json")
	require.NoError(t, err)
	d, err := saga.Define(orderSpec())
	require.NoError(t, err)
	require.Equal(t, string(text), string(d.JSON()))
	require.Equal(t, load(t, "testdata/order.saga.json").Hash(), d.Hash())
}

// TestATypedDefinitionIsHeldToItsTypes makes each mistake that types reveal alone.
func TestATypedDefinitionIsHeldToItsTypes(t *testing.T) {
	t.Parallel()
	codec := envelope.JSONCodec{}
	for name, row := range map[string]struct {
		wrong func(*saga.Spec)
		want  string
	}{
		"a command's field that there is not": {
			func(s *saga.Spec) { s.Steps[0].Command.Input["cents"] = "1" },
			`steps[0].command.input.cents: ChargePayment has no field "cents"`,
		},
		"a command's field of another type": {
			func(s *saga.Spec) { s.Steps[0].Command.Input["amount_cents"] = "data.customer_id" },
			`steps[0].command.input.amount_cents: "data.customer_id" is of type string, want int`,
		},
		"a compensation's field that there is not": {
			func(s *saga.Spec) { s.Steps[1].Compensation.Command.Input["why"] = "saga.reason" },
			`steps[1].compensation.command.input.why: ReleaseStock has no field "why"`,
		},
		"an event's field that there is not": {
			func(s *saga.Spec) { s.Steps[2].Success[0].Set["shipment_id"] = "event.parcel" },
			`steps[2].success[0].set.shipment_id: "event.parcel": column 6: undefined field 'parcel'`,
		},
		"an event's field of another type": {
			func(s *saga.Spec) { s.Steps[1].Success[0].Set["reservation_id"] = "event.quantity" },
			`steps[1].success[0].set.reservation_id: "event.quantity" is of type int, want string`,
		},
		"a reason that there is not": {
			func(s *saga.Spec) { s.Steps[0].Failure[0].Reason = "event.why" },
			`steps[0].failure[0].reason: "event.why": column 6: undefined field 'why'`,
		},
		"an emitted field that there is not": {
			func(s *saga.Spec) { s.Completed[0].Input["colour"] = "'red'" },
			`completed[0].input.colour: OrderCompleted has no field "colour"`,
		},
		"a start's field that there is not": {
			func(s *saga.Spec) {
				s.Start = []saga.Start{saga.StartOf[messages.ChargePayment](codec, saga.Start{
					Hop: "shop", Set: saga.Mapping{"order_id": "event.id"},
				})}
			},
			`start[0].set.order_id: "event.id": column 6: undefined field 'id'`,
		},
		"a type that has no name": {
			func(s *saga.Spec) { s.Steps[0].Command = saga.CommandOf[struct{}](codec, "payment", nil) },
			`struct {} has no name to serve as the message's type`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := orderSpec()
			row.wrong(&spec)
			_, err := saga.Define(spec)
			require.ErrorContains(t, err, row.want)
		})
	}
}

// protobufSpec returns a saga whose command and answer are messages of Protobuf.
func protobufSpec[C, A any](input, set saga.Mapping) saga.Spec {
	codec := envelope.JSONCodec{}
	return saga.Spec{
		Saga: "field", Version: 1, Key: "name", Data: map[string]saga.Type{"name": saga.String, "number": saga.Int, "kind": saga.String, "one": saga.Any},
		Steps: []saga.Step{{
			Name: "ask", Irreversible: "it asks only", Command: saga.CommandOf[C](codec, "types", input),
			Success: []saga.Answer{saga.AnswerOf[A](codec, saga.Answer{Set: set})},
		}},
	}
}

func TestAMessageOfProtobufIsNamedByItsPointerOrItsType(t *testing.T) {
	t.Parallel()
	input, set := saga.Mapping{"name": "data.name"}, saga.Mapping{"number": "event.number"}
	pointer, err := saga.Define(protobufSpec[*typepb.Field, *typepb.Field](input, set))
	require.NoError(t, err)
	value, err := saga.Define(protobufSpec[typepb.Field, typepb.Field](input, set))
	require.NoError(t, err)
	require.Equal(t, string(value.JSON()), string(pointer.JSON()))
	require.Equal(t, "Field", pointer.Spec().Steps[0].Command.Type)
}

// The value of an enum is its name, and a member of a oneof is a field of its message, as package schemas/protobuf reads both.
func TestTheFieldsOfAProtobufMessageAreThoseOfItsDescriptor(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		spec saga.Spec
		want string // part of the error; none if empty
	}{
		"an enum is a name":                {protobufSpec[*typepb.Field, *typepb.Field](nil, saga.Mapping{"kind": "event.kind"}), ""},
		"a oneof's member":                 {protobufSpec[*structpb.Value, *structpb.Value](saga.Mapping{"string_value": "data.name"}, saga.Mapping{"one": "event.bool_value"}), ""},
		"the name in Go of a oneof":        {protobufSpec[*structpb.Value, *structpb.Value](saga.Mapping{"Kind": "data.name"}, nil), `Value has no field "Kind"`},
		"a field that the message has not": {protobufSpec[*typepb.Field, *typepb.Field](saga.Mapping{"title": "data.name"}, nil), `Field has no field "title"`},
		"a number for a text":              {protobufSpec[*typepb.Field, *typepb.Field](saga.Mapping{"name": "data.number"}, nil), `"data.number" is of type int, want string`},
		"the name of a field in JSON":      {protobufSpec[*typepb.Field, *typepb.Field](nil, saga.Mapping{"name": "event.typeUrl"}), `undefined field 'typeUrl'`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := saga.Define(row.spec)
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.want)
		})
	}
}

func TestABodyThatIsNoStructIsAMistakeWithARemedy(t *testing.T) {
	t.Parallel()
	type list []string
	_, err := saga.Define(protobufSpec[list, list](nil, nil))
	require.ErrorContains(t, err, "steps[0].command.input: saga_test.list is no struct: name a struct, or a pointer to one")
}
