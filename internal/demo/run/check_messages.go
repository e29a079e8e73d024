package run

import (
	"strings"
	"time"
)

// notices maps an order's final status to the event that notifies the customer.
var notices = map[string]string{completed: "OrderCompleted", compensated: "OrderCancelled"}

// checkNotified checks that every customer was notified of an order's end once. Copies of a message under one id count once.
func (f *facts) checkNotified(v *verdict) {
	notified := make(map[string]map[string]string) // order id: message id: type
	for _, m := range f.messages {
		if !strings.HasSuffix(m.topic, ".order.events") || m.typ != notices[completed] && m.typ != notices[compensated] {
			continue
		}
		if notified[m.key] == nil {
			notified[m.key] = make(map[string]string)
		}
		notified[m.key][m.id] = m.typ
	}
	want, got := 0, 0
	for id, o := range f.orders {
		notice, ended := notices[o.Status]
		if ended {
			want++
		}
		got += len(notified[id])
		switch {
		case ended && len(notified[id]) != 1:
			v.complain("%s is %s and was notified %d times", id, o.Status, len(notified[id]))
		case !ended && len(notified[id]) > 0:
			v.complain("%s is %s and was notified of its end", id, o.Status)
		}
		for _, typ := range notified[id] {
			if ended && typ != notice {
				v.complain("%s is %s and was notified by %s", id, o.Status, typ)
			}
		}
	}
	for id := range notified {
		if _, there := f.orders[id]; !there {
			v.complain("%s is no order and was notified of its end", id)
		}
	}
	v.equal("%d", want, got)
}

// checkMadeOnce checks that an order has each of its messages under one id, and that the cause of every message is on the topics.
// So no handler took effect twice, and no message was lost between two hops.
func (f *facts) checkMadeOnce(v *verdict) {
	all := f.distinct()
	type step struct{ topic, key, typ string }
	made := make(map[step]string)
	checked := make(map[string]bool, len(all))
	for _, m := range f.messages {
		if m.id == "" {
			v.complain("a message on %s without an id", m.topic)
			continue
		}
		if checked[m.id] {
			continue // a copy
		}
		checked[m.id] = true
		s := step{m.topic, m.key, m.typ}
		if made[s] != "" {
			v.complain("%s of %s was made twice: %s, %s", m.typ, m.key, made[s], m.id)
		}
		made[s] = m.id
		if _, there := all[m.cause]; m.cause != "" && !there {
			v.complain("the cause of %s of %s is missing: %s", m.typ, m.key, m.cause)
		}
	}
	v.equal("%d messages", len(made), len(checked))
}

// checkSequence checks that on each topic the messages of an order are in the order in which they were written. Copies of an
// earlier message are ignored.
func (f *facts) checkSequence(v *verdict) {
	type sequence struct{ topic, key string }
	latest := make(map[sequence]time.Time)
	seen := make(map[sequence]map[string]bool)
	n := 0
	for _, m := range f.messages {
		p := sequence{m.topic, m.key}
		if seen[p] == nil {
			seen[p] = make(map[string]bool, 2)
		}
		if seen[p][m.id] {
			continue
		}
		seen[p][m.id] = true
		if m.written.Before(latest[p]) {
			n++
			v.complain("%s of %s came late on %s", m.typ, m.key, m.topic)
			continue
		}
		latest[p] = m.written
	}
	v.equal("%d out of order", 0, n)
}
