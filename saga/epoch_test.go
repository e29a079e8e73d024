package saga_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// asked returns a payment that was given up and sent again: its first command is a dead letter, its second is not answered yet.
func asked(t *testing.T) *run {
	r, _ := startOrder(t)
	r.take(answer("payment", "forward", "exhausted", "troupe.Exhausted", nil))
	fx := r.take(saga.Event{Kind: saga.ActRetry, Step: "payment", Actor: "me"})
	require.Equal(t, 1, fx.Commands[0].Epoch)
	return r
}

func TestTheAnswerToAnEarlierCommandDoesNotDecideALaterOne(t *testing.T) {
	r := asked(t)
	for _, outcome := range []string{"failure", "exhausted"} { // of the dead letter, redriven
		require.NotEmpty(t, r.take(answer("payment", "forward", outcome, "PaymentRefused", nil)).Ignored)
	}
	require.Equal(t, saga.Running, r.s.Status)
	require.Equal(t, []string{"inventory/forward"}, sent(r.pay()), "it took effect, whichever command did it")
}

func TestARefusalAfterARetryLeavesTheFirstCommandInDoubt(t *testing.T) {
	r := asked(t)
	refusal := answer("payment", "forward", "failure", "PaymentRefused", map[string]any{"reason": "no money"})
	refusal.Epoch = 1
	fx := r.take(refusal)
	require.Equal(t, []string{"payment/compensate"}, sent(fx), "the dead letter may be redriven, and must do nothing then")
	require.True(t, fx.Commands[0].Doubt)
	require.Contains(t, r.s.Reason, "no money")
	r.take(answer("payment", "compensate", "success", saga.NothingType, nil))
	require.Equal(t, saga.Compensated, r.s.Status)
}

func TestTheAnswerToAnEarlierCompensationDoesNotFailALaterOne(t *testing.T) {
	r, _ := startOrder(t)
	r.pay()
	r.take(answer("inventory", "forward", "failure", "StockRefused", map[string]any{"reason": "none left"}))
	r.take(answer("payment", "compensate", "exhausted", "troupe.Exhausted", nil))
	require.Equal(t, saga.Parked, r.s.Status)
	r.take(saga.Event{Kind: saga.ActRetry, Step: "payment", Actor: "me"})
	require.NotEmpty(t, r.take(answer("payment", "compensate", "failure", "RefundRefused", nil)).Ignored)
	require.Equal(t, saga.Compensating, r.s.Status)
}
