package explore

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/saga"
)

// A step with ForEach is searched with lists of 0, 1, 2 and 3 elements, but not more than its Max. Its items are further steps
// of the model. They have the indexes that they have in a state in which all steps with ForEach have begun with their longest
// lists.

// maxItems is the number of elements of the longest list that the explorer makes.
const maxItems = 3

// isItem reports whether s is an item of a step with ForEach.
func (s *step) isItem() bool { return s.of >= 0 }

// addItems adds the items of the steps with ForEach to the model. A step with ForEach itself sends nothing.
func (m *model) addItems(v *values, starts []map[string]any) error {
	for i, st := range m.spec.Steps {
		if st.ForEach == nil {
			continue
		}
		n := max(min(st.ForEach.Max, maxItems), min(st.ForEach.Max, longest(starts)))
		p := &m.steps[i]
		p.hop, p.first, p.items = [2]int{-1, -1}, len(m.steps), n
		p.outputs = nil
		for k := range n {
			item := st
			item.Name, item.Needs, item.AtLeast, item.When = fmt.Sprintf("%s[%d]", st.Name, k), nil, 0, ""
			s, err := m.step(item, v.ofItem(st, k))
			if err != nil {
				return err
			}
			s.of, s.at, s.item = i, i, k
			m.steps = append(m.steps, s)
		}
	}
	base := m.steps[:len(m.spec.Steps)]
	for i := range base { // a step that comes before or after a step with ForEach comes before or after its items too
		for _, list := range []*[]int{&base[i].before, &base[i].after} {
			for _, k := range slices.Clone(*list) {
				for item := range base[k].items {
					*list = append(*list, base[k].first+item)
				}
			}
		}
	}
	for k := range m.steps[len(base):] {
		s := &m.steps[len(base)+k]
		s.before, s.after = m.steps[s.of].before, m.steps[s.of].after
	}
	return nil
}

// longest returns the number of elements of the longest list in the given variables at the start.
func longest(starts []map[string]any) (n int) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			n = max(n, len(v))
			for _, one := range v {
				walk(one)
			}
		case map[string]any:
			for _, one := range v {
				walk(one)
			}
		}
	}
	for _, fields := range starts {
		walk(fields)
	}
	return n
}

// ofItem returns a copy of v in which the variables that item k sets have values that no other item sets.
func (v *values) ofItem(st saga.Step, k int) *values {
	with := *v
	with.data = maps.Clone(v.data)
	for _, a := range slices.Concat(st.Success, st.Failure) {
		for name := range a.Set {
			with.data[name] = []any{fmt.Sprintf("%s-%d", name, k+1)}
		}
	}
	return &with
}

var (
	variablePath = regexp.MustCompile(`^data\.([a-z][a-z0-9_]*)((?:\.[A-Za-z_][A-Za-z0-9_]*)*)$`)
	selected     = regexp.MustCompile(`\.([A-Za-z_][A-Za-z0-9_]*)\b`)
)

// lists sets the values of variables so that the list of each step with ForEach has 0, 1, 2 and 3 elements. given reports that the
// variables at the start are given: no values need be found then.
func (v *values) lists(given bool) error {
	for i, st := range v.spec.Steps {
		if st.ForEach == nil {
			continue
		}
		fields, err := v.elementFields(st)
		if err != nil {
			return err
		}
		if !v.listsOf(st.ForEach, fields) && !given {
			return fmt.Errorf("steps[%d].forEach.list: the explorer found no values of variables for which %q is a list of 0, 1, 2 and 3 elements: "+
				"give it the variables at the start", i, st.ForEach.List)
		}
	}
	return nil
}

