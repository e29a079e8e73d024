package envelope_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
)

type card struct {
	Paid   time.Time `json:"paid"`
	Amount int32     `json:"amount"`
	Owner  struct {
		Age int8 `json:"age"`
	} `json:"owner"`
}

// TestAnErrorOfDecodingQuotesNoPayload since errors are logged.
func TestAnErrorOfDecodingQuotesNoPayload(t *testing.T) {
	t.Parallel()
	for payload, says := range map[string]string{
		`{"paid":"4111-1111 Jane Doe"}`:    "does not fit its Go type (*time.ParseError)",
		`{"amount":"4111 Jane"}`:           `field "amount" at byte 21: a JSON string does not fit int32`,
		`{"amount":41111111111}`:           `a JSON number does not fit int32`,
		`{"owner":{"age":4111}}`:           `field "owner.age"`,
		`{"amount": 4111 Jane}`:            "no JSON from byte 17",
		`4111 Jane`:                        "no JSON from byte 6",
		`{"amount": 1, "Jane 4111": `:      "no JSON from byte 27",
		`["4111 Jane"]`:                    "a JSON array does not fit",
		"{\"amount\": \"4111 Jane\\u12\"}": "no JSON from byte",
	} {
		err := envelope.JSONCodec{}.Decode(envelope.Message{Payload: []byte(payload)}, new(card))
		require.ErrorIs(t, err, envelope.ErrPayload)
		require.ErrorContains(t, err, says, payload)
		require.NotContains(t, err.Error(), "4111", payload)
		require.NotContains(t, err.Error(), "Jane", payload)
	}
}

// A compressed message of a few kilobytes may have many megabytes of empty values, each of which takes hundreds of bytes in memory.
func TestJSONHasALimitOfValues(t *testing.T) {
	t.Parallel()
	var into []struct{ Fields [32]string }
	err := envelope.JSONCodec{}.Decode(envelope.Message{Payload: []byte("[" + strings.Repeat("{},", 1<<20) + "{}]")}, &into)
	require.ErrorIs(t, err, envelope.ErrPayload)
	require.ErrorContains(t, err, "more than 1048576 values")
	require.Empty(t, into)
}
