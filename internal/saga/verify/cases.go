package verify

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/saga"
)

// These are the limits of the search.
const (
	maxCases = 1 << 13 // per definition
	maxTable = 1 << 12 // per condition
)

// cases holds the values that distinguish the conditions of steps and ends. For each variable that they read these are the
// literals that it is compared with, the values below and above, and its absence if a condition tests it with has(). A condition
// that does not consist of comparisons counts as a variable of its own that is true or false.
type cases struct {
	dims      []dim
	when      []*condition // by step; nil: no condition
	ends      []*condition // by end
	outcome   []int        // by step: the dim of the outcome of an optional step; -1: none
	all       int          // the number of cases; if it exceeds maxCases, not all are checked
	unbounded bool         // the number of cases would overflow all
}

// A dim is a variable with its values, or an opaque condition.
type dim struct {
	v      int // index of the variable; -1: text is a condition
	text   string
	moment string // of the condition
	values []any  // absent{} means that the variable is not set
}

type absent struct{}

// A condition is an expression with its result for every combination of values of the dims that it reads.
type condition struct {
	path   string
	step   int // -1: it is of an end
	x      *expr.Expr
	dims   []int  // indexes of cases.dims
	size   []int  // the number of values of each of them
	table  []bool // results by combination of values, the last dim varying fastest
	opaque bool
	reads  varset // without variables that are only tested with has()
}

func newCases(m *model) (c cases) {
	var conditions []*condition
	add := func(path string, step int) *condition {
		x := m.d.Expr(path)
		if x == nil {
			return nil
		}
		cond := &condition{path: path, step: step, x: x}
		for _, r := range m.readsAt(path) {
			cond.reads.add(r.v)
		}
		conditions = append(conditions, cond)
		return cond
	}
	for i, n := range m.steps {
		c.when = append(c.when, add(n.path+".when", i))
	}
	for i := range m.s.Ends {
		c.ends = append(c.ends, add(fmt.Sprintf("ends[%d].when", i), -1))
	}
	values := candidates(m, conditions)
	for _, cond := range conditions {
		c.tabulate(m, cond, values)
	}
	c.collapse(m, conditions)
	c.outcomes(m)
	c.all = 1
	for _, d := range c.dims {
		c.all *= len(d.values)
		if c.all > 1<<40 {
			c.all, c.unbounded = 1<<40, true
		}
	}
	return c
}

// calls matches operators and calls other than comparisons. If a condition has any, its literals do not show where its result
// changes.
var calls = regexp.MustCompile(`[a-zA-Z_]\w*\s*\(|\bin\b|[+*/%?\[]|\w\s*-\s*\w`)
var asks = regexp.MustCompile(`\bhas\s*\(`)

// plain reports whether the result of x changes only at its literals.
func plain(m *model, x *expr.Expr) bool {
	if x.ReadsNow() || calls.MatchString(asks.ReplaceAllString(x.Text(), "(")) {
		return false
	}
	bounds := x.Bounds()
	for _, r := range x.Reads() {
		if r.Object != "data" {
			return false
		}
		bounded := slices.ContainsFunc(bounds, func(b expr.Bound) bool { return b.Object == r.Object && b.Field == r.Field })
		if !r.Tested && !bounded && m.s.Data[r.Field] != expr.Bool {
			return false
		}
	}
	return true
}

