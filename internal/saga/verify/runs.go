package verify

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"

	"github.com/troupe-go/troupe/saga"
)

// A run is one way forward while no step fails: the steps that begin in a case, and the steps that are certainly done before
// each. The rules derive failures from runs: until the first step fails every execution follows a run, and after that no step
// begins.
type run struct {
	values       []int // indexes of values, by dim
	begun        set
	skipped      set
	guarded      set // the skipped steps whose condition does not hold
	cut          set // the saga ended before they could begin
	failed       set // the optional steps that fail
	quorumMissed set // the cut steps whose quorum is missed
	before       []set
	sure         []varset // by step, the variables that are certainly set when it begins
}

// parallel returns the begun steps whose order relative to step i is not fixed: they may be running, done or not begun while it
// runs.
func (c *run) parallel(i int) set {
	all := c.begun &^ c.before[i] &^ only(i)
	for _, k := range all.steps() {
		if c.before[k].has(i) {
			all &^= only(k)
		}
	}
	return all
}

// behind returns the begun steps before which step i is certainly done.
func (c *run) behind(i int) (all set) {
	for _, k := range c.begun.steps() {
		if c.before[k].has(i) {
			all |= only(k)
		}
	}
	return all
}

// walk computes the distinct runs, from all cases, or from maxCases of them that are spread evenly over all.
func (m *model) walk() {
	seen := make(map[[4]set]bool)
	stride, n := 1, m.cases.all
	if n > maxCases {
		stride = int(float64(n)*0.6180339887) | 1
		for gcd(stride, n) != 1 {
			stride += 2
		}
		n = maxCases
	}
	for k, at := 0, 0; k < n; k, at = k+1, (at+stride)%m.cases.all {
		values, rest := make([]int, len(m.cases.dims)), at
		for i, d := range m.cases.dims {
			values[i] = rest % len(d.values)
			rest /= len(d.values)
		}
		c := &run{values: values, before: make([]set, len(m.steps)), sure: make([]varset, len(m.steps))}
		if !m.forward(c) {
			continue
		}
		if id := [4]set{c.begun, c.guarded, c.cut, c.failed}; !seen[id] {
			seen[id] = true
			m.runs = append(m.runs, c)
		}
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// forward decides for each step, in order, whether it begins, is skipped or is cut off by an end. It returns false if the case is
// impossible.
func (m *model) forward(c *run) bool {
	for _, i := range m.order {
		m.checkContext()
		goes, cut := m.join(c, i)
		c.sure[i] = m.setBy(c, c.before[i])
		switch {
		case c.quorumMissed.has(i) && m.steps[i].Optional:
			c.failed |= only(i)
			continue
		case cut:
			c.cut |= only(i)
			continue
		case !goes:
			c.skipped |= only(i)
			continue
		}
		if ended, ok := m.endsBefore(c, i); !ok {
			return false
		} else if ended {
			c.cut |= only(i)
			continue
		}
		holds, ok := m.holds(c, m.cases.when[i], i)
		switch {
		case !ok:
			return false
		case holds:
			c.begun |= only(i)
			if m.cases.fails(c, i) {
				c.failed |= only(i)
			}
		default:
			c.skipped |= only(i)
			c.guarded |= only(i)
		}
	}
	return true
}

// join reports whether the join of step i is reached, or cannot be since the saga ended before. It stores the steps that are
// certainly done before step i.
func (m *model) join(c *run, i int) (goes, cut bool) {
	n := m.steps[i]
	var done, skipped, ended, failed set
	for _, k := range n.needs {
		switch {
		case c.failed.has(k):
			failed |= only(k)
		case c.begun.has(k):
			done |= only(k)
		case c.skipped.has(k):
			skipped |= only(k)
		default:
			ended |= only(k)
		}
	}
	every := func(of set) (all set) {
		for _, k := range of.steps() {
			all |= m.upTo(c, k)
		}
		return all
	}
	anyOf := func(of set) set {
		all := ^set(0)
		for _, k := range of.steps() {
			all &= m.upTo(c, k)
		}
		return all
	}
	switch {
	case len(n.needs) == 0:
		return true, false
	case n.AtLeast > 0 && ended != 0:
		return false, true
	case n.AtLeast > 0:
		c.before[i] = every(done | skipped | failed)
		if done.count() < n.AtLeast {
			c.quorumMissed |= only(i)
		}
		return done.count() >= n.AtLeast, done.count() < n.AtLeast
	case n.Join == saga.First && done != 0:
		c.before[i] = anyOf(done)
		return true, false
	case n.Join == saga.All && skipped != 0:
		c.before[i] = anyOf(skipped)
		return false, false
	case ended != 0:
		return false, true
	default:
		c.before[i] = every(done | skipped | failed)
		return done != 0 || n.Join == saga.All && failed != 0, false
	}
}

// upTo returns the steps that are certainly done when step k is done or skipped.
func (m *model) upTo(c *run, k int) set {
	if c.begun.has(k) {
		return c.before[k] | only(k)
	}
	return c.before[k]
}

// setBy returns the variables that are certainly set when these steps are done. An optional step that fails, or may have failed,
// sets none, unless it has ForEach: then its variables are lists since it began.
func (m *model) setBy(c *run, done set) varset {
	all := m.given
	for done &^= c.failed; done != 0; done &= done - 1 {
		if k := lowest(done); !m.steps[k].Optional || m.steps[k].ForEach != nil || m.cases.outcome[k] >= 0 {
			all = all.or(m.steps[k].sure)
		}
	}
	return all
}

// holds reports whether a condition that is evaluated when step i would begin holds. ok is false if the case is impossible: a
// variable that is absent in it is certainly set.
func (m *model) holds(c *run, cond *condition, i int) (holds, ok bool) {
	if cond == nil {
		return true, true
	}
	sure := c.sure[i]
	for _, k := range cond.dims {
		d := m.cases.dims[k]
		if d.v >= 0 && d.values[c.values[k]] == any(absent{}) && sure.has(d.v) {
			return false, false
		}
	}
	return m.cases.holds(cond, c.values, func(v int) bool { return m.missing(c, v, i) }), true
}

// missing reports whether a variable cannot be set when step i begins.
func (m *model) missing(c *run, v, i int) bool {
	t := m.setter[v]
	switch {
	case t == byNobody:
		return true
	case t == byStart:
		return false
	case t == i, m.steps[i].after.has(t):
		return true
	}
	return c.skipped.has(t) || c.cut.has(t) || c.failed.has(t) && m.failedUnset(t, v)
}

// endsBefore reports whether an end certainly comes before step i. ok is false if the case is impossible.
func (m *model) endsBefore(c *run, i int) (ended, ok bool) {
	sure := c.sure[i]
	for _, end := range m.cases.ends {
		m.checkContext()
		if end == nil || end.reads.and(sure) != end.reads {
			continue
		}
		holds, ok := m.holds(c, end, i)
		if !ok || holds {
			return holds, ok
		}
	}
	return false, true
}

// trace describes how a run reaches step i: first the values that decide, then the outcome of each step on the way.
func (m *model) trace(c *run, i int, last string) []string {
	var way set
	for k, n := range m.steps {
		if n.after.has(i) || k == i {
			way |= only(k)
		}
	}
	return m.traceOf(c, way, i, last)
}

func (m *model) traceOf(c *run, way set, i int, last string) (lines []string) {
	var dims []int
	for _, k := range way.steps() {
		if cond := m.cases.when[k]; cond != nil {
			dims = append(dims, cond.dims...)
		}
	}
	slices.Sort(dims)
	for _, k := range slices.Compact(dims) {
		lines = append(lines, m.valueText(k, c.values[k]))
	}
	for _, k := range m.order {
		if !way.has(k) || k == i {
			continue
		}
		switch name := m.steps[k].Name; {
		case c.failed.has(k):
			lines = append(lines, name+": fails")
		case c.begun.has(k) && (i < 0 || c.before[i].has(k) || c.skipped.has(i)):
			lines = append(lines, name+": done")
		case c.begun.has(k):
			lines = append(lines, name+": under way")
		case c.skipped.has(k):
			lines = append(lines, name+": skipped")
		}
	}
	if i >= 0 {
		lines = append(lines, m.place(i, last)+": "+last)
	}
	return lines
}

func (m *model) valueText(dim, value int) string {
	d := m.cases.dims[dim]
	is := d.values[value]
	switch {
	case d.v < 0:
		return fmt.Sprintf("%s is %v", d.text, is)
	case is == any(absent{}):
		return fmt.Sprintf("data.%s is not set", m.vars[d.v])
	}
	return fmt.Sprintf("data.%s = %s", m.vars[d.v], show(is))
}

func show(value any) string {
	if text, is := value.(string); is {
		return strconv.Quote(text)
	}
	return fmt.Sprint(value)
}

// lowest returns the first step of a set that is not empty.
func lowest(s set) int { return bits.TrailingZeros64(uint64(s)) }
