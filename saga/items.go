package saga

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/moments"
)

// items returns the place of the items of step i; n is 0 if it has none.
func (x *decision) items(i int) (first, n int) {
	if x.d.items == nil || i >= len(x.d.items) {
		return 0, 0
	}
	return x.d.items[i].first, x.d.items[i].n
}

// itemCount returns the number of items of step i, and whether its list is known, so that it has items, or could have.
func (x *decision) itemCount(i int) (n int, begun bool) {
	if x.d.steps[i].each == nil {
		return 0, false
	}
	_, begun = x.s.Lists[x.d.steps[i].Name]
	_, n = x.items(i)
	return n, begun
}

// beginEach begins a step with ForEach. Its items begin when forward finds it begun. It returns false if the saga is parked.
func (x *decision) beginEach(i int, due []scheduled) bool {
	st := x.d.steps[i]
	list, err := x.listOf(i)
	if err != nil {
		x.park(fmt.Sprintf("%s: forEach: %s", st.Name, err))
		return false
	}
	x.addItems(i, list)
	x.s.Steps[i].Phase, x.s.Steps[i].Started = Intent, x.s.Version
	x.armAll(due)
	x.moment(moments.StepStarted, st.Name, fmt.Sprintf("%d items", len(list)))
	return true
}

// addItems adds the items of step i, and makes each variable that the step collects a list without values.
func (x *decision) addItems(i int, list []any) {
	st := x.d.steps[i]
	lists := make(map[string]any, len(x.s.Lists)+1)
	maps.Copy(lists, x.s.Lists)
	lists[st.Name] = list
	x.s.Lists = lists
	x.d = x.d.withItems(x.s)
	items := make([]StepState, len(list))
	for k := range items {
		items[k].Name = itemName(st.Name, k)
	}
	first, _ := x.items(i)
	x.s.Steps = slices.Insert(x.s.Steps, first, items...)
	data := make(map[string]any, len(st.each.collects))
	for _, name := range st.each.collects {
		data[name] = make([]any, len(list))
	}
	x.put(data)
}

// beginItems begins as many items of step i as may run, and ends the step when all of them are done or tolerated. It returns false if
// the saga is parked.
func (x *decision) beginItems(i int) (changed, ok bool) {
	first, n := x.items(i)
	running, over := 0, 0
	for _, ss := range x.s.Steps[first : first+n] {
		switch {
		case ss.Phase == Intent:
			running++
		case ss.Phase == Done || ss.Tolerated:
			over++
		}
	}
	if over == n {
		x.done(i, "")
		return true, x.s.Status == Running
	}
	for k := first; k < first+n && running < x.d.steps[i].each.parallel; k++ {
		if x.s.Steps[k].Phase != StepWaiting {
			continue
		}
		if !x.begin(k) {
			return true, false
		}
		running++
		changed = true
	}
	return changed, true
}

// itemsSettled reports whether no item of step i has anything left to compensate.
func (x *decision) itemsSettled(i int) bool {
	first, n := x.items(i)
	for k := first; k < first+n; k++ {
		if !x.settled(k) {
			return false
		}
	}
	return true
}

// itemsUndone reports whether step i goes back with its saga: it has items, and one that the saga needs is compensated.
func (x *decision) itemsUndone(i int) bool {
	first, n := x.items(i)
	return x.s.Back && slices.ContainsFunc(x.s.Steps[first:first+n], func(ss StepState) bool { return ss.Phase == Undone && !ss.Tolerated })
}

// settleItems gives each step with items of a saga that is compensated the phase that follows from its items. Until then a pivot that
// runs may let the saga go forward, and the step keeps its phase.
func (x *decision) settleItems() {
	if x.s.Status != Compensated {
		return
	}
	for i := range x.d.items {
		first, n := x.items(i)
		switch phase := &x.s.Steps[i].Phase; {
		case x.itemsUndone(i):
			*phase = Undone
		case *phase != Intent:
		case slices.ContainsFunc(x.s.Steps[first:first+n], func(ss StepState) bool { return ss.Started > 0 }):
			*phase = Refused
		default:
			*phase = Skipped
		}
	}
}

// collect replaces each value in data that an item sets in a variable of its step by the list of the variable with this value in it.
// It changes nothing if i is no item.
func (x *decision) collect(i int, data map[string]any) error {
	if i < 0 || x.d.steps[i].of < 0 {
		return nil
	}
	st := x.d.steps[i]
	step := x.d.steps[st.of]
	_, n := x.items(st.of)
	for _, name := range step.each.collects {
		value, sets := data[name]
		if !sets {
			continue
		}
		list := make([]any, n)
		if was, set := x.s.Data[name]; set {
			values, is := was.([]any)
			if !is || len(values) != n {
				return fmt.Errorf("variable %s is no list of %d values, in which step %s collects: set it to one", name, n, step.Name)
			}
			copy(list, values)
		}
		list[st.item] = value
		data[name] = list
	}
	return nil
}

