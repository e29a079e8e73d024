package run

import "fmt"

// checkDeadLetters checks that every dead letter belongs to a parked order, which an operator will examine.
func (f *facts) checkDeadLetters(v *verdict) {
	for _, d := range f.deadLetters {
		if f.orders[d.OrderID].Status != parked {
			v.complain("%s of %s: %s: %.200s", d.Type, d.OrderID, d.Class, d.Error)
		}
	}
	v.none()
}

// checkOutboxes checks that every row of an outbox was published.
func (f *facts) checkOutboxes(v *verdict) {
	f.checkQueue(v, func(q queueRow) int64 { return q.Outbox + q.Trouble })
}

// checkHeld checks that no message waits for another attempt, or for an earlier message of its key that does.
func (f *facts) checkHeld(v *verdict) {
	f.checkQueue(v, func(q queueRow) int64 { return q.Held })
}

func (f *facts) checkQueue(v *verdict, count func(queueRow) int64) {
	var n int64
	for _, service := range services {
		if c := count(f.queues[service]); c > 0 {
			n += c
			v.complain("%s: %d", service, c)
		}
	}
	v.equal("%d", 0, n)
}

// checkUnread checks that every group has committed every message, copies included.
func (f *facts) checkUnread(v *verdict) {
	v.want = fmt.Sprintf("0 left by %d groups", len(services))
	var n int64
	for _, service := range services {
		if f.unread[service] > 0 {
			v.complain("%s: %d", service, f.unread[service])
		}
		n += f.unread[service]
	}
	v.got = fmt.Sprintf("%d left by %d groups", n, len(f.unread))
}

// checkFaults checks that no process ended by itself, after any fault of its connections. Kills do not count.
func checkFaults(faults []string) Check {
	return newCheck("no process ended by itself", func(v *verdict) {
		v.complaints = faults
		v.none()
	})
}

// checkStopped checks that every process ended with status 0, within its time, after SIGTERM.
func checkStopped(processes int, unclean []string) Check {
	return newCheck("every process stopped cleanly", func(v *verdict) {
		v.complaints = unclean
		v.equal("%d of "+fmt.Sprint(processes), processes, processes-len(unclean))
	})
}
