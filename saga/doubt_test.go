package saga_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// In TestALateAnswerEndsTheDoubtOfACompensation a refund in doubt was given up, and then the answer to the charge arrives. The
// refund that an operator retries is not in doubt, so that it runs even if its hop no longer knows the charge.
func TestALateAnswerEndsTheDoubtOfACompensation(t *testing.T) {
	for _, before := range []bool{true, false} { // whether the answer arrives before the refund is given up
		r, _ := startOrder(t)
		r.now = noon.Add(time.Hour)
		fx := r.take(saga.Event{Kind: saga.Fired, Deadline: "payment.timeout"})
		require.True(t, fx.Commands[0].Doubt)
		require.Equal(t, noon, fx.Commands[0].Since.UTC(), "when the charge was sent")
		late := func() {
			r.take(answer("payment", "forward", "success", "PaymentCharged", map[string]any{"payment_id": "p-1"}))
		}
		if before {
			late()
		}
		r.take(answer("payment", "compensate", "exhausted", "troupe.Exhausted", nil))
		if !before {
			late()
		}
		require.False(t, r.s.Steps[0].Doubt)
		r.now = noon.AddDate(0, 0, 8)
		fx = r.take(saga.Event{Kind: saga.ActRetry, Step: "payment", Actor: "me"})
		require.Equal(t, []string{"payment/compensate"}, sent(fx))
		require.False(t, fx.Commands[0].Doubt)
		require.Equal(t, noon.Add(time.Hour), fx.Commands[0].Since.UTC(), "when the refund was sent first")
	}
}

func TestACommandThatIsSentAgainSaysSinceWhenItMayHaveBeenAnswered(t *testing.T) {
	r, fx := startOrder(t)
	require.Zero(t, fx.Commands[0].Since)
	r.take(answer("payment", "forward", "exhausted", "troupe.Exhausted", nil))
	r.now = noon.AddDate(0, 0, 40)
	fx = r.take(saga.Event{Kind: saga.ActRetry, Step: "payment", Actor: "me"})
	require.Equal(t, noon, fx.Commands[0].Since.UTC())
}

// In TestACompensationThatDidNotHappenIsSentAgainWithoutDoubt an operator supplies the fact that the hop may have forgotten.
func TestACompensationThatDidNotHappenIsSentAgainWithoutDoubt(t *testing.T) {
	r, _ := startOrder(t)
	r.now = noon.Add(time.Hour)
	require.True(t, r.take(saga.Event{Kind: saga.Fired, Deadline: "payment.timeout"}).Commands[0].Doubt)
	r.now = noon.AddDate(0, 0, 40)
	r.take(answer("payment", "compensate", "exhausted", "troupe.Exhausted", nil))
	fx := r.take(saga.Event{Kind: saga.ActResolve, Step: "payment", Actor: "me"})
	require.Equal(t, []string{"payment/compensate"}, sent(fx))
	require.False(t, fx.Commands[0].Doubt)
	require.Equal(t, 1, fx.Commands[0].Epoch)
	require.Equal(t, r.now, fx.Commands[0].Since.UTC(), "nothing before it was answered")
	require.Equal(t, saga.Compensating, r.s.Status)
}

// In TestADeadLetterOfAnotherHopAnswersNoStep a hop that consumes an event of the step has given up that event.
func TestADeadLetterOfAnotherHopAnswersNoStep(t *testing.T) {
	r, _ := startOrder(t)
	r.now = noon.Add(time.Hour)
	for _, operation := range []string{"forward", "compensate"} {
		e := answer("payment", operation, "exhausted", "troupe.Exhausted", nil)
		e.Hop = "listener"
		_, fx := saga.Decide(r.d, r.s, e, r.now)
		require.Contains(t, fx.Ignored, "listener has given up an event")
		if operation == "forward" {
			r.take(saga.Event{Kind: saga.Fired, Deadline: "payment.timeout"})
			require.Equal(t, saga.CompensateIntent, r.s.Steps[0].Phase)
		}
	}
	r.take(answer("payment", "compensate", "exhausted", "troupe.Exhausted", nil))
	require.Equal(t, saga.CompensateFailed, r.s.Steps[0].Phase)
}
