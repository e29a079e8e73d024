package decisions

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
)

func TestAnAnswerSaysWhichCommandItAnswers(t *testing.T) {
	for key, epoch := range map[string]int{"order/o-1/payment/forward/2": 2, "order/o/7/payment/forward/0": 0, "": 0, "k-9": 0} {
		require.Equal(t, epoch, MessageOf(envelope.Message{IdempotencyKey: key}, "payment").Epoch, key)
	}
}
