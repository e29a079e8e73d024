package run

import (
	"fmt"
	"strings"
	"time"
)

// notices maps an order's final status to the event that notifies the customer.
var notices = map[string]string{completed: "OrderCompleted", compensated: "OrderCancelled"}

// checkNotified checks that every customer was notified of an order's end once. Copies of a message under one id count once.
func (f *facts) checkNotified() Check {
	v := verdict{name: "every customer was told once"}
	told := make(map[string]map[string]string) // order id: message id: type
	for _, m := range f.messages {
		if !strings.HasSuffix(m.topic, ".order.events") || m.typ != notices[completed] && m.typ != notices[compensated] {
			continue
		}
		if told[m.key] == nil {
			told[m.key] = make(map[string]string)
		}
		told[m.key][m.id] = m.typ
	}
	want, got := 0, 0
	for id, o := range f.orders {
		notice, ended := notices[o.Status]
		if ended {
			want++
		}
		got += len(told[id])
		switch {
		case ended && len(told[id]) != 1:
			v.complain("%s is %s and was told %d times", id, o.Status, len(told[id]))
		case !ended && len(told[id]) > 0:
			v.complain("%s is %s and was told its end", id, o.Status)
		}
		for _, typ := range told[id] {
			if ended && typ != notice {
				v.complain("%s is %s and was told %s", id, o.Status, typ)
			}
		}
	}
	for id := range told {
		if _, there := f.orders[id]; !there {
			v.complain("%s is no order and was told its end", id)
		}
	}
	v.want, v.got = fmt.Sprint(want), fmt.Sprint(got)
	return v.check()
}

// checkMadeOnce checks that an order has each of its messages under one id, and that the cause of every message is on the topics.
// So no handler took effect twice, and no message was lost between two hops.
func (f *facts) checkMadeOnce() Check {
	v := verdict{name: "every message was made once, its cause is there"}
	ids := make(map[string]bool, len(f.messages))
	for _, m := range f.messages {
		ids[m.id] = true
	}
	type step struct{ topic, key, typ string }
	made := make(map[step]string)
	checked := make(map[string]bool, len(ids))
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
		if m.cause != "" && !ids[m.cause] {
			v.complain("the cause of %s of %s is missing: %s", m.typ, m.key, m.cause)
		}
	}
	v.want, v.got = fmt.Sprintf("%d messages", len(made)), fmt.Sprintf("%d messages", len(checked))
	return v.check()
}

// checkSequence checks that on each topic the messages of an order are in the order in which they were written. Copies of an
// earlier message are ignored.
func (f *facts) checkSequence() Check {
	v := verdict{name: "every order's messages are in order", want: "0 out of order"}
	type place struct{ topic, key string }
	latest := make(map[place]time.Time)
	seen := make(map[place]map[string]bool)
	n := 0
	for _, m := range f.messages {
		p := place{m.topic, m.key}
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
	v.got = fmt.Sprintf("%d out of order", n)
	return v.check()
}
