package sagatest_test

import (
	"fmt"
	"testing"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/sagatest"
)

// A definition with a mistake. The example's t prints; a test passes its own.
func ExampleVerify() {
	var t printer
	d, err := saga.Define(saga.Spec{
		Saga: "order", Version: 1, Key: "order_id", Data: map[string]saga.Type{"order_id": saga.String},
		Completed:   []saga.Emit{{Event: "OrderEnded"}},
		Compensated: []saga.Emit{{Event: "OrderEnded"}},
	})
	if err != nil {
		panic(err)
	}
	sagatest.Verify(t, d)
	// Output:
	// saga order v1: error: ends-alike: completed[0]: OrderEnded says completed and compensated: give the latter another event, or failure
}

type printer struct{ testing.TB }

func (printer) Helper()                           {}
func (printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
