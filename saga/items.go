package saga

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/moments"
)

// items returns the index of the first item of step i, and the number of its items.
func (x *decision) items(i int) (first, n int) {
	if x.d.items == nil || i >= len(x.d.items) {
		return 0, 0
	}
	return x.d.items[i].first, x.d.items[i].n
}

// itemCount returns the number of items of step i. begun reports whether the list of the items was evaluated; n may be 0 even then,
// since the list may be empty.
func (x *decision) itemCount(i int) (n int, begun bool) {
	if x.d.steps[i].each == nil {
		return 0, false
	}
	_, begun = x.s.Lists[x.d.steps[i].Name]
	_, n = x.items(i)
	return n, begun
}

// beginEach begins step i, which has a ForEach. The next pass of forward begins its items. It returns false if the saga is parked.
func (x *decision) beginEach(i int, due []pendingDeadline) bool {
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

// addItems adds the items of step i to the state. Each variable that their answers set becomes a list of nulls.
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

// beginItems begins as many items of step i as may run at once, and ends the step when each item is done or tolerated. ok is false if
// the saga does not run any more.
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

// itemsUndone reports whether the saga goes back and has compensated an item of step i. It leaves out tolerated items.
func (x *decision) itemsUndone(i int) bool {
	first, n := x.items(i)
	return x.s.Back && slices.ContainsFunc(x.s.Steps[first:first+n], func(ss StepState) bool { return ss.Phase == Undone && !ss.Tolerated })
}

// settleItems gives each step with items its last phase, by the phases of its items, when the saga is compensated. It does nothing
// before that: a pivot that still runs may let the saga go forward again.
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

// collect changes data, the variables that an answer to step i sets. If step i is an item, collect replaces each value by the
// variable's whole list, with the value at the item's index.
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
				return fmt.Errorf("variable %s is not a list of %d values, one for each item of step %s: set it to such a list", name, n, step.Name)
			}
			copy(list, values)
		}
		list[st.item] = value
		data[name] = list
	}
	return nil
}

// hasValue reports whether a variable is set. For an item it reports whether the variable's list has a value at the item's index.
func (x *decision) hasValue(i int, name string) bool {
	v, set := x.s.Data[name]
	st := x.d.steps[i]
	if st.of < 0 || !set {
		return set
	}
	list, _ := v.([]any)
	return st.item < len(list) && list[st.item] != nil
}

// objectsOf returns the objects that the expressions of step i can read: the ones of objects, and more. For an item it adds the element and
// its index. i is -1 for an expression that belongs to no step.
func (x *decision) objectsOf(i int, more map[string]any) map[string]any {
	all := x.objects(more)
	if i >= 0 && x.d.steps[i].of >= 0 {
		as, element, index := x.element(i)
		all[as], all[indexName] = element, index
	}
	return all
}

// holesOf returns the values for the variables in the endpoint of step i.
func (x *decision) holesOf(i int) map[string]any {
	if x.d.steps[i].of < 0 {
		return x.s.Data
	}
	values := maps.Clone(x.s.Data)
	as, element, index := x.element(i)
	values[as], values[indexName] = element, index
	return values
}

// element returns, for item i, the element of the list and its index, and the name by which expressions read the element.
func (x *decision) element(i int) (as string, element any, index int64) {
	st := x.d.steps[i]
	step := x.d.steps[st.of]
	list, _ := x.s.Lists[step.Name].([]any)
	return step.each.As, list[st.item], int64(st.item)
}

// addLostItem handles e, an answer to an item that the state does not have. The database may have lost the decision that began the
// items, and the saga may have skipped or refused their step since.
//
// If e is a success of such an item, addLostItem adds the items of the step, as skipped, sets i to the index of the item, and returns
// true: the caller applies e. Otherwise it ignores or refuses e, and returns false.
func (x *decision) addLostItem(e Event, i *int) bool {
	name, item, is := splitItem(e.Step)
	p, known := x.d.byName[name]
	if !is || !known || x.d.steps[p].each == nil {
		x.ignore("there is no step %q", e.Step)
		x.fx.Early = true // the database may have lost a move to a definition with the step
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

// mayHaveItem reports whether name is an item of a step whose items have not begun, in a saga that has not ended.
func (x *decision) mayHaveItem(name string) bool {
	step, _, is := splitItem(name)
	p, known := x.d.byName[step]
	if !is || !known || x.d.steps[p].each == nil || x.s.Ended() {
		return false
	}
	_, begun := x.itemCount(p)
	return !begun
}

// refuseItem refuses e, a success of an item that the saga does not have, for the reason why.
func (x *decision) refuseItem(e Event, why string) {
	x.refuse("%s took effect at hop %s, and the saga has no such item: %s. The list was another one before the database of the saga was set "+
		"back: check whether the effect must be undone by hand", e.Step, e.Hop, why)
}

// stepOf returns the index of the step or item in the name of a deadline, which ends with suffix.
func (x *decision) stepOf(deadline, suffix string) int {
	i, _ := x.d.stepIndex(strings.TrimSuffix(deadline, suffix))
	return i
}

func (x *decision) phaseOf(name string) Phase {
	i, _ := x.d.stepIndex(name)
	return x.s.Steps[i].Phase
}

// stepOfItem returns the name of an item's step, or name itself if it is not the name of an item.
func stepOfItem(name string) string {
	if step, _, is := splitItem(name); is {
		return step
	}
	return name
}

// compareItems finds items that the saga has tolerated after they failed, and whose step is not optional in the other definition.
func (m *move) compareItems() {
	for _, ss := range m.s.Steps[len(m.from.steps):] {
		k, kept := m.to.byName[stepOfItem(ss.Name)]
		if kept && ss.Tolerated && !m.to.steps[k].Optional {
			m.obstacle("%s has failed, and its step is not optional any more", ss.Name)
		}
	}
}
