package run

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/demo"
)

// A Check is one thing that must be so at the end of a run, and whether it is.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Want string `json:"want"`
	Got  string `json:"got"`
}

// checks are those that hold of every run, in the order in which they are shown.
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

// A verdict is a check being made: what must be, what is, and whatever is against it.
type verdict struct {
	name, want, got string
	against         []string
}

func (v *verdict) complain(format string, args ...any) {
	v.against = append(v.against, fmt.Sprintf(format, args...))
}

// check holds where nothing is against it and what is equals what must be. The first three complaints are told.
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
