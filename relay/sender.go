package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
)

// A sender sends records so that no record overtakes an earlier one of its key, whatever the broker refuses. It relies on two facts. The
// broker accepts or refuses a record batch as a whole. When the broker refuses a batch, the client fails all records that it holds for the
// partition.
//
// So the client must hold all records of a send before it writes the first one (manual flushing). It can do that only for topics that it
// has seen. Therefore the first record to a topic is the only record to that topic in its send. The next send begins when all records of
// this one are acknowledged or refused.
//
// The client writes several batches of a partition before the first one is acknowledged. If the broker refuses the first one, it refuses the
// others by their sequence numbers. But a broker forgets the sequence numbers of a producer in a partition when the producer's last record
// there is older than producer.id.expiration.ms, and then accepts any number. So a send has one batch of a topic if one of its partitions
// took no record that is younger than sender.forgets.
type sender struct {
	client   *kgo.Client
	maxBatch int                 // largest size of a batch, in bytes
	maxSend  int                 // largest size of a send, in bytes
	seen     map[string]struct{} // topics that the client has seen
	limits   map[string]int      // largest size of a batch, in bytes, for topics to which a larger one was refused
	taken    map[string]taken    // when the partitions of a topic last took a record, by topic
	forgets  time.Duration       // time without a record after which a broker may have forgotten the client's sequence numbers in a partition
	steady   bool                // limits do not grow
	single   bool                // all records of a send are to one topic
	distinct bool                // a send has at most one record of each key

	partitions map[string]int32 // number of partitions by topic, for topics of rows that name their partition
	patience   patience
}

// A taken has, for each partition of a topic, the time of this client's last record there. A partition that took none is not in it: there the client
// itself waits for the first batch before it writes a second one.
type taken map[int32]time.Time

// forgets is the time without a record after which a send has one batch of the topic, see sender. It is much shorter than producer.id.expiration.ms, which is a day by default.
const forgets = time.Minute

func newSender(client *kgo.Client) *sender {
	most, _ := client.OptValue(kgo.ProducerBatchMaxBytes).(int32)
	return &sender{
		client: client, maxBatch: int(most), maxSend: sendBytes, forgets: forgets,
		seen: make(map[string]struct{}), limits: make(map[string]int), taken: make(map[string]taken),
	}
}

// sizeOf returns an upper bound of the record's size in a batch. The lengths and deltas of a record are varints, so 40 bytes are enough for
// them, and 10 more for each header.
func sizeOf(r *kgo.Record) int {
	n := 40 + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += 10 + len(h.Key) + len(h.Value)
	}
	return n
}

const (
	batchHead = 100     // upper bound of a batch's size without its records
	sendBytes = 4 << 20 // largest size of a send, in bytes
)

// cut splits the queue into the items of the next send, at least one, and the items after them.
func (s *sender) cut(queue []*item) (now, later []*item) {
	total, of, sent := batchHead, make(map[string]int, 8), make(keys)
	limits := make(map[string]int, 8)
	for n, i := range queue {
		topic := i.record.Topic
		already, more := of[topic]
		if !more {
			limits[topic] = s.limitOf(topic)
		}
		_, seen := s.seen[topic]
		if i.size > s.maxBatch { // too large for any batch: the client refuses it at once, before earlier records are sent
			return queue[:max(n, 1)], queue[max(n, 1):]
		}
		if n > 0 && (total+i.size > s.maxSend || s.single && topic != queue[0].record.Topic) ||
			more && (!seen || already+i.size > limits[topic]) ||
			s.distinct && sent.has(i) {
			return queue[:n], queue[n:]
		}
		if s.distinct {
			sent.add(i)
		}
		total += i.size
		of[topic] = already + i.size
	}
	return queue, nil
}

// limitOf returns the largest size of a topic's records in the next send, in bytes.
func (s *sender) limitOf(topic string) int {
	if limit, limited := s.limits[topic]; limited {
		return limit
	}
	for _, at := range s.taken[topic] {
		if time.Since(at) >= s.forgets {
			return s.maxBatch - batchHead
		}
	}
	return s.maxSend
}

