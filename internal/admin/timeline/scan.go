package timeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/topics"
)

// A span is the range of offsets to read of one partition.
type span struct {
	topic     string
	partition int32
	from, end int64
}

func (s span) String() string {
	return fmt.Sprintf("%s/%d from offset %d to %d", s.topic, s.partition, s.from, s.end-1)
}

// names returns the topics to read.
func (r *reading) names(ctx context.Context) ([]string, error) {
	names := slices.Clone(r.cfg.Topics)
	if r.cfg.Flow == "" {
		return names, nil
	}
	all, err := r.admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range all.Names() {
		if t, err := topics.Parse(name); err == nil && t.Hop.Flow() == r.cfg.Flow {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no topic there begins with %q", r.cfg.Flow+".")
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// spans queries the first offset since Timeline.Since and the present end of each partition. Partitions that cannot be read are
// added to Unseen.
func (r *reading) spans(ctx context.Context, names []string) ([]span, error) {
	from, err := kafka.Since(ctx, r.client, r.timeline.Since, names...)
	if err = r.partly(err); err != nil {
		return nil, err
	}
	ends, err := r.admin.ListCommittedOffsets(ctx, names...)
	if err = r.partly(err); err != nil {
		return nil, err
	}
	var spans []span
	for _, end := range ends.Offsets().Sorted() {
		r.ends[partition{end.Topic, end.Partition}] = end.At
	}
	ends.Each(func(end kadm.ListedOffset) {
		begin, ok := from.Lookup(end.Topic, end.Partition)
		switch what := fmt.Sprintf("topic %s/%d", end.Topic, end.Partition); {
		case end.Err != nil && end.Partition < 0:
			r.unseen("topic "+end.Topic, end.Err)
		case end.Err != nil:
			r.unseen(what, end.Err)
		case !ok:
			r.unseen(what, errors.New("the brokers did not say where it begins"))
		case begin.Err != nil:
			r.unseen(what, begin.Err)
		case begin.Offset < end.Offset:
			spans = append(spans, span{end.Topic, end.Partition, begin.Offset, end.Offset})
		}
	})
	slices.SortFunc(spans, func(a, b span) int {
		return comparePartitions(partition{a.topic, a.partition}, partition{b.topic, b.partition})
	})
	return spans, nil
}

// partly ignores an error if some of the brokers have answered, and adds it to Unseen.
func (r *reading) partly(err error) error {
	var shards *kadm.ShardErrors
	if errors.As(err, &shards) && !shards.AllFailed {
		r.unseen("topics of some brokers", err)
		return nil
	}
	return err
}

// ofKey separates the spans that contain what Kafka clients write with the key, for the present number of partitions.
func (r *reading) ofKey(spans []span, key string) (own, others []span) {
	counts := make(map[string]int)
	for p := range r.ends {
		counts[p.topic] = max(counts[p.topic], int(p.id)+1)
	}
	murmur2 := kgo.StickyKeyPartitioner(nil)
	for _, s := range spans {
		at := murmur2.ForTopic(s.topic).Partition(&kgo.Record{Key: []byte(key)}, counts[s.topic])
		if int(s.partition) == at {
			own = append(own, s)
		} else {
			others = append(others, s)
		}
	}
	return own, others
}

// scan reads the spans to their ends.
func (r *reading) scan(ctx context.Context, spans []span) error {
	left := make(map[partition]span, len(spans))
	from := make(map[string]map[int32]kgo.Offset)
	for _, s := range spans {
		left[partition{s.topic, s.partition}] = s
		if from[s.topic] == nil {
			from[s.topic] = make(map[int32]kgo.Offset)
		}
		from[s.topic][s.partition] = kgo.NewOffset().At(s.from)
		r.of += s.end - s.from
	}
	if len(left) == 0 {
		return nil
	}
	r.timeline.Partitions += len(left)
	client, err := kafka.NewClient(r.cfg.Brokers, append([]kgo.Opt{
		kgo.ConsumePartitions(from),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // a control record may be the last before the end
		kgo.FetchMaxBytes(8 << 20),
		kgo.FetchMaxPartitionBytes(1 << 20),
		kgo.MaxConcurrentFetches(2),
		kgo.MaxDecompressBatchBytes(unpackBytes),
	}, r.cfg.Kafka...)...)
	if err != nil {
		return err
	}
	defer client.Close()
	for len(left) > 0 {
		if r.full() {
			r.giveUp(left, fmt.Errorf("the limit of %d records, %d entries and %d MiB is reached", r.cfg.MaxRecords, MaxEntries, MaxBytes>>20))
			return nil
		}
		limited, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
		fetches := client.PollRecords(limited, int(min(10_000, r.cfg.MaxRecords-r.timeline.Records)))
		silent := fetches.NumRecords() == 0 && limited.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fetches.EachError(func(topic string, id int32, err error) {
			p := partition{topic, id}
			s, ok := left[p]
			var tooLarge *kgo.ErrDecompressTooLarge
			switch {
			case !ok || errors.Is(err, context.DeadlineExceeded):
			case errors.As(err, &tooLarge) && tooLarge.NextOffset > s.from && r.passed < maxPassed:
				r.pass(client, left, s, tooLarge)
			default:
				r.unseen("topic "+s.String(), err)
				r.finish(client, left, p)
			}
		})
		if silent {
			r.giveUp(left, fmt.Errorf("no record came for %s", r.cfg.Timeout))
			return nil
		}
		fetches.EachRecord(func(record *kgo.Record) { r.record(ctx, client, left, record) })
		r.progress()
	}
	return nil
}

// unpackBytes limits what a batch may unpack to, and maxPassed how many larger batches one reading passes over.
const (
	unpackBytes = 64 << 20
	maxPassed   = 100
)

// pass continues behind a batch that is too large when decompressed, and adds its offsets to Unseen.
func (r *reading) pass(client *kgo.Client, left map[partition]span, s span, batch *kgo.ErrDecompressTooLarge) {
	r.passed++
	over := span{s.topic, s.partition, batch.Offset, batch.NextOffset}
	r.unseen("topic "+over.String(), fmt.Errorf("their batch unpacks to more than %d MiB: it was passed over", unpackBytes>>20))
	s.from = batch.NextOffset
	p := partition{s.topic, s.partition}
	if left[p] = s; s.from >= s.end {
		r.finish(client, left, p)
		return
	}
	client.SetOffsets(map[string]map[int32]kgo.EpochOffset{s.topic: {s.partition: {Epoch: batch.Epoch, Offset: batch.NextOffset}}})
}

// record adds a record if it concerns the subject, and finishes its partition if it is the last one there.
func (r *reading) record(ctx context.Context, client *kgo.Client, left map[partition]span, record *kgo.Record) {
	p := partition{record.Topic, record.Partition}
	s, open := left[p]
	if !open || record.Offset >= s.end {
		if open { // the last records before the end were compacted away
			r.finish(client, left, p)
		}
		return
	}
	r.timeline.Records++
	if !record.Attrs.IsControl() && r.concerns(record) && !r.holdsEnough() {
		r.addRecord(ctx, record)
	}
	s.from = record.Offset + 1
	left[p] = s
	if s.from >= s.end {
		r.finish(client, left, p)
	}
}

func (r *reading) finish(client *kgo.Client, left map[partition]span, p partition) {
	delete(left, p)
	client.RemoveConsumePartitions(map[string][]int32{p.topic: {p.id}})
}

// full reports whether a limit is reached.
func (r *reading) full() bool { return r.timeline.Records >= r.cfg.MaxRecords || r.holdsEnough() }

// holdsEnough reports whether the entries have reached a limit.
func (r *reading) holdsEnough() bool {
	return len(r.timeline.Entries) >= MaxEntries || r.bytes >= MaxBytes
}

func (r *reading) giveUp(left map[partition]span, why error) {
	for _, p := range slices.SortedFunc(maps.Keys(left), comparePartitions) {
		r.unseen("topic "+left[p].String(), why)
	}
}

func (r *reading) progress() {
	if r.cfg.Progress != nil && time.Since(r.told) >= time.Second {
		r.cfg.Progress(r.timeline.Records, r.of)
		r.told = time.Now()
	}
}

// concerns checks a record before it is decoded: of a million records, few pass.
func (r *reading) concerns(record *kgo.Record) bool {
	if string(record.Key) == r.subject {
		return true
	}
	for _, h := range record.Headers {
		switch h.Key {
		case ce.HeaderID, ce.HeaderCorrelationID, deadletter.HeaderDeadLetterID:
			if string(h.Value) == r.subject {
				return true
			}
		}
	}
	return false
}

func (r *reading) addRecord(ctx context.Context, record *kgo.Record) {
	m, err := kafka.Message(record)
	e := r.payloads.entry(ctx, m, record.Value, len(record.Value))
	if err != nil {
		e.At, e.PayloadNote = jsonTime(record.Timestamp), cut(err.Error(), 200)
	}
	if e.Redrive > 0 || e.Kind == Retry {
		e.At = jsonTime(record.Timestamp) // its headers have the time of its first delivery
	}
	e.Record = &Record{Topic: record.Topic, Partition: record.Partition, Offset: record.Offset, Published: jsonTime(record.Timestamp)}
	if e.Kind == DeadLetter {
		letterOf(&e, m, jsonTime(record.Timestamp))
	}
	if e.concerns(r.subject) {
		r.add(e)
	}
}

// letterOf reads the copy of a dead letter on, or for, the dlq topic. It has the columns of the table, where the table can be
// read.
func letterOf(e *Entry, m envelope.Message, written time.Time) {
	of := make(map[string][]byte)
	for _, h := range m.Extra {
		of[h.Key] = h.Value
	}
	text := func(key string) string { return cut(string(of[key]), 2000) }
	moment := func(key string) time.Time {
		t, _ := time.Parse(time.RFC3339Nano, string(of[key]))
		return jsonTime(t)
	}
	e.Outcome, e.CausationID = "", ""
	e.Hop = text(deadletter.HeaderErrorsGroup)
	if id := text(deadletter.HeaderMessageID); id != "" {
		e.ID = id
	}
	e.Redrive = number(of[deadletter.HeaderRedrives])
	if e.At = moment(deadletter.HeaderLastFailed); e.At.IsZero() {
		e.At = written
	}
	offset, _ := strconv.ParseInt(text(deadletter.HeaderErrorsOffset), 10, 64)
	e.DeadLetter = &Letter{
		ID: text(deadletter.HeaderDeadLetterID), Handler: text(deadletter.HeaderHandler), Class: text(deadletter.HeaderClass),
		Error: text(deadletter.HeaderErrorsMessage), Attempts: number(of[deadletter.HeaderErrorsDeliveryCount]),
		FirstFailed: moment(deadletter.HeaderFirstFailed), Topic: text(deadletter.HeaderErrorsTopic),
		Partition: int32(number(of[deadletter.HeaderErrorsPartition])), Offset: offset,
	}
}

// kindOf derives kind and hop from a topic's name.
func kindOf(topic string) (Kind, string) {
	t, err := topics.Parse(topic)
	if err != nil {
		return Message, ""
	}
	switch t.Kind {
	case topics.Commands:
		return Command, t.Hop.String()
	case topics.Events:
		return Event, t.Hop.String()
	case topics.Retry:
		return Retry, t.Hop.String()
	}
	return DeadLetter, t.Hop.String()
}

// number parses text as a whole number from 0 on. It returns 0 if text is none.
func number(text []byte) int {
	n, err := strconv.ParseUint(string(text), 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}
