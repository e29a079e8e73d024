package outbox

import "time"

// PublishedRow describes a row that a relay has published and whose writer has a sampled trace: its headers contain a W3C traceparent with
// the sampled flag. The relay passes it to its hook Traced.
type PublishedRow struct {
	ID          string // of the message
	Topic       string
	Partition   int32
	Offset      int64
	TraceParent string
	TraceState  string
	Attempts    int // failed tries before it was published

	Written   time.Time // created_at, by the database's clock; zero for infinity. For a mapped row its timestamp, or the time of its commit
	Sent      time.Time // when the row was given to the Kafka client, by the relay's clock
	Published time.Time // when the broker had acknowledged it; under ExactlyOnce when its Kafka transaction was committed
}