// unseenTopicsFirst reorders the queue: the first record of each topic that is new to the client comes before the other records of that
// topic. If a record is moved back, so are the later records of its key. So the first records are in one send, and if none of the topics has
// a leader, all are given up after one time limit. A Kafka transaction has no such limit, and its queue is not changed.
func (s *sender) unseenTopicsFirst(queue []*item) []*item {
	unseen := func(i *item) bool {
		_, seen := s.seen[i.record.Topic]
		return !seen
	}
	if s.patience.limit == 0 || !slices.ContainsFunc(queue, unseen) {
		return queue
	}
	first, later := make([]*item, 0, len(queue)), make([]*item, 0, len(queue))
	begun, behind := make(map[string]struct{}), make(keys)
	for _, i := range queue {
		if _, more := begun[i.record.Topic]; more || behind.has(i) {
			behind.add(i)
			later = append(later, i)
			continue
		}
		if unseen(i) {
			begun[i.record.Topic] = struct{}{}
		}
		first = append(first, i)
	}
	return append(first, later...)
}

// send sends the items' records, and returns when each is acknowledged or refused. It sets err of each item: nil, the refusal, or
// errNotTaken if no broker took the record in time, see patience. If ctx ends first, send returns ctx's error. Then the results are not
// known, and the client must be closed before the items are used again.
func (s *sender) send(ctx context.Context, items []*item) error {
	var open sync.WaitGroup
	open.Add(len(items))
	deadlines := make(map[time.Duration]deadline, 1)
	limits := make(map[string]time.Duration, 1) // by topic, so that no later record of a key is sent when an earlier one is given up
	for _, i := range items {
		limit, known := limits[i.record.Topic]
		if !known {
			limit = s.patience.limitOf(i.record.Topic)
			limits[i.record.Topic] = limit
		}
		if _, there := deadlines[limit]; !there {
			deadlines[limit] = s.deadlineAfter(ctx, limit)
		}
		// Produce gets the deadline's context, and not ctx: when ctx ends, the client must not give up a record that was written and may
		// still be acknowledged.
		s.client.Produce(deadlines[limit].ctx, i.record, func(_ *kgo.Record, err error) {
			i.err = err
			open.Done()
		})
	}
	err := s.client.Flush(ctx)
	if err == nil {
		open.Wait() // Flush returns when the records are settled, which is before the last promise has run
	}
	for _, d := range deadlines {
		d.end()
	}
	if err != nil {
		return err
	}
	now := time.Now()
	for _, i := range items {
		s.notTaken(i, now)
		s.learn(i)
		if i.err == nil {
			s.took(i, now)
		}
	}
	return nil
}

// learn updates the sender's data about the item's topic with the result of a send.
func (s *sender) learn(i *item) {
	topic := i.record.Topic
	if i.err != nil {
		delete(s.partitions, topic) // the topic may have been created again
	}
	switch {
	case i.err == nil:
		s.seen[topic] = struct{}{}
		if limit, limited := s.limits[topic]; limited && !s.steady {
			// The limit grows slowly. If it is too large, a send is refused; if it is too small, batches are only smaller.
			if limit += i.size / 8; limit >= s.maxBatch {
				delete(s.limits, topic)
			} else {
				s.limits[topic] = limit
			}
		}
	case errors.Is(i.err, errNotTaken):
		// If the client knows the topic's partitions, it can hold all further records to the topic, for the partitions that take none and for
		// the others. A send for each of them would have a time limit of its own.
		if leader, _, _ := s.client.PartitionLeader(topic, 0); leader != unknownPartition {
			s.seen[topic] = struct{}{}
		}
	case kafka.Classify(i.err) == kafka.UnknownTopic:
		// The topic was deleted, and may have been created again under another id. The client would not notice that.
		delete(s.seen, topic)
		delete(s.taken, topic)
		s.client.PurgeTopicsFromProducing(topic)
	}
}

// took records that the partition of i has taken a record. The broker counts from the record's timestamp, and a mapped row may have an old one.
func (s *sender) took(i *item, now time.Time) {
	of := s.taken[i.record.Topic]
	if of == nil {
		of = make(taken)
		s.taken[i.record.Topic] = of
	}
	if at := i.record.Timestamp; at.Before(now) {
		now = at
	}
	of[i.record.Partition] = now
}

