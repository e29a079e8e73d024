package participant

import (
	"time"

	"github.com/troupe-go/troupe/envelope"
)

// Hooks are told what happens, for metrics and for tests that must stop at an exact point. Each may be nil. They are
// called by the goroutine that does the work, which waits for them, so several may run at once, one per partition.
type Hooks struct {
	// BeforeHandler is called in the transaction, after the inbox row and before the handler.
	BeforeHandler func(Delivery)
	// BeforeCommit is called when everything is written, the outcome too; for dead letters as well.
	BeforeCommit func(Delivery)
	// AfterCommit is called when a message has taken effect or is a dead letter, before its offset is marked.
	AfterCommit func(Delivery)
	// Failed is called for each run that counts as an attempt, once it is recorded.
	Failed func(Delivery)
	// Late is called when a deadline was ignored, since it was cancelled or scheduled anew after it had fired.
	Late func(Delivery)
	// Fired is called when deadlines that were due have become messages in the outbox.
	Fired func(Fired)
	// BeforeOffsets is called with the offsets about to be committed, by topic and partition: the next to be read.
	BeforeOffsets func(map[string]map[int32]int64)
	// AfterOffsets is called when the broker has them.
	AfterOffsets func(map[string]map[int32]int64)
}

// A Delivery is one run of one message.
type Delivery struct {
	Message   envelope.Message
	Partition int32
	Offset    int64
	Handler   string           // group/type; the group alone where no handler fits
	Attempt   int              // counted from 1
	Took      time.Duration    // AfterCommit and Failed: since the run began
	Outcome   envelope.Outcome // BeforeCommit and AfterCommit; none for events that were handled
	Class     Class            // Failed and dead letters
	Err       error            // Failed and dead letters
	Batch     int              // how many messages the transaction has
}

func tell[T any](hook func(T), of T) {
	if hook != nil {
		hook(of)
	}
}
