package testkit

import (
	"testing"
	"time"
)

const (
	waitLimit = 4 * time.Minute
	waitTick  = 10 * time.Millisecond
)

// Wait blocks until cond is true, asking every 10 ms, and fails the test after four minutes with what was waited for and cond's
// last error. An error of cond is a no.
func Wait(t testing.TB, what string, cond func() (bool, error)) {
	t.Helper()
	limit := time.NewTimer(waitLimit)
	defer limit.Stop()
	tick := time.NewTicker(waitTick)
	defer tick.Stop()
	for {
		ok, err := cond()
		if ok && err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-limit.C:
			if ok, err = cond(); ok && err == nil { // the process may have stood still
				return
			}
			t.Fatalf("waited %s for: %s (last error: %v)", waitLimit, what, err)
		}
	}
}
