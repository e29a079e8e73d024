package participant

import (
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/keyed"
)

// backlog returns the number of messages that may wait or run in a partition before it fetches no more: at least two batches, and two messages for
// each transaction that may run.
func (p *Participant) backlog() int { return max(backlogRecords, 2*p.cfg.Batch, 2*p.cfg.Concurrency) }

// receive accepts one fetch's records. It never waits. Records of a retry topic wait until they are due, and records beyond pushAtOnce until the lane
// has room. Nothing more is fetched meanwhile.
func (w *worker) receive(topicID uuid.UUID, records []*kgo.Record) {
	w.later.mu.Lock()
	defer w.later.mu.Unlock()
	if w.later.delay == 0 && len(w.later.parts) == 0 && len(records) <= w.atOnce() {
		w.push(topicID, records)
		return
	}
	w.later.parts = append(w.later.parts, waitingRecords{topicID, records, time.Now()})
	w.brake.set(notDue, true)
	w.rouse()
}

// atOnce returns the number of records that enter the lane at once: no fewer than it holds before it fetches no more.
func (w *worker) atOnce() int { return max(pushAtOnce, w.p.backlog()) }

// push adds records to the lane. Their messages share one block of memory.
func (w *worker) push(topicID uuid.UUID, records []*kgo.Record) {
	messages := make([]message, len(records))
	items := make([]keyed.Item[*message, lowMark], len(records))
	for i, r := range records {
		m := &messages[i]
		*m = message{record: r, topicID: topicID, partition: r.Partition, offset: r.Offset, epoch: r.LeaderEpoch, at: r.Timestamp}
		m.limits = w.limitsOf(m)
		items[i] = keyed.Item[*message, lowMark]{Value: m, Mark: m.lowMark(), Key: m.holdKey().lane(), Size: recordBytes(r)}
	}
	w.lane.Push(items...)
}

func recordBytes(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}
