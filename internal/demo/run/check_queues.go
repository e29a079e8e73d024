package run

import "fmt"

// checkDeadLetters checks that every dead letter belongs to a parked order, which an operator will examine.
func (f *facts) checkDeadLetters() Check {
	v := verdict{name: "no dead letter without a parked order", want: "0"}
	n := 0
	for _, d := range f.deadLetters {
		if f.orders[d.OrderID].Status != parked {
			n++
			v.complain("%s of %s: %s: %.200s", d.Type, d.OrderID, d.Class, d.Error)
		}
	}
	v.got = fmt.Sprint(n)
	return v.check()
}

// checkOutboxes checks that every row of an outbox was published.
func (f *facts) checkOutboxes() Check {
	return f.checkQueue("every outbox is empty", func(q queueRow) int64 { return q.Outbox + q.Trouble })
}

// checkHeld checks that no message waits for another attempt, or for an earlier message of its key that does.
func (f *facts) checkHeld() Check {
	return f.checkQueue("no message is held", func(q queueRow) int64 { return q.Held })
}

func (f *facts) checkQueue(name string, count func(queueRow) int64) Check {
	v := verdict{name: name, want: "0"}
	var n int64
	for _, service := range services {
		if c := count(f.queues[service]); c > 0 {
			n += c
			v.complain("%s: %d", service, c)
		}
	}
	v.got = fmt.Sprint(n)
	return v.check()
}

// checkUnread checks that every group has committed every message, copies included.
func (f *facts) checkUnread() Check {
	v := verdict{name: "every message is consumed", want: fmt.Sprintf("0 left by %d groups", len(services))}
	var n int64
	for _, service := range services {
		if f.unread[service] > 0 {
			v.complain("%s: %d", service, f.unread[service])
		}
		n += f.unread[service]
	}
	v.got = fmt.Sprintf("%d left by %d groups", n, len(f.unread))
	return v.check()
}
