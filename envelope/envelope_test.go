package envelope_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
)

func whole() envelope.Message {
	return envelope.Message{
		ID: "1", Source: "payment", Type: "PaymentCharged", Subject: "o-1", Time: time.UnixMilli(1_700_000_000_123).UTC(),
		ContentType: envelope.JSON, CorrelationID: "0", CausationID: "00", Outcome: envelope.Success,
		IdempotencyKey: "o-1/payment/forward", SagaID: "s", SagaStep: "payment", SagaOperation: envelope.Forward,
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=b",
		Extra: []envelope.Header{{"x", []byte{0, 0xff}}, {"x", nil}, {"y", []byte{}}},
	}
}

func TestHeadersSurviveTheJourney(t *testing.T) {
	var got envelope.Message
	require.NoError(t, got.SetHeaders(whole().Headers()))
	require.Equal(t, whole(), got)
}

func TestHeadersSurviveTheColumn(t *testing.T) {
	hs := whole().Headers()
	got, err := envelope.UnmarshalHeaders(envelope.MarshalHeaders(hs))
	require.NoError(t, err)
	require.Equal(t, hs, got)
}

func TestMoreHeadersThanAMessageMayHaveSurviveTheColumnToo(t *testing.T) {
	hs := make([]envelope.Header, envelope.MaxHeaders+50)
	for i := range hs {
		hs[i] = envelope.Header{Key: "x", Value: []byte{byte(i)}}
	}
	got, err := envelope.UnmarshalHeaders(envelope.MarshalHeaders(hs))
	require.NoError(t, err)
	require.Equal(t, hs, got)
}

func TestAHeaderThatIsNoAttributeIsKept(t *testing.T) {
	odd := []envelope.Header{
		{"ce_id", []byte("a")}, {"ce_id", []byte("b")}, {"ce_outcome", []byte("maybe")}, {"ce_time", []byte("yesterday")},
		{"ce_type", []byte{0xff}}, {"ce_source", []byte(strings.Repeat("s", 2000))}, {"ce_specversion", []byte("0.3")},
		{"CE_ID", []byte("c")}, {"ce_subject", nil},
	}
	var m envelope.Message
	require.NoError(t, m.SetHeaders(odd))
	require.Equal(t, "a", m.ID)
	require.Equal(t, odd[1:], m.Extra)
}

func TestTooManyHeadersAreRefused(t *testing.T) {
	var m envelope.Message
	require.ErrorIs(t, m.SetHeaders(make([]envelope.Header, envelope.MaxHeaders+1)), envelope.ErrHeaders)
	require.ErrorIs(t, m.SetHeaders([]envelope.Header{{"x", make([]byte, envelope.MaxHeaderBytes)}}), envelope.ErrHeaders)
}

func TestAFlowBeginsWithItsOwnCorrelation(t *testing.T) {
	var m envelope.Message
	envelope.CauseOf(context.Background()).Apply(&m)
	id := uuid.MustParse(m.ID)
	require.EqualValues(t, 7, id.Version())
	require.Equal(t, m.ID, m.CorrelationID)
	require.Empty(t, m.CausationID)
}

func TestEmissionsInheritAndRepeat(t *testing.T) {
	at := time.UnixMilli(1_763_712_000_123)
	run := func(redrive int) []envelope.Message {
		in := whole()
		ctx := envelope.WithCause(context.Background(), &envelope.Cause{Message: in, Handler: "h", Redrive: redrive, At: at})
		var out [2]envelope.Message
		for i := range out {
			envelope.CauseOf(ctx).Apply(&out[i])
		}
		return out[:]
	}
	first := run(0)
	require.Equal(t, first, run(0), "a repeated run must emit the same messages")
	require.NotEqual(t, first[0].ID, first[1].ID)
	require.NotEqual(t, first[0].ID, run(1)[0].ID, "a redrive is no duplicate of its former self")
	for _, m := range first {
		require.Equal(t, "0", m.CorrelationID)
		require.Equal(t, "1", m.CausationID)
		require.Equal(t, whole().TraceParent, m.TraceParent)
		id := uuid.MustParse(m.ID)
		require.EqualValues(t, 7, id.Version())
		require.Equal(t, uuid.RFC4122, id.Variant())
		sec, nsec := id.Time().UnixTime()
		require.Equal(t, at.UnixMilli(), time.Unix(sec, nsec).UnixMilli())
	}
}

// TestAnotherMessageHasAnotherID: a run after a set back decides otherwise than the one whose commit is lost. Its messages that are
// others have ids of their own, and the ones that are the same keep theirs.
func TestAnotherMessageHasAnotherID(t *testing.T) {
	run := func(types ...string) map[string]string {
		ctx := envelope.WithCause(context.Background(), &envelope.Cause{Message: whole(), Handler: "h", At: time.UnixMilli(1)})
		ids := make(map[string]string)
		for _, typ := range types {
			topic, typ, _ := strings.Cut(typ, "/")
			m := envelope.Message{Topic: topic, Type: typ}
			envelope.CauseOf(ctx).Apply(&m)
			ids[topic+"/"+typ] = m.ID
		}
		return ids
	}
	lost, again := run("a/SeatBooked", "a/Noted"), run("a/SeatsFull", "b/SeatBooked", "a/Noted")
	require.NotContains(t, []string{again["a/SeatsFull"], again["b/SeatBooked"]}, lost["a/SeatBooked"])
	require.Equal(t, lost["a/Noted"], again["a/Noted"])
}

func TestJSONSaysWhatItCannotRead(t *testing.T) {
	var into struct{ A int }
	require.ErrorIs(t, envelope.JSONCodec{}.Decode(envelope.Message{Payload: []byte(`{"A":"x"}`)}, &into), envelope.ErrPayload)
	require.ErrorIs(t, envelope.JSONCodec{}.Decode(envelope.Message{ContentType: envelope.Avro}, &into), envelope.ErrPayload)
	_, err := envelope.JSONCodec{}.Encode("t", struct{}{})
	require.Error(t, err)
}

func FuzzUnmarshalHeaders(f *testing.F) {
	f.Add(envelope.MarshalHeaders(whole().Headers()))
	f.Add([]byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		hs, err := envelope.UnmarshalHeaders(b)
		if err != nil {
			return
		}
		again, err := envelope.UnmarshalHeaders(envelope.MarshalHeaders(hs))
		require.NoError(t, err)
		require.Equal(t, hs, again)
	})
}

func ExampleMessage_Headers() {
	m := envelope.Message{ID: "0193", Type: "PaymentCharged", Subject: "order-17", Outcome: envelope.Success}
	for _, h := range m.Headers() {
		fmt.Printf("%s: %s\n", h.Key, h.Value)
	}
	// Output:
	// ce_specversion: 1.0
	// ce_id: 0193
	// ce_type: PaymentCharged
	// ce_subject: order-17
	// ce_outcome: success
}

func ExampleWithCause() {
	// A participant creates the Cause around a handler; the outbox reads it inside.
	charge := envelope.Message{ID: "charge-1", CorrelationID: "order-17"}
	ctx := envelope.WithCause(context.Background(), &envelope.Cause{Message: charge, Handler: "order.payment"})

	var charged envelope.Message
	envelope.CauseOf(ctx).Apply(&charged)
	fmt.Println(charged.CorrelationID, charged.CausationID)
	// Output: order-17 charge-1
}
