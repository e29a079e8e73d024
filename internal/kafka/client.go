// Package kafka contains the parts that several packages need of Kafka: a client with our defaults, conversions between records
// and messages, topics, and classes of errors.
package kafka

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// NewClient makes a client for brokers ("host:port"). Later options override earlier ones and the defaults: no lingering, since
// latency counts and a busy producer fills batches anyway, and acknowledgement by all replicas with idempotent writes, which is
// kgo's default. Topics are not created automatically. Batches are unpacked within a limit of memory. A broker that does not answer is left
// soon after the others have replaced it, see metadataAge.
func NewClient(brokers []string, opts ...kgo.Opt) (*kgo.Client, error) {
	if len(brokers) == 0 {
		return nil, errors.New("kafka: no broker addresses")
	}
	u := &unpacker{built: make(chan struct{})}
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.WithDecompressor(u),
		kgo.WithPools(keeper{}),
		kgo.ProducerLinger(0),
		kgo.DialTimeout(answerTimeout),
		kgo.RequestTimeoutOverhead(answerTimeout),
		kgo.RetryBackoffFn(backoff),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MetadataMaxAge(metadataAge),
	}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	if err := u.of(client); err != nil {
		client.Close()
		return nil, fmt.Errorf("kafka: %w", err)
	}
	return client, nil
}

// answerTimeout limits the wait for a broker's answer, in addition to the time that a request gives the broker. A client that asks a frozen
// broker for metadata waits this long before it asks another broker, and so learns that the others have replaced the frozen one.
const answerTimeout = 3 * time.Second

// metadataAge limits how long the client waits for a broker that does not answer once the other brokers have replaced it
// (broker.session.timeout.ms, 9 s by default): new metadata no longer has that broker, and the client then leaves its connections and sends
// to the new leader or coordinator. Without new metadata it would wait until its own time-outs, and might then send to the same broker
// again. It also limits how long added partitions and topics created again go unnoticed.
const metadataAge = time.Second

// backoff is short: a broker that restarts is away for seconds, and all clients wait for it.
func backoff(fails int) time.Duration {
	return min(50*time.Millisecond<<min(fails, 10), time.Second)
}
