package schemas_test

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/linkedin/goavro/v2"
	"github.com/stretchr/testify/require"
	"github.com/twmb/avro"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/demo/messages"
)

// zeroes has one of each struct of the order flow, by the name of its file.
var zeroes = map[string]any{
	"ChargePayment": messages.ChargePayment{}, "PaymentCharged": messages.PaymentCharged{}, "PaymentRefused": messages.PaymentRefused{},
	"RefundPayment": messages.RefundPayment{}, "PaymentRefunded": messages.PaymentRefunded{},
	"ReserveStock": messages.ReserveStock{}, "StockReserved": messages.StockReserved{}, "StockRefused": messages.StockRefused{},
	"ReleaseStock": messages.ReleaseStock{}, "StockReleased": messages.StockReleased{},
	"ShipOrder": messages.ShipOrder{}, "OrderShipped": messages.OrderShipped{}, "ShippingRefused": messages.ShippingRefused{},
	"OrderPlaced": messages.OrderPlaced{}, "OrderLate": messages.OrderLate{},
	"OrderCompleted": messages.OrderCompleted{}, "OrderCancelled": messages.OrderCancelled{},
}

// random sets one field, to numbers as wide as 32 bits if the schema has an int.
func random(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		alphabet := []rune("aZ0-_ \"\\\x00\u007fäß€語😀")
		text := make([]rune, r.IntN(20))
		for i := range text {
			text[i] = alphabet[r.IntN(len(alphabet))]
		}
		v.SetString(string(text))
	case reflect.Int:
		v.SetInt(int64(int32(r.Uint32())) >> r.IntN(32))
	case reflect.Int64:
		v.SetInt(int64(r.Uint64()) >> r.IntN(64))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(5), 5))
		for i := range v.Len() {
			random(r, v.Index(i))
		}
	default:
		panic("random: " + v.Type().String())
	}
}

// native returns a struct in the form that goavro accepts.
func native(v reflect.Value) map[string]any {
	m := make(map[string]any)
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("avro")
		switch f := v.Field(i); f.Kind() {
		case reflect.Slice:
			items := make([]any, f.Len())
			for j := range items {
				items[j] = f.Index(j).Interface()
			}
			m[name] = items
		default:
			m[name] = f.Interface()
		}
	}
	return m
}

func TestBothLibrariesWriteTheSameBytes(t *testing.T) {
	c := newCodec(t, messages.Types()...)
	r := rand.New(rand.NewPCG(1, 2))
	for name, zero := range zeroes {
		avsc, err := os.ReadFile(filepath.Join("..", "internal", "demo", "messages", name+".avsc"))
		require.NoError(t, err)
		generic, err := goavro.NewCodec(string(avsc))
		require.NoError(t, err)
		for range 300 {
			v := reflect.New(reflect.TypeOf(zero))
			for i := range v.Elem().NumField() {
				random(r, v.Elem().Field(i))
			}
			body := v.Elem().Interface()

			e, err := c.Encode("t", body)
			require.NoError(t, err)
			theirs, err := generic.BinaryFromNative(nil, native(v.Elem()))
			require.NoError(t, err)
			require.Equal(t, theirs, e.Payload[5:], "%+v", body)

			back := reflect.New(reflect.TypeOf(zero))
			require.NoError(t, c.Decode(envelope.Message{Payload: e.Payload}, back.Interface()))
			require.Equal(t, body, back.Elem().Interface())

			_, text, err := c.ToJSON(t.Context(), e.Payload)
			require.NoError(t, err)
			again, err := c.FromJSON(t.Context(), e.Type, text)
			require.NoError(t, err, "%s", text)
			require.Equal(t, e.Payload, again.Payload, "%s", text)

			require.NoError(t, c.Decode(envelope.Message{ContentType: envelope.JSON, Payload: text}, back.Interface()))
			require.Equal(t, body, back.Elem().Interface())
		}
	}
}

func TestNumbersThatDoNotFitAreRefusedByBoth(t *testing.T) {
	c := newCodec(t, messages.Types()...)
	_, err := c.Encode("t", messages.ReserveStock{Quantity: math.MaxInt32 + 1})
	require.Error(t, err)
	_, err = c.FromJSON(t.Context(), "troupe.order.ReserveStock", []byte(`{"order_id":"o","title":1,"quantity":2147483648}`))
	require.ErrorIs(t, err, envelope.ErrPayload)
	_, err = c.FromJSON(t.Context(), "troupe.order.OrderCompleted", []byte(`{"order_id":"","customer_id":"","amount_cents":1.5,"shipment_id":""}`))
	require.ErrorIs(t, err, envelope.ErrPayload)
}

func TestEveryFileIsBoundAndDocumented(t *testing.T) {
	files, err := filepath.Glob("../internal/demo/messages/*.avsc")
	require.NoError(t, err)
	require.Len(t, files, len(zeroes))
	require.Len(t, messages.Types(), len(zeroes))
	c := newCodec(t, messages.Types()...)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".avsc")
		avsc, err := os.ReadFile(file)
		require.NoError(t, err)
		root := avro.MustParse(string(avsc)).Root()
		require.Equal(t, "troupe.order", root.Namespace)
		require.Equal(t, name, root.Name)
		require.NotEmpty(t, root.Doc)
		require.Equal(t, "order_id", root.Fields[0].Name)
		for _, f := range root.Fields {
			require.NotEmpty(t, f.Doc, "%s.%s", name, f.Name)
		}
		bound, err := c.TypeOf(zeroes[name])
		require.NoError(t, err)
		require.Equal(t, "troupe.order."+name, bound)
		require.Equal(t, name, reflect.TypeOf(zeroes[name]).Name())
	}
}
