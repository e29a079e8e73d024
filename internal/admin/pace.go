package admin

import (
	"context"
	"time"
)

// NewPace returns a function that blocks so that it returns at most rate times a second; 0: 50 times; negative: without a limit.
// end releases the timer.
func NewPace(rate float64) (wait func(context.Context) error, end func()) {
	if rate == 0 {
		rate = 50
	}
	if rate < 0 {
		return func(ctx context.Context) error { return ctx.Err() }, func() {}
	}
	tick := time.NewTicker(max(time.Microsecond, time.Duration(float64(time.Second)/rate)))
	first := true
	return func(ctx context.Context) error {
		if first {
			first = false
			return ctx.Err()
		}
		select {
		case <-tick.C:
			return ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}, tick.Stop
}
