// Package kafka is what several packages need of Kafka: a client with our defaults, records from messages and back,
// topics, and classes of errors.
package kafka

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// NewClient makes a client for brokers ("host:port"). Later options win over earlier ones and over the defaults:
// no lingering, since latency counts and a busy producer batches by itself, and acknowledgement by all replicas with
// idempotent writes, which kgo does unless told otherwise. Topics are never created by being named.
func NewClient(brokers []string, opts ...kgo.Opt) (*kgo.Client, error) {
	if len(brokers) == 0 {
		return nil, errors.New("kafka: no broker addresses")
	}
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.ProducerLinger(0),
		kgo.DialTimeout(5 * time.Second),
		kgo.RetryBackoffFn(backoff),
		kgo.MetadataMinAge(250 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return client, nil
}

// backoff is short: a broker that restarts is away for seconds, and everybody waits for it.
func backoff(fails int) time.Duration {
	return min(50*time.Millisecond<<min(fails, 10), time.Second)
}
