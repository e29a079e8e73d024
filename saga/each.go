package saga

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-go/troupe/internal/expr"
)

// A ForEach runs a step once for each element of a list. Each run is an item. An item has a command, answers, a time-out, retries and a
// compensation of its own, under the name of the step with its index, such as seat[0].
//
// The step is done when all items are done; an empty list has none, and the step is done at once. If an item fails, the saga
// compensates: no further item begins, the items that run are waited for, and the items that are done are compensated. If the step is
// Optional, the saga goes on without each item that fails.
//
// If Set of the step's answers has a variable, the variable is a list with one value for each item, in the order of List. A value is
// null until an answer to its item sets it.
type ForEach struct {
	// List is an expression over data and saga whose value is the list. It is evaluated once, when the step begins. If it
	// cannot be evaluated, if its value is not a list, or if the list has more than Max elements, the saga is parked before an
	// item begins.
	List string `json:"list"`
	// As is the name by which the expressions of the step, except When, read the element. They read its index, from 0, as index.
	As string `json:"as"`
	// Max is the largest number of elements that the list may have. It must be set, to 1 to 100. The list may be empty.
	Max int `json:"max"`
	// Parallel limits how many items run at once. Default: all of them.
	Parallel int `json:"parallel,omitempty"`
}

const (
	maxItems  = 100  // largest Max of one step
	maxAll    = 1000 // largest sum of Max of all steps of a definition
	indexName = "index"
)

// each is the compiled ForEach of a step.
type each struct {
	*ForEach
	list     *expr.Expr
	parallel int
	collects []string // the variables that the answers set, sorted
	items    []*step
}

// names reports whether expressions of the step's items read the element or the index under this name.
func (f *ForEach) names(name string) bool { return f != nil && (name == f.As || name == indexName) }

// forEach checks the field forEach of a step.
func (c *compiler) forEach(path string, st *step) {
	f := st.ForEach
	path += ".forEach"
	st.each = &each{ForEach: f, parallel: f.Parallel}
	if f.Parallel == 0 {
		st.each.parallel = f.Max
	}
	if f.List == "" {
		c.wrong(path+".list", "want an expression whose value is a list, such as data.passengers")
	} else if st.each.list = c.expr(c.data, path+".list", f.List, Any); st.each.list != nil && !st.each.list.MayBeList() {
		c.wrong(path+".list", "%q is not a list", f.List)
	}
	switch {
	case !variable.MatchString(f.As):
		c.wrong(path+".as", "%q: want a name of lower-case letters, digits and underscores for the element", f.As)
	case slices.Contains([]string{"data", "saga", "event", "deadline", indexName, expr.Now}, f.As):
		c.wrong(path+".as", "%q is reserved: want another name for the element", f.As)
	}
	if f.Max < 1 || f.Max > maxItems {
		c.wrong(path+".max", "%d: want 1 to %d, the most elements that the list may have", f.Max, maxItems)
	}
	if f.Parallel < 0 || f.Parallel > f.Max {
		c.wrong(path+".parallel", "%d: want 1 to max, or nothing to run all items at once", f.Parallel)
	}
	if st.Command == nil && st.Call == nil {
		c.wrong(path, "%q has no command, and an awaited event does not name an item: send a command for each item, or await the event in a step without forEach",
			st.Name)
	}
	if st.Pivot {
		c.wrong(path, "%q is the pivot, and some of its items may be done while others fail: make a step after it the pivot", st.Name)
	}
	for _, a := range slices.Concat(st.Success, st.Failure) {
		st.each.collects = append(st.each.collects, sortedKeys(a.Set)...)
	}
	slices.Sort(st.each.collects)
	st.each.collects = slices.Compact(st.each.collects)
	for _, name := range st.each.collects {
		if t, known := c.d.spec.Data[name]; known && t != Any {
			c.wrong("data."+name, "step %s collects a list in it: want type any, not %s", st.Name, t)
		}
	}
}

// allItems checks the number of items that all steps may have together.
func (c *compiler) allItems() {
	all := 0
	for _, st := range c.d.spec.Steps {
		if st.ForEach != nil {
			all += max(st.ForEach.Max, 0)
		}
	}
	if all > maxAll {
		c.wrong("steps", "the max of all forEach is %d together: want at most %d", all, maxAll)
	}
}

