package participant

import (
	"sync"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
)

// backlog is what waits for the worker, bounded by letting the partition fetch no more.
type backlog struct {
	client *kgo.Client
	parts  map[string][]int32
	pushed chan struct{}

	mu     sync.Mutex
	chunks []chunk
	count  int
	bytes  int
	paused bool
}

// chunk is one fetch's records; they share memory.
type chunk struct {
	topicID uuid.UUID
	records []*kgo.Record
}

const (
	backlogRecords = 512
	backlogBytes   = 1 << 20
)

func (b *backlog) init(client *kgo.Client, at topicPartition) {
	b.client, b.parts, b.pushed = client, map[string][]int32{at.topic: {at.partition}}, make(chan struct{}, 1)
}

// push never waits.
func (b *backlog) push(topicID uuid.UUID, records []*kgo.Record) {
	b.mu.Lock()
	b.chunks = append(b.chunks, chunk{topicID, records})
	b.count += len(records)
	for _, r := range records {
		b.bytes += recordBytes(r)
	}
	if !b.paused && (b.count >= backlogRecords || b.bytes >= backlogBytes) {
		b.paused = true
		b.client.PauseFetchPartitions(b.parts)
	}
	b.mu.Unlock()
	select {
	case b.pushed <- struct{}{}:
	default:
	}
}

// pop takes the next record. At half the bounds the partition fetches again, so that the worker need not wait for it.
func (b *backlog) pop() (r *kgo.Record, topicID uuid.UUID, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count == 0 {
		return nil, uuid.UUID{}, false
	}
	first := &b.chunks[0]
	r, topicID = first.records[0], first.topicID
	first.records[0] = nil
	first.records = first.records[1:]
	if len(first.records) == 0 {
		b.chunks[0] = chunk{}
		b.chunks = b.chunks[1:]
	}
	b.count--
	b.bytes -= recordBytes(r)
	if b.paused && b.count < backlogRecords/2 && b.bytes < backlogBytes/2 {
		b.paused = false
		b.client.ResumeFetchPartitions(b.parts)
	}
	return r, topicID, true
}

func recordBytes(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}
