package run

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/flow/reactions"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/inventory"
	"github.com/troupe-go/troupe/internal/demo/order"
	"github.com/troupe-go/troupe/internal/demo/payment"
	"github.com/troupe-go/troupe/internal/demo/shipping"
)

// declarations are what the services say they do in a flow of that name.
func declarations(flow string) (all []reactions.Service, err error) {
	for _, text := range [][]byte{order.Reactions, payment.Reactions, inventory.Reactions, shipping.Reactions} {
		declared, err := demo.Declared(text, flow)
		if err != nil {
			return nil, err
		}
		all = append(all, declared)
	}
	return all, nil
}

// is says whether m is a message as a declaration names it.
func (m message) is(declared reactions.Message) bool {
	return m.topic == declared.Topic && m.typ == declared.Type[strings.LastIndexByte(declared.Type, '.')+1:]
}

// exhausted is the event that every hop may send, by itself, about anything.
const exhausted = "Exhausted"

// distinct are the messages by their ids: a copy is none.
func (f *facts) distinct() map[string]message {
	all := make(map[string]message, len(f.messages))
	for _, m := range f.messages {
		all[m.id] = m
	}
	return all
}

// checkDeclared: every message is what a service has declared to begin with, or to say about the one that is its cause.
func (f *facts) checkDeclared() Check {
	v := verdict{name: "every event follows from a declared reaction"}
	all := f.distinct()
	got := 0
	for _, m := range all {
		cause, caused := all[m.cause]
		if m.typ == exhausted || f.mayFollow(m, cause, caused) {
			got++
			continue
		}
		v.complain("nobody has declared to say %s of %s about %q", m.typ, m.key, cause.typ)
	}
	v.want, v.got = fmt.Sprintf("%d events", len(all)), fmt.Sprintf("%d events", got)
	return v.check()
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

// checkAnswered: every message got one answer of each reaction to it that is declared to answer. Where a hop gave up, that
// answer is its exhausted event, and where the order is parked it may be still to come.
func (f *facts) checkAnswered() Check {
	v := verdict{name: "every reaction answered once"}
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
	v.want, v.got = fmt.Sprintf("%d answers", want), fmt.Sprintf("%d answers", got)
	return v.check()
}

// checkAwaited: of an order that has ended nobody expects an end any more.
func (f *facts) checkAwaited() Check {
	v := verdict{name: "nothing is awaited of what ended", want: "0"}
	n := 0
	for _, id := range f.deadlines {
		if row, there := f.orders[id]; !there || row.Ended != nil {
			n++
			v.complain("%s", id)
		}
	}
	v.got = fmt.Sprint(n)
	return v.check()
}
