package run

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/demo"
)

// A Check is a condition that must hold at the end of a run, with its result.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Want string `json:"want"`
	Got  string `json:"got"`
}

// A condition is a check of the facts.
type condition struct {
	name string
	run  func(*facts, *verdict)
}

// conditions lists the checks of both styles, and onlyIn the checks of one style, in the order in which they are printed.
var (
	conditions = []condition{
		{"every order posted ended exactly once", (*facts).checkEnds},
		{"every order has its expected outcome", (*facts).checkOutcomes},
		{"charged - refunded = completed orders", (*facts).checkMoney},
		{"account balances = ledger", (*facts).checkBalances},
		{"stock taken = completed orders", (*facts).checkStock},
		{"shipments = completed orders", (*facts).checkShipments},
		{"no order has a shipment and a refund", (*facts).checkShippedAndRefunded},
		{"no dead letter without a parked order", (*facts).checkDeadLetters},
		{"every outbox is empty", (*facts).checkOutboxes},
		{"no message is held", (*facts).checkHeld},
		{"every message is consumed", (*facts).checkUnread},
		{"every customer was notified once", (*facts).checkNotified},
		{"every message was made once, its cause is there", (*facts).checkMadeOnce},
		{"every order's messages are in order", (*facts).checkSequence},
	}
	onlyIn = map[demo.Style][]condition{
		demo.Choreography: {
			{"every event follows from a declared reaction", (*facts).checkDeclared},
			{"every reaction answered once", (*facts).checkAnswered},
			{"no order that ended waits for an event", (*facts).checkAwaited},
		},
		demo.Orchestration: {
			{"every saga's log gives its state", (*facts).checkReplay},
			{"every saga's log is without a gap", (*facts).checkLogs},
			{"no deadline is left of what ended", (*facts).checkSagaDeadlines},
		},
	}
)

// checks returns the results of the checks for the run's style.
func (f *facts) checks() (all []Check) {
	for _, c := range slices.Concat(conditions, onlyIn[f.style]) {
		all = append(all, newCheck(c.name, func(v *verdict) { c.run(f, v) }))
	}
	return all
}

// A verdict is a check in progress: the expected value, the actual value, and the complaints.
type verdict struct {
	want, got  string
	complaints []string
}

func (v *verdict) complain(format string, args ...any) {
	v.complaints = append(v.complaints, fmt.Sprintf(format, args...))
}

// equal requires the expected value and the actual one to be equal in the given format.
func (v *verdict) equal(format string, want, got any) {
	v.want, v.got = fmt.Sprintf(format, want), fmt.Sprintf(format, got)
}

// none requires that there is no complaint.
func (v *verdict) none() { v.equal("%d", 0, len(v.complaints)) }

// newCheck returns the result of a check. It passes if there is no complaint and the actual value equals the expected one. Only the
// first three complaints are printed.
func newCheck(name string, run func(*verdict)) Check {
	var v verdict
	run(&v)
	c := Check{Name: name, Want: v.want, Got: v.got, OK: v.got == v.want && len(v.complaints) == 0}
	slices.Sort(v.complaints) // most come out of maps
	const printed = 3
	if n := len(v.complaints); n > printed {
		v.complaints = append(v.complaints[:printed], fmt.Sprintf("and %d more", n-printed))
	}
	if len(v.complaints) > 0 {
		c.Got += ": " + strings.Join(v.complaints, "; ")
	}
	return c
}