// elementFields returns the fields of an element that the expressions of a step read, each with the values that conditions
// compare it to.
func (v *values) elementFields(st saga.Step) (map[string][]any, error) {
	fields := make(map[string][]any)
	texts := []string{}
	mapped := func(m saga.Mapping) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			texts = append(texts, m[name])
		}
	}
	for _, a := range slices.Concat(st.Success, st.Failure) {
		if err := v.compared(a.When, st.ForEach.As, fields, func(string) saga.Type { return "" }); err != nil {
			return nil, err
		}
		mapped(a.Set)
		texts = append(texts, a.Reason)
	}
	sends := func(cmd *saga.Command, call *saga.Call) {
		if cmd != nil {
			mapped(cmd.Input)
		}
		if call != nil {
			mapped(call.Body)
		}
	}
	sends(st.Command, st.Call)
	if c := st.Compensation; c != nil {
		sends(c.Command, c.Call)
	}
	for _, text := range texts {
		if text == "" {
			continue
		}
		x, err := v.env.Compile(text, expr.Any)
		if err != nil {
			return nil, err
		}
		for _, r := range x.Reads() {
			if r.Object == st.ForEach.As && fields[r.Field] == nil {
				fields[r.Field] = []any{}
			}
		}
	}
	return fields, nil
}

// listsOf sets the values of one variable that the list of f reads, and reports whether it found values for all lengths.
func (v *values) listsOf(f *saga.ForEach, fields map[string][]any) bool {
	x, err := v.env.Compile(f.List, expr.Any)
	if err != nil {
		return false
	}
	inner := maps.Clone(fields) // a list may be made of fields of elements: data.passengers.map(p, p.id)
	for _, m := range selected.FindAllStringSubmatch(f.List, -1) {
		if inner[m[1]] == nil {
			inner[m[1]] = []any{}
		}
	}
	var names, path []string
	if m := variablePath.FindStringSubmatch(f.List); m != nil {
		names, path = []string{m[1]}, strings.Split(m[2], ".")[1:]
	} else {
		for _, r := range x.Reads() {
			if r.Object == "data" && v.spec.Data[r.Field] == saga.Any {
				names = append(names, r.Field)
			}
		}
	}
	for _, name := range names {
		for _, of := range []map[string][]any{fields, inner} {
			var all []any
			for n := range min(f.Max, maxItems) + 1 {
				value := any(list(f.As, of, n))
				for _, field := range slices.Backward(path) {
					value = map[string]any{field: value}
				}
				data := map[string]any{}
				for other, values := range v.data {
					data[other] = values[0]
				}
				data[name] = value
				got, err := x.Eval(map[string]any{expr.Now: moment, "data": data, "saga": map[string]any{"id": "", "key": "", "reason": "", "compensated": []any{}}})
				if made, is := got.([]any); err == nil && is && len(made) == n {
					all = append(all, value)
				}
			}
			if len(all) == min(f.Max, maxItems)+1 {
				v.data[name] = all
				return true
			}
		}
	}
	return false
}

// list returns a list of n elements. Each element is an object with the fields in of, or a text if of is empty. A field that
// conditions compare takes the compared values in turn.
func list(as string, of map[string][]any, n int) []any {
	all := make([]any, n)
	for k := range all {
		if len(of) == 0 {
			all[k] = fmt.Sprintf("%s-%d", as, k+1)
			continue
		}
		element := make(map[string]any, len(of))
		for name, values := range of {
			element[name] = fmt.Sprintf("%s-%d", name, k+1)
			if len(values) > 0 {
				element[name] = values[k%len(values)]
			}
		}
		all[k] = element
	}
	return all
}

// withItems returns s with all items of the model. An item that s lacks waits if its step has not begun, and is skipped else.
func (x *explorer) withItems(s saga.State) saga.State {
	base := len(x.m.spec.Steps)
	if len(s.Steps) == 0 || len(x.m.steps) == base {
		return s
	}
	steps, rest := slices.Clone(s.Steps[:base]), s.Steps[base:]
	for i := range base {
		p := &x.m.steps[i]
		if p.items == 0 {
			continue
		}
		have, begun := s.Lists[p.Name].([]any)
		n := min(len(have), p.items)
		steps = append(steps, rest[:n]...)
		rest = rest[len(have):]
		for k := n; k < p.items; k++ {
			one := saga.StepState{Name: x.m.steps[p.first+k].Name}
			if begun || s.Steps[i].Phase != saga.StepWaiting {
				one.Phase = saga.Skipped
			}
			steps = append(steps, one)
		}
	}
	s.Steps = steps
	return s
}

