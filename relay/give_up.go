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

// errNotTaken means that no broker took a record in time, although brokers answer. Without a time limit the client would try the record
// until a broker takes it, and the relay could send no row of another topic.
var errNotTaken = errors.New("brokers answer, but none takes records of this partition: " +
	"see whether it has a leader, and as many replicas in sync as min.insync.replicas says")

const (
	// leastPatience is the least value of patience.limit. It is longer than the client needs to leave a broker that does not answer, and to
	// send to its successor.
	leastPatience = 15 * time.Second
	probeTime     = 2 * time.Second // limit for records of a topic that has just given up others
	// answerTime is longer than a broker may work on a request, see brokerTimeout. A partition that is available again may need more than
	// probeTime for each record. If every send ended after probeTime, its records would be stored, given up and sent again for ever.
	answerTime  = 10 * time.Second
	answerEvery = 5 // of so many sends to a topic that has given up records, one has answerTime instead of probeTime
)

// A patience limits how long a send waits for records that no broker takes although brokers answer. The zero value sets no limit. It is
// used under exactly-once, where a Kafka transaction cannot end without all of its records.
type patience struct {
	limit   time.Duration     // for records of a topic; 0: no limit
	probe   time.Duration     // for records of a topic that gave up a record less than limit ago
	answer  time.Duration     // instead of probe, in one of answerEvery sends
	givenUp map[string]giveUp // by topic
}

// A giveUp records when a send to a topic last gave up a record, and how many sends did.
type giveUp struct {
	at    time.Time
	sends int
}

// newPatience returns the limits of at-least-once delivery. A record that no broker takes waits for UnknownTopic, but at least for
// Relay.patience. A record to a topic that has given up another one waits for less.
func (r *Relay) newPatience() patience {
	return patience{
		limit:   max(r.cfg.UnknownTopic, r.patience),
		probe:   min(probeTime, r.patience/2),
		answer:  min(answerTime, r.patience),
		givenUp: make(map[string]giveUp),
	}
}

// newProducer creates the client of a term. This client may give up a record that the broker has already stored: then the record is
// published twice.
func (r *Relay) newProducer() (*kgo.Client, error) {
	return r.newClient(kgo.AllowIdempotentProduceCancellation())
}

// limitOf returns the time after which the client may give up a record to the topic; 0: never.
func (p patience) limitOf(topic string) time.Duration {
	last, there := p.givenUp[topic]
	switch {
	case !there:
		return p.limit
	case time.Since(last.at) >= p.limit:
		delete(p.givenUp, topic)
		return p.limit
	case last.sends%answerEvery == 0:
		return p.answer
	}
	return p.probe
}

// A deadline limits the time of the records that were produced with ctx: when ctx ends, the client gives them up.
type deadline struct {
	ctx context.Context
	end func() // call it when all records are settled. It does not end ctx: the client may use ctx for its next request
}

// deadlineAfter returns a deadline for records of one send. It ends after limit, as soon as a broker answers a ping: while no broker
// answers, the records wait. If limit is 0, it never ends.
func (s *sender) deadlineAfter(ctx context.Context, limit time.Duration) deadline {
	if limit == 0 {
		return deadline{context.Background(), func() {}}
	}
	records, cancelRecords := context.WithCancel(context.Background())
	asking, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	timer := time.AfterFunc(limit, func() {
		defer close(ended)
		for asking.Err() == nil {
			if s.client.Ping(asking) == nil {
				cancelRecords()
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

// gaveUp reports whether err means that the client gave up a record because the record's time was over. Then err is the error of the cancelled
// context, or the error of the last try, if the client could have tried again.
func gaveUp(err error) bool {
	return errors.Is(err, context.Canceled) || kerr.IsRetriable(err) && kafka.Classify(err) == kafka.Unavailable
}

// notTaken replaces the error of a record that the client gave up by errNotTaken, and counts the send in patience.givenUp. now is the same
// for all records of a send, so that each send counts once.
func (s *sender) notTaken(i *item, now time.Time) {
	if !gaveUp(i.err) || s.patience.limit == 0 {
		return
	}
	if last := s.patience.givenUp[i.record.Topic]; !last.at.Equal(now) {
		s.patience.givenUp[i.record.Topic] = giveUp{now, last.sends + 1}
	}
	if errors.Is(i.err, context.Canceled) {
		i.err = errNotTaken
		return
	}
	i.err = fmt.Errorf("%w: %w", errNotTaken, i.err)
}
