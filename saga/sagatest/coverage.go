package sagatest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/troupe-go/troupe/saga"
)

// Coverage counts how often sagas reached each phase of each step, and by which transitions. The zero value is empty. It is safe
// for concurrent use, so that all tests of a package can add their coverage to one.
type Coverage struct {
	mu   sync.Mutex
	defs map[string]*covered // by hash
}

// covered is the coverage of one definition.
type covered struct {
	def       *saga.Definition
	steps     map[string]map[saga.Phase]int
	ways      map[way]int
	statuses  map[saga.Status]int
	deadlines map[string]int
}

// A way is a transition of a step.
type way struct {
	step     string
	from, to saga.Phase
}

func (c *Coverage) know(d *saga.Definition) *covered {
	if c.defs == nil {
		c.defs = make(map[string]*covered)
	}
	of := c.defs[d.Hash()]
	if of == nil {
		of = &covered{
			d, make(map[string]map[saga.Phase]int), make(map[way]int), make(map[saga.Status]int), make(map[string]int),
		}
		for _, st := range d.Spec().Steps {
			of.steps[st.Name] = make(map[saga.Phase]int)
		}
		c.defs[d.Hash()] = of
	}
	return of
}

// note counts a decision. A nil d means that the definition is not known: then it counts nothing.
func (c *Coverage) note(d *saga.Definition, before, after saga.State, fx saga.Effects) {
	if d == nil || before.Version == after.Version {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.know(d)
	for i, ss := range after.Steps {
		var was saga.Phase
		if i < len(before.Steps) {
			was = before.Steps[i].Phase
		}
		if was != ss.Phase {
			of.steps[ss.Name][ss.Phase]++
			of.ways[way{ss.Name, was, ss.Phase}]++
		}
	}
	if before.Status != after.Status {
		of.statuses[after.Status]++
	}
	for _, name := range fx.Met {
		of.deadlines[name]++
	}
}

// Add adds the counts of other to c.
func (c *Coverage) Add(other *Coverage) {
	other.mu.Lock()
	defer other.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range other.defs {
		to := c.know(from.def)
		for step, phases := range from.steps {
			add(to.steps[step], phases)
		}
		add(to.ways, from.ways)
		add(to.statuses, from.statuses)
		add(to.deadlines, from.deadlines)
	}
}

func add[K comparable](to, from map[K]int) {
	for k, n := range from {
		to[k] += n
	}
}

// phases are in the order of the columns.
var phases = []saga.Phase{
	saga.Skipped, saga.Intent, saga.Done, saga.Refused, saga.GivenUp, saga.Doubt,
	saga.CompensateIntent, saga.Undone, saga.CompensateFailed,
}

// statuses are in the order in which they are listed.
var statuses = []saga.Status{
	saga.Waiting, saga.Running, saga.Compensating, saga.Parked, saga.Completed, saga.Compensated, saga.Abandoned,
}

// possible reports whether a step can reach a phase without an action of an operator.
func possible(st saga.Step, p saga.Phase) bool {
	sends := st.Command != nil || st.Call != nil
	awaits := !sends && len(st.Success)+len(st.Failure) > 0
	switch p {
	case saga.Skipped:
		return len(st.Needs) > 0 || st.When != "" || awaits
	case saga.Intent:
		return sends || awaits
	case saga.Refused:
		return len(st.Failure) > 0 || st.Call != nil || awaits && st.Timeout > 0 || st.AtLeast > 0
	case saga.GivenUp:
		return sends && st.Exhausted == saga.Park && !st.Optional
	case saga.Doubt:
		return sends && st.Compensation == nil && (st.Timeout > 0 || st.Exhausted == saga.CompensateThen || st.Optional) // a step with a compensation is compensated at once
	case saga.CompensateIntent, saga.Undone, saga.CompensateFailed:
		return st.Compensation != nil
	}
	return true
}

// Never returns the phases that steps of d can reach and have not reached, as step: phase, and the deadlines that have not been
// met, as deadline: met.
func (c *Coverage) Never(d *saga.Definition) (never []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.know(d)
	for _, st := range d.Spec().Steps {
		for _, p := range phases {
			if possible(st, p) && of.steps[st.Name][p] == 0 {
				never = append(never, st.Name+": "+string(p))
			}
		}
	}
	for _, dl := range d.Spec().Deadlines {
		if of.deadlines[dl.Name] == 0 {
			never = append(never, dl.Name+": met")
		}
	}
	return never
}

// String returns a table for each definition: how often each step reached each phase; 0 for never, empty if it cannot. Below the
// table are the statuses, the deadlines, the transitions of the steps, and the phases and deadlines that no test has reached.
func (c *Coverage) String() string {
	c.mu.Lock()
	all := slices.SortedFunc(maps.Values(c.defs), func(a, b *covered) int {
		return strings.Compare(a.def.String()+a.def.Hash(), b.def.String()+b.def.Hash())
	})
	c.mu.Unlock()
	var b strings.Builder
	for i, of := range all {
		if i > 0 {
			b.WriteString("\n")
		}
		never := c.Never(of.def)
		c.mu.Lock()
		of.write(&b, never)
		c.mu.Unlock()
	}
	return b.String()
}

func (of *covered) write(b *strings.Builder, never []string) {
	spec := of.def.Spec()
	reached, all := 0, 0
	width := 0
	for _, st := range spec.Steps {
		width = max(width, len(st.Name))
	}
	var rows strings.Builder
	for _, st := range spec.Steps {
		fmt.Fprintf(&rows, "  %-*s", width, st.Name)
		for _, p := range phases {
			n, can := of.steps[st.Name][p], possible(st, p)
			cell := ""
			if can || n > 0 {
				cell = fmt.Sprint(n)
			}
			if can {
				all++
				reached += min(n, 1)
			}
			fmt.Fprintf(&rows, "  %*s", len(heading(p)), cell)
		}
		rows.WriteString("\n")
	}
	fmt.Fprintf(b, "%s: %d of %d phases of steps\n", of.def, reached, all)
	fmt.Fprintf(b, "  %-*s", width, "")
	for _, p := range phases {
		fmt.Fprintf(b, "  %s", heading(p))
	}
	table := strings.Split(strings.TrimSuffix(rows.String(), "\n"), "\n")
	for _, row := range table {
		b.WriteString("\n" + strings.TrimRight(row, " "))
	}
	b.WriteString("\n")
	list(b, "status", counted(of.statuses, statuses))
	list(b, "met", counted(of.deadlines, slices.Sorted(maps.Keys(of.deadlines))))
	var ways []string
	for _, st := range spec.Steps {
		for _, from := range append([]saga.Phase{saga.StepWaiting}, phases...) {
			for _, to := range phases {
				if n := of.ways[way{st.Name, from, to}]; n > 0 {
					ways = append(ways, fmt.Sprintf("%s %s─►%s %d", st.Name, heading(from), heading(to), n))
				}
			}
		}
	}
	list(b, "way", ways)
	list(b, "never", never)
}

// heading returns the column heading of a phase.
func heading(p saga.Phase) string {
	switch p {
	case saga.StepWaiting:
		return "waiting"
	case saga.CompensateIntent:
		return "undoing"
	case saga.Undone:
		return "undone"
	case saga.CompensateFailed:
		return "undo failed"
	}
	return string(p)
}

func counted[K ~string](counts map[K]int, order []K) (all []string) {
	for _, k := range order {
		if n := counts[k]; n > 0 {
			all = append(all, fmt.Sprintf("%s %d", k, n))
		}
	}
	return all
}

// list writes words, several per line.
func list(b *strings.Builder, title string, words []string) {
	const width = 110
	column := width
	for i, w := range words {
		if column+2+utf8.RuneCountInString(w) > width {
			fmt.Fprintf(b, "  %-7s", title)
			title, column = "", 9
		}
		b.WriteString(" " + w)
		if i < len(words)-1 {
			b.WriteString(",")
		}
		column += 2 + utf8.RuneCountInString(w)
		if i == len(words)-1 || column+2+utf8.RuneCountInString(words[i+1]) > width {
			b.WriteString("\n")
			column = width
		}
	}
}