// candidates returns the values of each variable at which the result of some condition may change.
func candidates(m *model, conditions []*condition) map[int][]any {
	values := make(map[int][]any)
	put := func(v int, value any) {
		m.checkContext()
		if !slices.Contains(values[v], value) {
			values[v] = append(values[v], value)
		}
	}
	for _, cond := range conditions {
		if !plain(m, cond.x) {
			continue
		}
		for _, r := range cond.x.Reads() {
			v := m.at[r.Field]
			if r.Tested {
				put(v, absent{})
			}
			if m.s.Data[r.Field] == expr.Bool {
				put(v, false)
				put(v, true)
			}
		}
		for _, b := range cond.x.Bounds() {
			for _, value := range around(m.s.Data[b.Field], b.Value) {
				put(m.at[b.Field], value)
			}
			if text, is := b.Value.(string); is && b.Ordered {
				put(m.at[b.Field], "")
				put(m.at[b.Field], text+" ")
			}
		}
	}
	for v := range values {
		if set, constant := constants(m, v); constant {
			missing := slices.Contains(values[v], any(absent{}))
			if values[v] = set; missing {
				values[v] = append(values[v], absent{})
			}
		} else if len(values[v]) == 1 && values[v][0] == any(absent{}) {
			values[v] = append(values[v], sample(m.s.Data[m.vars[v]], true))
		}
	}
	return values
}

// around returns a literal with a value below and a value above it, and a text with another text.
func around(t expr.Type, literal any) []any {
	switch l := literal.(type) {
	case int64:
		if t == expr.Double {
			return []any{float64(l) - 1, float64(l), float64(l) + 1}
		}
		return []any{l - 1, l, l + 1}
	case float64:
		if t == expr.Int {
			return []any{int64(l) - 1, int64(l), int64(l) + 1}
		}
		return []any{l - 1, l, l + 1}
	case string:
		return []any{l, "another than " + l}
	case bool:
		return []any{false, true}
	}
	return []any{literal}
}

// constants returns the values that a variable can have, if everything that sets it sets a constant.
func constants(m *model, v int) (values []any, all bool) {
	i := m.setter[v]
	if i < 0 {
		return nil, false
	}
	for _, list := range []string{"success", "failure"} {
		as := m.steps[i].Success
		if list == "failure" {
			as = m.steps[i].Failure
		}
		for k, a := range as {
			if _, sets := a.Set[m.vars[v]]; !sets {
				continue
			}
			x := m.d.Expr(fmt.Sprintf("%s.%s[%d].set.%s", m.steps[i].path, list, k, m.vars[v]))
			if x == nil || len(x.Reads()) > 0 {
				return nil, false
			}
			value, err := x.Eval(nil)
			if err != nil {
				return nil, false
			}
			if !slices.Contains(values, value) {
				values = append(values, value)
			}
		}
	}
	return values, true
}

func (c *cases) dim(of dim) int {
	i := slices.IndexFunc(c.dims, func(d dim) bool { return d.v == of.v && d.text == of.text && d.moment == of.moment })
	if i < 0 {
		i = len(c.dims)
		c.dims = append(c.dims, of)
	}
	return i
}

// tabulate evaluates cond in all its cases. A condition whose cases cannot be listed becomes opaque.
func (c *cases) tabulate(m *model, cond *condition, values map[int][]any) {
	if plain(m, cond.x) && !m.races(cond) && c.exactly(m, cond, values) {
		return
	}
	cond.opaque = true
	cond.dims = []int{c.dim(dim{-1, cond.x.Text(), m.moment(cond), []any{true, false}})}
	cond.size = []int{2}
	cond.table = []bool{true, false}
}

// moment identifies the decision in which an opaque condition is evaluated, if another decision may give another result: it reads now, or
// asks whether a step has set a variable. Steps that wait for the same steps, in any order, begin in one decision; with First, in an earlier one.
func (m *model) moment(cond *condition) string {
	changes := cond.x.ReadsNow() || slices.ContainsFunc(cond.x.Reads(), func(r expr.Read) bool { return m.asksFor(r) >= 0 })
	switch {
	case !changes:
		return ""
	case cond.step < 0:
		return cond.path
	}
	n := m.steps[cond.step]
	return fmt.Sprint(slices.Sorted(slices.Values(n.needs)), n.Join == saga.First)
}

// races reports whether the condition of a step asks for a variable that another step may set before it or after it.
func (m *model) races(cond *condition) bool {
	i := cond.step
	return i >= 0 && slices.ContainsFunc(cond.x.Reads(), func(r expr.Read) bool {
		t := m.asksFor(r)
		return t >= 0 && t != i && !m.steps[t].after.has(i) && !m.steps[i].after.has(t)
	})
}

