package verify

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/troupe-go/troupe/saga"
)

// A run is one way forward, as far as no step fails: which steps begin in a case, and what is done for sure before each.
// What fails is looked at on top of it: until the first step fails every way is such a run, and after that none begins.
type run struct {
	values  []int // by dim
	begun   set
	skipped set
	guarded set // of the skipped, those whose condition does not hold
	cut     set // the saga has ended before they could begin
	before  []set
	sure    []varset // by step, what is set for sure when it begins
}

// parallel are the begun steps that may be under way, or done, or not begun, while step i is.
func (c *run) parallel(i int) set {
	all := c.begun &^ c.before[i] &^ only(i)
	for _, k := range all.steps() {
		if c.before[k].has(i) {
			all &^= only(k)
		}
	}
	return all
}

// behind are the begun steps before which step i is done for sure.
func (c *run) behind(i int) (all set) {
	for _, k := range c.begun.steps() {
		if c.before[k].has(i) {
			all |= only(k)
		}
	}
	return all
}

// walk finds the runs that differ, in all cases or in maxCases of them that are spread over all.
func (m *model) walk() {
	seen := make(map[[3]set]bool)
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
		if id := [3]set{c.begun, c.guarded, c.cut}; !seen[id] {
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

// forward lets each step begin, or be skipped, in its turn. It says false for a case that cannot be.
func (m *model) forward(c *run) bool {
	for _, i := range m.order {
		goes, cut := m.join(c, i)
		c.sure[i] = m.setBy(c.before[i])
		switch {
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
		default:
			c.skipped |= only(i)
			c.guarded |= only(i)
		}
	}
	return true
}

// join says whether what step i needs comes about, or never can since the saga has ended, and notes what is done before.
func (m *model) join(c *run, i int) (goes, cut bool) {
	n := m.steps[i]
	var done, skipped, ended set
	for _, k := range n.needs {
		switch {
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
	case n.Join == saga.First && done != 0:
		c.before[i] = anyOf(done)
		return true, false
	case n.Join == saga.All && skipped != 0:
		c.before[i] = anyOf(skipped)
		return false, false
	case ended != 0:
		return false, true
	default:
		c.before[i] = every(done | skipped)
		return done != 0, false
	}
}

// upTo is what is done for sure when step k is done or skipped.
func (m *model) upTo(c *run, k int) set {
	if c.begun.has(k) {
		return c.before[k] | only(k)
	}
	return c.before[k]
}

// setBy are the variables that are set for sure when steps are done.
func (m *model) setBy(done set) varset {
	all := m.given
	for ; done != 0; done &= done - 1 {
		all = all.or(m.steps[lowest(done)].sure)
	}
	return all
}

// holds says whether a condition that is looked at when step i would begin holds; not ok: it cannot come to this case.
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

// missing says that a variable cannot have been set when step i begins.
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
	return c.skipped.has(t) || c.cut.has(t)
}

// endsBefore says whether an end comes before step i for sure.
func (m *model) endsBefore(c *run, i int) (ended, ok bool) {
	sure := c.sure[i]
	for _, end := range m.cases.ends {
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

// trace tells how a run comes to step i: the values that decide, then what becomes of the steps on the way.
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
		case c.begun.has(k) && (i < 0 || c.before[i].has(k) || c.skipped.has(i)):
			lines = append(lines, name+": done")
		case c.begun.has(k):
			lines = append(lines, name+": under way")
		case c.skipped.has(k):
			lines = append(lines, name+": skipped")
		}
	}
	if i >= 0 {
		lines = append(lines, m.steps[i].Name+": "+last)
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
	if text, ok := is.(string); ok {
		return fmt.Sprintf("data.%s = %q", m.vars[d.v], text)
	}
	return fmt.Sprintf("data.%s = %v", m.vars[d.v], is)
}

// lowest is the first step of a set that is not empty.
func lowest(s set) int { return bits.TrailingZeros64(uint64(s)) }