// hasValue reports whether a variable has a value that step i, or the item i, has set.
func (x *decision) hasValue(i int, name string) bool {
	v, set := x.s.Data[name]
	st := x.d.steps[i]
	if st.of < 0 || !set {
		return set
	}
	list, _ := v.([]any)
	return st.item < len(list) && list[st.item] != nil
}

// objectsOf returns the objects that expressions of step i can read. i is -1 for an expression that belongs to no step.
func (x *decision) objectsOf(i int, more map[string]any) map[string]any {
	all := x.objects(more)
	if i >= 0 && x.d.steps[i].of >= 0 {
		as, element, index := x.element(i)
		all[as], all[indexName] = element, index
	}
	return all
}

// holesOf returns the values that the endpoint of step i may name.
func (x *decision) holesOf(i int) map[string]any {
	if x.d.steps[i].of < 0 {
		return x.s.Data
	}
	values := maps.Clone(x.s.Data)
	as, element, index := x.element(i)
	values[as], values[indexName] = element, index
	return values
}

// element returns the name and the value of the element of item i, and its index.
func (x *decision) element(i int) (as string, element any, index int64) {
	st := x.d.steps[i]
	step := x.d.steps[st.of]
	list, _ := x.s.Lists[step.Name].([]any)
	return step.each.As, list[st.item], int64(st.item)
}

// findsItem finds the item that e answers although the saga has no such item, and reports whether there is one: the saga has skipped
// or refused the step, and a decision that began it is lost. Otherwise it ignores e.
func (x *decision) findsItem(e Event, i *int) bool {
	name, item, is := splitItem(e.Step)
	p, known := x.d.byName[name]
	if !is || !known || x.d.steps[p].each == nil {
		x.ignore("there is no step %q", e.Step)
		return false
	}
	phase := x.s.Steps[p].Phase
	if _, begun := x.itemCount(p); begun || phase == StepWaiting || !succeeded(e) {
		x.ignore("step %s is %s, and has no item %d: the answer %s is early", name, phaseText(phase), item, e.Type)
		x.fx.Early = !begun
		return false
	}
	list, err := x.listOf(p)
	if err == nil && item >= len(list) {
		err = fmt.Errorf("the list has %d elements", len(list))
	}
	if err != nil {
		x.refuseItem(e, err.Error())
		return false
	}
	x.addItems(p, list)
	first, n := x.items(p)
	for k := first; k < first+n; k++ {
		x.s.Steps[k].Phase = Skipped
	}
	*i = first + item
	return true
}

// mayHaveItem reports whether a step has the item of that name, or may get it.
func (x *decision) mayHaveItem(name string) bool {
	step, _, is := splitItem(name)
	p, known := x.d.byName[step]
	if !is || !known || x.d.steps[p].each == nil || x.s.Ended() {
		return false
	}
	_, begun := x.itemCount(p)
	return !begun
}

// refuseItem refuses the success of an item that the saga does not have.
func (x *decision) refuseItem(e Event, why string) {
	x.refuse("%s took effect at hop %s, and the saga has no such item: %s. The list was another one before the database of the saga was set "+
		"back: look whether the effect must be undone by hand", e.Step, e.Hop, why)
}

// stepOf returns the step or the item that a deadline belongs to.
func (x *decision) stepOf(deadline, suffix string) int {
	i, _ := x.d.stepIndex(strings.TrimSuffix(deadline, suffix))
	return i
}

func (x *decision) phaseOf(name string) Phase {
	i, _ := x.d.stepIndex(name)
	return x.s.Steps[i].Phase
}

// stepOfItem returns the step of an item, or the name itself if it is no item's.
func stepOfItem(name string) string {
	if step, _, is := splitItem(name); is {
		return step
	}
	return name
}

// compareItems compares the items with the step that has them in the other definition.
func (m *move) compareItems() {
	for _, ss := range m.s.Steps[len(m.from.steps):] {
		k, kept := m.to.byName[stepOfItem(ss.Name)]
		if kept && ss.Tolerated && !m.to.steps[k].Optional {
			m.obstacle("%s has failed, and its step is not optional any more", ss.Name)
		}
	}
}