// asksFor returns the step that sets the variable that r tests with has(); a negative number if r is another read, or no step sets it.
func (m *model) asksFor(r expr.Read) int {
	v, known := m.at[r.Field]
	if r.Object != "data" || !r.Tested || !known {
		return byNobody
	}
	return m.setter[v]
}

func (c *cases) exactly(m *model, cond *condition, values map[int][]any) bool {
	var vars []int
	rows := 1
	for _, r := range cond.x.Reads() {
		if v := m.at[r.Field]; !slices.Contains(vars, v) {
			vars = append(vars, v)
			rows *= len(values[v])
		}
		if rows > maxTable || rows == 0 {
			return false
		}
	}
	table := make([]bool, rows)
	for row := range rows {
		m.checkContext()
		data, rest := make(map[string]any, len(vars)), row
		for _, v := range slices.Backward(vars) {
			value := values[v][rest%len(values[v])]
			rest /= len(values[v])
			if value != any(absent{}) {
				data[m.vars[v]] = value
			}
		}
		holds, err := cond.x.Holds(map[string]any{"data": data})
		if err != nil && !errors.Is(err, expr.ErrUnset) {
			return false
		}
		table[row] = holds
	}
	cond.table = table
	for _, v := range vars {
		cond.dims = append(cond.dims, c.dim(dim{v: v, values: values[v]}))
		cond.size = append(cond.size, len(values[v]))
	}
	return true
}

// collapse keeps one value of each group of values that no condition distinguishes.
func (c *cases) collapse(m *model, conditions []*condition) {
	for i := range c.dims {
		seen := make(map[string]bool)
		var keep []int
		for value, is := range c.dims[i].values {
			column := fmt.Sprint(is == any(absent{}), " ") // absence is never merged: only later is it known whether the variable can be unset
			for _, cond := range conditions {
				m.checkContext()
				column += cond.column(i, value)
			}
			if !seen[column] {
				seen[column] = true
				keep = append(keep, value)
			}
		}
		if len(keep) == len(c.dims[i].values) {
			continue
		}
		for _, cond := range conditions {
			cond.keep(i, keep)
		}
		values := make([]any, len(keep))
		for k, value := range keep {
			values[k] = c.dims[i].values[value]
		}
		c.dims[i].values = values
	}
}

// each calls f with every row in which the dim has the value.
func (cond *condition) each(dim, value int, f func(row int)) {
	at := slices.Index(cond.dims, dim)
	if at < 0 {
		return
	}
	stride := 1
	for _, n := range cond.size[at+1:] {
		stride *= n
	}
	for row := range cond.table {
		if row/stride%cond.size[at] == value {
			f(row)
		}
	}
}

func (cond *condition) column(dim, value int) string {
	var b []byte
	cond.each(dim, value, func(row int) {
		if cond.table[row] {
			b = append(b, '1')
		} else {
			b = append(b, '0')
		}
	})
	return string(b) + " "
}

func (cond *condition) keep(dim int, values []int) {
	at := slices.Index(cond.dims, dim)
	if at < 0 {
		return
	}
	rows := make(map[int]bool)
	for _, value := range values {
		cond.each(dim, value, func(row int) { rows[row] = true })
	}
	var table []bool
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		table = append(table, cond.table[row])
	}
	cond.table, cond.size[at] = table, len(values)
}

// holds looks up the result of a condition in a case. A variable that is certainly unset counts as absent, if absence is one of
// its values.
func (c *cases) holds(cond *condition, values []int, missing func(v int) bool) bool {
	row := 0
	for k, i := range cond.dims {
		value := values[i]
		if d := c.dims[i]; d.v >= 0 && missing(d.v) {
			if gone := slices.Index(d.values, any(absent{})); gone >= 0 {
				value = gone
			}
		}
		row = row*cond.size[k] + value
	}
	return cond.table[row]
}
