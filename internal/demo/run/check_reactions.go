package run

import (
	"slices"
	"strings"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/inventory"
	"github.com/troupe-go/troupe/internal/demo/order"
	"github.com/troupe-go/troupe/internal/demo/payment"
	"github.com/troupe-go/troupe/internal/demo/shipping"
)

// declarations returns the declarations of the services, for a flow of that name.
func declarations(flow string) (all []flow.Declaration, err error) {
	for _, text := range [][]byte{order.Reactions, payment.Reactions, inventory.Reactions, shipping.Reactions} {
		declared, err := demo.Declared(text, flow)
		if err != nil {
			return nil, err
		}
		all = append(all, declared)
	}
	return all, nil
}

// is reports whether m has the topic and the type of a declared message.
func (m message) is(declared flow.Message) bool {
	return m.topic == declared.Topic && m.typ == declared.Type[strings.LastIndexByte(declared.Type, '.')+1:]
}

// exhausted is the type of the event that every hop may emit without a declaration.
const exhausted = "Exhausted"

// distinct returns the messages by their ids, without copies.
func (f *facts) distinct() map[string]message {
	all := make(map[string]message, len(f.messages))
	for _, m := range f.messages {
		all[m.id] = m
	}
	return all
}

// checkDeclared checks that every message is declared: either a service may begin with it, or emit it as a reaction to its cause.
func (f *facts) checkDeclared(v *verdict) {
	all := f.distinct()
	got := 0
	for _, m := range all {
		cause, caused := all[m.cause]
		if m.typ == exhausted || f.mayFollow(m, cause, caused) {
			got++
			continue
		}
		v.complain("no service declares to send %s of %s after %q", m.typ, m.key, cause.typ)
	}
	v.equal("%d events", len(all), got)
}

func (f *facts) mayFollow(m, cause message, caused bool) bool {
	for _, s := range f.declared {
		if !caused && slices.ContainsFunc(s.Starts, m.is) {
			return true
		}
		for _, r := range s.Reactions {
			if caused && cause.is(r.On) && slices.ContainsFunc(slices.Concat(r.Success, r.Failure), m.is) {
				return true
			}
		}
	}
	return false
}

// checkAnswered checks that every message got one answer of each reaction to it that is declared to answer. If the hop gave up,
// its exhausted event is the answer; if the order is parked, the answer may be missing.
func (f *facts) checkAnswered(v *verdict) {
	all := f.distinct()
	type about struct{ id, topic string }
	answers := make(map[about]int)
	for _, m := range all {
		answers[about{m.cause, m.topic}]++
	}
	want, got := 0, 0
	for id, m := range all {
		for _, s := range f.declared {
			for _, r := range s.Reactions {
				if !m.is(r.On) || len(r.Success) == 0 {
					continue
				}
				n := answers[about{id, r.Success[0].Topic}]
				if n == 0 && f.orders[m.key].Status == parked {
					continue
				}
				want++
				got += n
				if n != 1 {
					v.complain("%s answered %s of %s %d times", s.Hop, m.typ, m.key, n)
				}
			}
		}
	}
	v.equal("%d answers", want, got)
}

// checkAwaited checks that no expectation of an end is left of an order that has ended.
func (f *facts) checkAwaited(v *verdict) {
	f.checkDeadlines(v, func(id string) bool { row, there := f.orders[id]; return there && row.Ended == nil })
}