// enter declares the element and the index of an item for the expressions that are compiled next, until the returned function is
// called.
func (c *compiler) enter(path string, f *ForEach) (leave func()) {
	if f == nil || f.As == "" {
		return func() {}
	}
	data, event := c.data, c.event
	for _, env := range []**expr.Env{&c.data, &c.event} {
		with, err := (*env).With(map[string]Type{f.As: Any, indexName: Int})
		if err != nil {
			c.wrong(path+".forEach.as", "%s", err)
			return func() {}
		}
		*env = with
	}
	c.each = f
	return func() { c.data, c.event, c.each = data, event, nil }
}

func itemName(step string, item int) string { return step + "[" + strconv.Itoa(item) + "]" }

// splitItem splits the name of an item into the name of the step and the index. is is false for any other name.
func splitItem(name string) (step string, item int, is bool) {
	step, rest, found := strings.Cut(name, "[")
	digits, closed := strings.CutSuffix(rest, "]")
	item, err := strconv.Atoi(digits)
	return step, item, found && closed && err == nil && item >= 0 && itemName(step, item) == name
}

// itemOf returns item k of a step with ForEach, as a step of its own.
func (s *step) itemOf(k int) *step {
	if k < len(s.each.items) {
		return s.each.items[k]
	}
	one := *s
	one.Step.Name, one.Needs, one.AtLeast, one.When, one.ForEach = itemName(s.Name, k), nil, 0, "", nil
	one.needs, one.when, one.each, one.of, one.item = nil, nil, nil, s.index, k
	return &one
}

// makeItems makes the items of each step with ForEach, as many as its list may have elements. withItems uses them, so that no decision
// has to make them again.
func (c *compiler) makeItems() {
	for _, st := range c.d.steps {
		if st.each == nil {
			continue
		}
		items := make([]*step, st.each.Max)
		for k := range items {
			items[k] = st.itemOf(k)
		}
		st.each.items = items
	}
}

// A span names the items of a step in Definition.steps: the index of the first one, and their number.
type span struct{ first, n int }

// withItems returns d with one more step for each item that s has, in the order of s.Steps.
func (d *Definition) withItems(s State) *Definition {
	if len(s.Lists) == 0 {
		return d
	}
	with := *d
	base := d.steps[:d.stepCount()]
	with.steps = slices.Clone(base)
	with.items = make([]span, len(base))
	for i, st := range base {
		list, begun := s.Lists[st.Name].([]any)
		if !begun || st.each == nil {
			continue
		}
		with.items[i] = span{len(with.steps), len(list)}
		for k := range list {
			with.steps = append(with.steps, st.itemOf(k))
		}
	}
	return &with
}

// stepCount returns the number of the definition's steps, without items.
func (d *Definition) stepCount() int {
	if d.items != nil {
		return len(d.items)
	}
	return len(d.steps)
}

// fits reports whether s has as many steps as d, and as many items as its lists have elements.
func (d *Definition) fits(s State) bool { return len(d.withItems(s).steps) == len(s.Steps) }

// stepIndex returns the index of a step, or of an item that the state has.
func (d *Definition) stepIndex(name string) (int, bool) {
	if i, known := d.byName[name]; known {
		return i, true
	}
	step, item, is := splitItem(name)
	if i, known := d.byName[step]; is && known && d.items != nil && item < d.items[i].n {
		return d.items[i].first + item, true
	}
	return 0, false
}

// errNoList is wrapped by the error of a list expression whose value is not a list.
var errNoList = errors.New("the value is not a list")

// listOf evaluates the list of step i. It returns an error if the value is no list or has more than Max elements.
func (x *decision) listOf(i int) ([]any, error) {
	e := x.d.steps[i].each
	v, err := e.list.Eval(x.objects(nil))
	if err != nil {
		return nil, err
	}
	list, is := v.([]any)
	switch {
	case !is:
		return nil, fmt.Errorf("%q: %w", e.List, errNoList) // without the value, which may be personal data
	case len(list) > e.Max:
		return nil, fmt.Errorf("%q has %d elements, and max is %d: set the variable to a shorter list and resume, or compensate", e.List, len(list), e.Max)
	}
	return list, nil
}

// backwards yields the indexes of the steps in the reverse order of the definition. The items of a step come before the step, also in
// reverse order.
func (d *Definition) backwards(yield func(int) bool) {
	for i := d.stepCount() - 1; i >= 0; i-- {
		if d.items != nil {
			for k := d.items[i].first + d.items[i].n - 1; k >= d.items[i].first; k-- {
				if !yield(k) {
					return
				}
			}
		}
		if !yield(i) {
			return
		}
	}
}
