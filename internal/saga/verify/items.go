package verify

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// The rules examine a step with ForEach as one step that sets its variables when it begins, since they are lists from then on. The
// functions of this file add the cases that depend on the items. Traces name the items.

// collects makes a step with ForEach set all variables of its answers when it begins.
func (n *node) collects() {
	if n.ForEach != nil {
		n.sure = n.maybe
	}
}

// place returns the name with which a trace shows the outcome of step i: the name of an item if one item has this outcome for
// the step.
func (m *model) place(i int, outcome string) string {
	n := m.steps[i]
	if n.ForEach != nil && (outcome == "fails" || outcome == "in doubt") {
		return n.Name + "[0]"
	}
	return n.Name
}

// itemTurns returns the reason and a trace if the saga may compensate after an item of step i is done, since another item
// fails; "" if it cannot. A list with two elements is enough to show it.
func (m *model) itemTurns(c *run, i int) (why string, trace []string) {
	n := m.steps[i]
	if n.ForEach == nil || n.ForEach.Max < 2 || !n.turns {
		return "", nil
	}
	lines := m.trace(c, i, "done")
	lines[len(lines)-1] = n.Name + "[0]: done"
	return n.Name + "[1] fails", append(lines, n.Name+"[1]: fails")
}

// times returns how many groups of items run one after the other, at most: Max divided by Parallel, rounded up.
func (n *node) times() time.Duration {
	f := n.ForEach
	if f == nil || f.Parallel == 0 {
		return 1
	}
	return time.Duration((f.Max + f.Parallel - 1) / f.Parallel)
}

var elementAt = regexp.MustCompile(`\bdata\.([a-z][a-z0-9_]*)\[(\d+)\]`)

// tooShort reports an expression that reads an element with a fixed index from the list of a step's variable, if the list may
// be shorter.
func (m *model) tooShort(r read, trace func() []string) {
	x := m.d.Expr(r.path)
	t := m.setter[r.v]
	if x == nil || t < 0 || m.steps[t].ForEach == nil {
		return
	}
	name, f := m.vars[r.v], m.steps[t].ForEach
	for _, found := range elementAt.FindAllStringSubmatch(x.Text(), -1) {
		k, err := strconv.Atoi(found[2])
		if err != nil || found[1] != name || strings.Contains(x.Text(), "size(data."+name+")") {
			continue
		}
		n := min(k, f.Max)
		lines := []string{fmt.Sprintf("%s: %d elements", f.List, n)}
		m.report("list-too-short", r.path, append(lines, trace()...),
			"data.%s[%d] does not exist if the list of %s has %d elements, and the saga is parked: test size(data.%s) > %d", name, k, m.steps[t].Name, n, name, k)
		return
	}
}

// withElements adds values of the element and the index of items to objects, which expressions of items read.
func withElements(spec saga.Spec, objects map[string]any) {
	objects["index"] = int64(0)
	for _, st := range spec.Steps {
		if st.ForEach != nil && objects[st.ForEach.As] == nil {
			objects[st.ForEach.As] = "x"
		}
	}
}
