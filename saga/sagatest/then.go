package sagatest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// ThenCommands requires that exactly these commands were sent, in this order.
func (f *Fixture) ThenCommands(want ...Command) *Fixture {
	f.t.Helper()
	if d, ok := compare(want, f.since.commands, Command.is); !ok {
		f.fail("commands, - wanted, + sent:\n%s", d)
	}
	return f
}

// ThenNoCommands requires that no command was sent.
func (f *Fixture) ThenNoCommands() *Fixture {
	f.t.Helper()
	return f.ThenCommands()
}

// ThenEvents requires that exactly these events were emitted, in this order.
func (f *Fixture) ThenEvents(want ...Emitted) *Fixture {
	f.t.Helper()
	if d, ok := compare(want, f.since.events, Emitted.is); !ok {
		f.fail("events, - wanted, + emitted:\n%s", d)
	}
	return f
}

// ThenNoEvents requires that no event was emitted.
func (f *Fixture) ThenNoEvents() *Fixture {
	f.t.Helper()
	return f.ThenEvents()
}

// ThenDeadlinesMet requires that exactly the deadlines of these names were met, in this order.
func (f *Fixture) ThenDeadlinesMet(names ...string) *Fixture {
	f.t.Helper()
	if d, ok := compare(texts(names), texts(f.since.met), func(a, b text) bool { return a == b }); !ok {
		f.fail("deadlines, - wanted, + met:\n%s", d)
	}
	return f
}

// ThenNothing requires that no saga was started or changed: all messages were ignored, or kept for later outside of any saga.
func (f *Fixture) ThenNothing() *Fixture {
	f.t.Helper()
	if len(f.since.moved) > 0 {
		f.fail("nothing should have changed, but there changed %s", strings.Join(f.since.moved, ", "))
	}
	return f
}

// ThenRefused requires that the action was refused, with these words in the reason.
func (f *Fixture) ThenRefused(words string) *Fixture {
	f.t.Helper()
	if f.since.refused == "" || !strings.Contains(f.since.refused, words) {
		f.fail("what the person did should be refused with %q: %s", words, cmp.Or(f.since.refused, "it was done"))
	}
	return f
}

// ThenActive requires this number of sagas, of all definitions, that have not ended. A parked saga has not ended.
func (f *Fixture) ThenActive(want int) *Fixture {
	f.t.Helper()
	var all []string
	active := 0
	for _, s := range f.memory.Sagas() {
		if !s.Ended() {
			active++
		}
		all = append(all, fmt.Sprintf("  %s is %s", s.ID(), s.Status))
	}
	if active != want {
		f.fail("want %d active sagas, there are %d:\n%s", want, active, strings.Join(all, "\n"))
	}
	return f
}

// ThenStatus requires that the saga of that id has this status.
func (f *Fixture) ThenStatus(id string, want saga.Status) *Fixture {
	f.t.Helper()
	if s := f.State(id); s.Status != want {
		f.fail("%s is %s, want %s%s", id, s.Status, want, prefixed(": ", s.Reason))
	}
	return f
}

// ThenData requires these values of variables of the saga of that id. It does not check other variables.
func (f *Fixture) ThenData(id string, want Fields) *Fixture {
	f.t.Helper()
	data := f.State(id).Data
	pairs := func(m map[string]any) (all []text) {
		for _, name := range slices.Sorted(maps.Keys(want)) {
			v, set := m[name]
			if !set {
				continue
			}
			all = append(all, text(name+" = "+shown(Fields{"": v})))
		}
		return all
	}
	if d, ok := compare(pairs(want), pairs(data), func(a, b text) bool { return a == b }); !ok {
		f.fail("variables of %s, - wanted, + there:\n%s", id, d)
	}
	return f
}

// ThenScheduled requires a deadline of that name, of any saga, that is due in that time from now.
func (f *Fixture) ThenScheduled(name string, in time.Duration) *Fixture {
	f.t.Helper()
	var all []string
	for _, s := range f.memory.Sagas() {
		for _, a := range s.Deadlines {
			left := a.At.Sub(f.memory.Clock())
			if a.Name == name && left == in {
				return f
			}
			all = append(all, fmt.Sprintf("  %s: %s in %s", s.ID(), a.Name, saga.Duration(left)))
		}
	}
	if len(all) == 0 {
		all = []string{"  none"}
	}
	f.fail("want the deadline %s in %s, there are to come:\n%s", name, saga.Duration(in), strings.Join(all, "\n"))
	return f
}

// ThenNoDeadlines requires that no saga has a deadline to come.
func (f *Fixture) ThenNoDeadlines() *Fixture {
	f.t.Helper()
	for _, s := range f.memory.Sagas() {
		for _, a := range s.Deadlines {
			f.fail("want no deadline to come: %s of %s is due in %s", a.Name, s.ID(), saga.Duration(a.At.Sub(f.memory.Clock())))
		}
	}
	return f
}

// text is a string with the method that compare needs.
type text string

func (t text) String() string { return string(t) }

func texts(words []string) (all []text) {
	for _, w := range words {
		all = append(all, text(w))
	}
	return all
}

// compare reports whether have matches want, item by item. If it does not, diff lists the items: unmarked if both have them, - if
// missing, + if unexpected.
func compare[T fmt.Stringer](want, have []T, is func(have, want T) bool) (diff string, ok bool) {
	// longest[i][j] is the length of the longest common subsequence of want[i:] and have[j:].
	longest := make([][]int, len(want)+1)
	for i := range longest {
		longest[i] = make([]int, len(have)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(have) - 1; j >= 0; j-- {
			longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			if is(have[j], want[i]) {
				longest[i][j] = max(longest[i][j], longest[i+1][j+1]+1)
			}
		}
	}
	var lines []string
	i, j := 0, 0
	for i < len(want) || j < len(have) {
		switch {
		case i < len(want) && j < len(have) && is(have[j], want[i]) && longest[i][j] == longest[i+1][j+1]+1:
			lines = append(lines, "    "+have[j].String())
			i, j = i+1, j+1
		case j == len(have) || i < len(want) && longest[i+1][j] >= longest[i][j+1]:
			lines = append(lines, "  - "+want[i].String())
			i++
		default:
			lines = append(lines, "  + "+have[j].String())
			j++
		}
	}
	return strings.Join(lines, "\n"), longest[0][0] == len(want) && len(want) == len(have)
}
