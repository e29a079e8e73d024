package relay

import (
	"time"

	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/outbox"
)

// maxTraced limits the rows of one Kafka transaction for which the hook Traced is called. They are held in memory until the transaction is
// committed.
const maxTraced = 10_000

// trace calls the hook Traced for the acknowledged rows of a send that began at began. Under ExactlyOnce it only stores these rows, and
// transactor.committed calls the hook.
func (p *publisher) trace(items []*item, began time.Time) {
	hook := p.relay.cfg.Hooks.Traced
	if hook == nil {
		return
	}
	now := time.Now()
	for _, i := range items {
		if i.err != nil {
			continue
		}
		t, sampled := tracedOf(i)
		if !sampled {
			continue
		}
		t.Sent, t.Published = began, now
		switch {
		case p.tx == nil:
			hook(t)
		case len(p.tx.traced) < maxTraced:
			p.tx.traced = append(p.tx.traced, t)
		}
	}
}

// tracedOf returns the argument of the hook Traced for a row. sampled is false for a row without a sampled trace.
func tracedOf(i *item) (t outbox.PublishedRow, sampled bool) {
	for _, h := range i.record.Headers {
		switch h.Key {
		case ce.HeaderTraceParent:
			if !isSampled(h.Value) {
				return t, false
			}
			t.TraceParent = string(h.Value)
		case ce.HeaderTraceState:
			t.TraceState = string(h.Value)
		case ce.HeaderID:
			t.ID = string(h.Value)
		}
	}
	r := i.record
	t.Topic, t.Partition, t.Offset, t.Attempts, t.Written = r.Topic, r.Partition, r.Offset, i.attempts, i.row.CreatedAt
	return t, t.TraceParent != ""
}

// isSampled reports whether the flags of a traceparent, 00-<trace>-<span>-<flags>, have the sampled bit.
func isSampled(traceparent []byte) bool {
	const flags = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-")
	if len(traceparent) < flags+2 {
		return false
	}
	switch traceparent[flags+1] {
	case '1', '3', '5', '7', '9', 'b', 'd', 'f':
		return true
	}
	return false
}

// committed calls the hook Traced for the rows of a committed Kafka transaction.
func (t *transactor) committed() {
	now := time.Now()
	for _, one := range t.traced {
		one.Published = now
		t.relay.cfg.Hooks.Traced(one)
	}
	t.traced = nil
}
