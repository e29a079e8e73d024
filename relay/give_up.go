package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
)

// errNotTaken means that no broker took a record in time, although brokers answer. Without a limit the client would try the record again
// for as long as that lasts, and the relay could send no row of another topic.
var errNotTaken = errors.New("brokers answer, but none takes records of this partition: " +
	"see whether it has a leader, and as many replicas in sync as min.insync.replicas says")

const (
	leastPatience = 15 * time.Second // longer than it takes to leave a broker that does not answer, and to send to its successor
	probeTime     = 2 * time.Second
)

// A patience limits the time for which a send waits for records that no broker takes while brokers answer. The zero value sets no limit:
// a Kafka transaction cannot end without all of its partitions anyway.
type patience struct {
	most    time.Duration        // for records of a topic; 0: no limit
	probe   time.Duration        // for records of a topic of which a record was given up less than most ago
	givenUp map[string]time.Time // when a record was last given up, by topic
}

func (r *Relay) newPatience() patience {
	return patience{max(r.cfg.UnknownTopic, r.patience), min(probeTime, r.patience), make(map[string]time.Time)}
}

// newProducer creates the client of a term. A record that it gives up may be stored all the same: it is then published twice.
func (r *Relay) newProducer() (*kgo.Client, error) {
	return r.newClient(kgo.AllowIdempotentProduceCancellation())
}

// limitOf returns the time after which a record to the topic may be given up; 0: never.
func (p patience) limitOf(topic string) time.Duration {
	at, there := p.givenUp[topic]
	switch {
	case !there:
		return p.most
	case time.Since(at) < p.most:
		return p.probe
	}
	delete(p.givenUp, topic)
	return p.most
}

// A deadline ends its context to make the client give up those records of a send that were produced with it.
type deadline struct {
	ctx context.Context
	end func() // call it when all records are settled. It does not end ctx: the client may use that for its next request
}

// deadlineAfter returns a deadline that gives records up after limit, as soon as a broker answers. While no broker answers, the records
// wait.
func (s *sender) deadlineAfter(ctx context.Context, limit time.Duration) deadline {
	if limit == 0 {
		return deadline{context.Background(), func() {}}
	}
	records, giveUp := context.WithCancel(context.Background())
	asking, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	timer := time.AfterFunc(limit, func() {
		defer close(ended)
		for asking.Err() == nil {
			if s.client.Ping(asking) == nil {
				giveUp()
				return
			}
			sleep(asking, time.Second, nil)
		}
	})
	return deadline{records, func() {
		cancel()
		if !timer.Stop() {
			<-ended
		}
	}}
}

// gaveUp reports whether err shows that the client gave up a record because its deadline ended: the error of a context, or an error after
// which the client would otherwise have tried again.
func gaveUp(err error) bool {
	return errors.Is(err, context.Canceled) || kerr.IsRetriable(err) && kafka.Classify(err) == kafka.Unavailable
}

// notTaken makes errNotTaken of the error of a record that was given up, and stores when that happened to its topic.
func (s *sender) notTaken(i *item) {
	if !gaveUp(i.err) || s.patience.most == 0 {
		return
	}
	s.patience.givenUp[i.record.Topic] = time.Now()
	if errors.Is(i.err, context.Canceled) {
		i.err = errNotTaken
		return
	}
	i.err = fmt.Errorf("%w: %w", errNotTaken, i.err)
}
