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

// checks returns the results of the checks for the run's style, in the order in which they are printed.
func (f *facts) checks() []Check {
	all := []Check{
		f.checkEnds(),
		f.checkOutcomes(),
		f.checkMoney(),
		f.checkBalances(),
		f.checkStock(),
		f.checkShipments(),
		f.checkShippedAndRefunded(),
		f.checkDeadLetters(),
		f.checkOutboxes(),
		f.checkHeld(),
		f.checkUnread(),
		f.checkNotified(),
		f.checkMadeOnce(),
		f.checkSequence(),
	}
	if f.style == demo.Choreography {
		return append(all, f.checkDeclared(), f.checkAnswered(), f.checkAwaited())
	}
	return append(all, f.checkReplay(), f.checkLogs(), f.checkDeadlines())
}

// A verdict is a check in progress: the expected value, the actual value, and the complaints.
type verdict struct {
	name, want, got string
	against         []string
}

func (v *verdict) complain(format string, args ...any) {
	v.against = append(v.against, fmt.Sprintf(format, args...))
}

// check passes if there is no complaint and the actual value equals the expected one. Only the first three complaints are
// printed.
func (v *verdict) check() Check {
	c := Check{Name: v.name, Want: v.want, Got: v.got, OK: v.got == v.want && len(v.against) == 0}
	slices.Sort(v.against) // most come out of maps
	const told = 3
	if n := len(v.against); n > told {
		v.against = append(v.against[:told], fmt.Sprintf("and %d more", n-told))
	}
	if len(v.against) > 0 {
		c.Got += ": " + strings.Join(v.against, "; ")
	}
	return c
}
