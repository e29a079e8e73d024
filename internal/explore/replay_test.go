package explore_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// step payment is refused, and may still take effect.
func TestCounterexample(t *testing.T) {
	text, err := os.ReadFile("../../saga/testdata/order.saga.json")
	if err != nil {
		t.Fatal(err)
	}
	d, err := saga.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var s saga.State
	var fx saga.Effects
	for _, step := range []struct {
		after time.Duration
		event saga.Event
	}{
		{0, saga.Event{Kind: "started", Fields: map[string]any{"amount_cents": 1, "customer_id": "customer_id-1", "order_id": "order_id-1", "quantity": 1, "title": 1}}},
		{10 * time.Minute, saga.Event{Kind: "fired", Deadline: "payment.timeout", Keep: true}},
	} {
		s, fx = saga.Decide(d, s, step.event, start.Add(step.after))
	}
	var phases, sends []string
	for _, ss := range s.Steps {
		phase := ss.Phase
		if phase == saga.StepWaiting {
			phase = "waiting"
		}
		phases = append(phases, ss.Name+" "+string(phase))
	}
	for _, c := range fx.Commands {
		sends = append(sends, fmt.Sprintf("%s/%s/%d", c.Step, c.Operation, c.Epoch))
	}
	got := fmt.Sprintf("v%d %s: %s; sends %v", s.Version, s.Status, strings.Join(phases, ", "), sends)
	if got == "v2 compensated: payment refused, inventory skipped, shipping skipped; sends []" {
		t.Error("step payment is refused, and may still take effect")
	}
}