// absent reports whether step i of the model is an item that s lacks.
func (x *explorer) absent(s saga.State, i int) bool {
	st := &x.m.steps[i]
	if !st.isItem() {
		return false
	}
	list, _ := s.Lists[x.m.steps[st.of].Name].([]any)
	return st.item >= len(list)
}

// brokenItems returns the invariant about items that a decision breaks, "" if none.
func (x *explorer) brokenItems(s, next saga.State) string {
	for i := range x.m.spec.Steps {
		p := &x.m.steps[i]
		if p.ForEach == nil {
			continue
		}
		was, had := s.Lists[p.Name]
		list, begun := next.Lists[p.Name].([]any)
		switch {
		case had && !reflect.DeepEqual(was, next.Lists[p.Name]):
			return fmt.Sprintf("the list of step %s has changed since it began", p.Name)
		case len(list) > p.items:
			return fmt.Sprintf("step %s has a list of %d elements, and the explorer searches at most %d: give shorter lists at the start", p.Name, len(list), p.items)
		case !begun && (next.Steps[i].Phase == saga.Intent || next.Steps[i].Phase == saga.Done && next.Steps[i].Started > 0):
			return fmt.Sprintf("step %s has begun without its list", p.Name)
		case !begun:
			continue
		}
		if problem := x.brokenItem(p, s, next, list); problem != "" {
			return problem
		}
		if problem := x.brokenCollected(p, s, next, list); problem != "" {
			return problem
		}
	}
	return ""
}

// brokenItem returns the invariant about the phases of the items of p that a decision breaks.
func (x *explorer) brokenItem(p *step, s, next saga.State, list []any) string {
	running := 0
	done := next.Steps[x.stepIndex(p.Name)].Phase == saga.Done && next.Status == saga.Running
	for k := range list {
		ss := next.Steps[p.first+k]
		if ss.Phase == saga.Intent {
			running++
		}
		began := ss.Started > 0 && (len(s.Steps) == 0 || s.Steps[p.first+k].Started == 0)
		switch {
		case began && s.Back && next.Back:
			return fmt.Sprintf("%s begins while the saga compensates", ss.Name)
		case done && ss.Phase != saga.Done && !ss.Tolerated:
			return fmt.Sprintf("step %s is done, and its item %s is %s", p.Name, ss.Name, orWaiting(ss.Phase))
		}
	}
	if most := p.ForEach.Parallel; most > 0 && running > most {
		return fmt.Sprintf("%d items of step %s run at once: want at most %d", running, p.Name, most)
	}
	return ""
}

// brokenCollected returns the invariant about the variables of p's items that a decision breaks. It does not check a list that
// an operator has set.
func (x *explorer) brokenCollected(p *step, s, next saga.State, list []any) string {
	for _, a := range p.Success {
		for name := range a.Set {
			values, is := next.Data[name].([]any)
			if _, set := next.Data[name]; !set {
				return fmt.Sprintf("step %s has begun, and data.%s is not set", p.Name, name)
			}
			if !is {
				continue
			}
			if len(values) != len(list) {
				return fmt.Sprintf("data.%s has %d values, and step %s has %d items", name, len(values), p.Name, len(list))
			}
			for k, v := range values {
				if text, is := v.(string); v != nil && is && strings.HasPrefix(text, name+"-") && text != fmt.Sprintf("%s-%d", name, k+1) {
					return fmt.Sprintf("data.%s[%d] is %s, the value of another item", name, k, text)
				}
			}
			if was, is := s.Data[name].([]any); is {
				for k, v := range was {
					if k < len(values) && v != nil && values[k] == nil {
						return fmt.Sprintf("data.%s[%d] had the value of its item and has lost it", name, k)
					}
				}
			}
		}
	}
	return ""
}
