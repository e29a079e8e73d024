package schemas_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/schemas"
)

type receipt struct {
	Card   string  `avro:"card"`
	Amount int32   `avro:"amount"`
	Rate   float64 `avro:"rate"`
}

const receiptSchema = `{"type":"record","name":"shop.Receipt","fields":[
	{"name":"card","type":{"type":"enum","name":"shop.Card","symbols":["VISA","AMEX"]}},
	{"name":"amount","type":"int"}, {"name":"rate","type":"double"}]}`

// TestAnErrorOfDecodingJSONByASchemaQuotesNoPayload since errors are logged, and go into alerts.
func TestAnErrorOfDecodingJSONByASchemaQuotesNoPayload(t *testing.T) {
	t.Parallel()
	c := newCodec(t, schemas.Bind[receipt](receiptSchema))
	for payload, says := range map[string]string{
		`{"card":"4111 Jane","amount":1,"rate":1}`:        "field card",
		`{"card":"VISA","amount":41111111111,"rate":1}`:   "overflows int32",
		`{"card":"VISA","amount":1,"rate":"4111 Jane"}`:   "field rate",
		`{"card":"VISA","amount":"4111 Jane","rate":1}`:   "expected number at offset",
		`{"card":"VISA","4111 Jane":1}`:                   `missing required field "amount"`,
		`{"card":"VISA","amount":1,"rate":1} 4111 Jane`:   "offset",
		`{"card":"\u0034111 Jane\"","amount":1,"rate":1}`: "field card",
	} {
		err := c.Decode(envelope.Message{ContentType: envelope.JSON, Payload: []byte(payload)}, new(receipt))
		require.ErrorIs(t, err, envelope.ErrPayload, payload)
		require.ErrorContains(t, err, says, payload)
		require.NotContains(t, err.Error(), "4111", payload)
		require.NotContains(t, err.Error(), "Jane", payload)
	}
}
