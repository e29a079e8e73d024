package schemas_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/demo/messages"
)

var charge = messages.ChargePayment{OrderID: "019a4f3e-7c2b-7d10-9f1e-2b6a3c4d5e6f", CustomerID: "c-4711", AmountCents: 129900}

func BenchmarkEncode(b *testing.B) {
	c := newCodec(b, messages.Types()...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Encode("order.payment.commands", charge); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	c := newCodec(b, messages.Types()...)
	e, err := c.Encode("order.payment.commands", charge)
	require.NoError(b, err)
	m := envelope.Message{ContentType: e.ContentType, Payload: e.Payload}
	b.ReportAllocs()
	for b.Loop() {
		var into messages.ChargePayment
		if err := c.Decode(m, &into); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkToJSON(b *testing.B) {
	c := newCodec(b, messages.Types()...)
	e, err := c.Encode("order.payment.commands", charge)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := c.ToJSON(b.Context(), e.Payload); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFromJSON(b *testing.B) {
	c := newCodec(b, messages.Types()...)
	text := []byte(`{"order_id":"019a4f3e-7c2b-7d10-9f1e-2b6a3c4d5e6f","customer_id":"c-4711","amount_cents":129900}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.FromJSON(b.Context(), "troupe.order.ChargePayment", text); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSchemasAreParsedOnce(t *testing.T) {
	c := newCodec(t, messages.Types()...)
	e, err := c.Encode("t", charge)
	require.NoError(t, err)
	m := envelope.Message{Payload: e.Payload}
	var into messages.ChargePayment
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _ = c.Decode(m, &into) }), 10.0)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _, _ = c.ToJSON(t.Context(), e.Payload) }), 100.0)
}