// unknownPartition is the client's leader of a partition that it does not know. A partition that has no leader has another negative number.
const unknownPartition = -1

// halve limits later batches to a topic to half of bytes, the size of a batch that was refused.
func (s *sender) halve(topic string, bytes int) {
	if limit, limited := s.limits[topic]; !limited || limit > bytes/2 {
		s.limits[topic] = bytes / 2
	}
}

// relax removes the restrictions that were set when a transaction failed. It is called when the rows of that transaction are committed.
func (s *sender) relax() { s.steady, s.single, s.distinct = false, false, false }

// maxTopicName is Kafka's limit for the length of a topic's name. The relay does not look up a longer name, since a broker closes the
// connection on a request with a much longer one.
const maxTopicName = 249

// lookTimeout limits a request to a broker or server that may be unavailable.
const lookTimeout = 5 * time.Second

// findTopics looks up the topics of items that the client has not seen. It returns the topics to which no record can be sent, each with the
// reason.
func (s *sender) findTopics(ctx context.Context, items []*item) (map[string]error, error) {
	var names []string
	refused := make(map[string]error)
	asked := make(map[string]struct{})
	for _, i := range items {
		_, seen := s.seen[i.row.Topic]
		_, twice := asked[i.row.Topic]
		if !seen && !twice {
			asked[i.row.Topic] = struct{}{}
			if i.row.Topic == "" || len(i.row.Topic) > maxTopicName { // the client fails the whole look for an empty name
				refused[i.row.Topic] = kerr.InvalidTopicException
				continue
			}
			names = append(names, i.row.Topic)
		}
	}
	if len(names) == 0 {
		return refused, nil
	}
	details, err := s.listAllowed(ctx, names, refused)
	if err != nil {
		return nil, fmt.Errorf("look for topics: %w", err)
	}
	for _, name := range names {
		switch d, there := details[name]; {
		case refused[name] != nil:
		case !there:
			refused[name] = kerr.UnknownTopicOrPartition
		case d.Err != nil && !kerr.IsRetriable(d.Err), errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			refused[name] = d.Err
		}
	}
	return refused, nil
}

// listAllowed looks up topics as list does. It adds each topic that the relay may not describe to refused. One such topic makes the whole
// response an error, and then listAllowed looks up each topic on its own.
func (s *sender) listAllowed(ctx context.Context, names []string, refused map[string]error) (kadm.TopicDetails, error) {
	details, err := s.list(ctx, names)
	var denied *kadm.AuthError
	if !errors.As(err, &denied) {
		return details, err
	}
	details = make(kadm.TopicDetails)
	for _, name := range names {
		one, err := s.list(ctx, []string{name})
		switch {
		case errors.As(err, &denied):
			refused[name] = err
		case err != nil:
			return nil, err
		}
		maps.Copy(details, one)
	}
	return details, nil
}

// list looks up topics, and returns as soon as ctx ends or lookTimeout has passed. The client itself waits 10 s for a broker that accepts
// the connection and does not respond. Its request then goes on until the client is closed.
func (s *sender) list(ctx context.Context, names []string) (kadm.TopicDetails, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	type answer struct {
		details kadm.TopicDetails
		err     error
	}
	answered := make(chan answer, 1)
	go func() {
		details, err := kadm.NewClient(s.client).ListTopicsWithInternal(ctx, names...)
		answered <- answer{details, err}
	}()
	select {
	case a := <-answered:
		return a.details, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer: %w", context.Cause(ctx))
	}
}

// wire receives events of the client's connections.
type wire struct{ relay *Relay }

var (
	_ kgo.HookBrokerConnect = wire{}
	_ kgo.HookBrokerWrite   = wire{}
)

// OnBrokerConnect records whether the broker can be reached, for Ready.
func (w wire) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	w.relay.state.brokerIs(err)
}

// OnBrokerWrite calls the Sent hook for produce requests.
func (w wire) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	const produce = 0
	if rows := w.relay.flight.Load(); key == produce && err == nil && rows > 0 {
		call(w.relay.cfg.Hooks.Sent, int(rows))
	}
}
