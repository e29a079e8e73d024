package testkit

import (
	"testing"
	"time"
)

const (
	waitLimit = 4 * time.Minute
	waitTick  = 10 * time.Millisecond
)

// Wait blocks until cond returns true. It calls cond every 10 ms, and after four minutes fails the test with the text what and
// cond's last error. An error of cond counts as false.
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
			if ok, err = cond(); ok && err == nil { // the process may have been suspended
				return
			}
			t.Fatalf("waited %s for: %s (last error: %v)", waitLimit, what, err)
		}
	}
}
