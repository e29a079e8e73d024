package saga

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/expr"
)

// compareValues finds variables that would have no value when the saga reaches a part of the new definition that reads them. The new
// definition sets such a variable at the start, or by a step that is over. The old definition, on which the saga has passed that place,
// does not set it there.
func (m *move) compareValues() {
	phase, tolerated := make(map[string]Phase, len(m.s.Steps)), make(map[string]bool)
	for _, ss := range m.s.Steps {
		phase[ss.Name], tolerated[ss.Name] = ss.Phase, ss.Tolerated
	}
	missing := func(name string) bool {
		if _, set := m.s.Data[name]; set {
			return false
		}
		was, did := m.from.setters[name]
		_, had := m.from.spec.Data[name]
		by, does := m.to.setters[name]
		if had && did == does && was == by {
			return false // the old definition sets it in the same place, and has left it unset
		}
		collects := does && by != "" && m.to.steps[m.to.byName[by]].each != nil // the variable is a list when the step begins
		return by == "" || phase[by] == Done || tolerated[by] || collects && phase[by] == Intent
	}
	var told []string
	waiting := m.s.Status == Waiting || m.s.Held == heldByDeadlines
	for _, part := range m.to.toCome(phase, waiting) {
		for _, name := range part.wants {
			if !missing(name) || slices.Contains(told, part.name+name) {
				continue
			}
			told = append(told, part.name+name)
			by := orElse(m.to.setters[name], "the start")
			if by != "the start" {
				by = "step " + by + ", which was done"
			}
			m.obstacle("%s reads data.%s, which has no value and is set by %s before it moved", part.name, name, by)
		}
	}
}

// compareFound finds steps that wait for an event now, and that no event can find in the other definition.
func (m *move) compareFound() {
	phase := make(map[string]Phase, len(m.s.Steps))
	for _, ss := range m.s.Steps {
		phase[ss.Name] = ss.Phase
	}
	for _, st := range m.to.steps {
		k, kept := m.from.byName[st.Name]
		if !kept || phase[st.Name] != Intent || st.of >= 0 {
			continue
		}
		was := m.from.steps[k]
		variable, none := st.findsNone(func(variable string) bool {
			by, does := m.to.byName[m.to.setters[variable]]
			return expr.Text(m.s.Data[variable]) == "" && !(does && phase[m.to.steps[by].Name].maySet())
		})
		same := slices.ContainsFunc(slices.Concat(was.success, was.failure), func(a *answer) bool { return a.By != nil && a.By.Variable == variable })
		if none && !same {
			m.obstacle("the event of step %s finds the saga by data.%s, which has no value", st.Name, variable)
		}
	}
}

// A toCome is a part of a definition that a saga may still reach. wants has the variables that the part reads.
type toCome struct {
	name  string
	wants []string
}

// toCome returns the parts that a saga whose steps are in these phases may still reach. waiting reports that the saga waits for its
// lock.
func (d *Definition) toCome(phase map[string]Phase, waiting bool) (all []toCome) {
	for i, st := range d.spec.Steps {
		path := fmt.Sprintf("steps[%d]", i)
		var guards []*expr.Expr // none if the step has begun: its condition is not evaluated again
		if st.When != "" && phase[st.Name] == StepWaiting {
			guards = append(guards, d.exprs[path+".when"])
		}
		switch phase[st.Name] {
		case StepWaiting:
			all = append(all, toCome{"step " + st.Name, d.wants(guards, path+".when", path+".forEach.list", path+".command.input", path+".call")})
		case Intent, GivenUp, Doubt: // it may be retried
			all = append(all, toCome{"step " + st.Name, d.wants(nil, path+".command.input", path+".call")})
		}
		switch phase[st.Name] { // steps whose answer may come
		case StepWaiting, Intent, GivenUp, Doubt:
			var paths []string
			for kind, answers := range map[string][]Answer{"success": st.Success, "failure": st.Failure} {
				for k := range answers {
					answer := fmt.Sprintf("%s.%s[%d]", path, kind, k)
					paths = append(paths, answer+".when", answer+".set", answer+".by")
				}
			}
			all = append(all, toCome{"an answer to step " + st.Name, d.wants(guards, paths...)})
		}
		switch phase[st.Name] {
		case Skipped, Refused, Undone:
		default:
			all = append(all, toCome{"the compensation of step " + st.Name,
				d.wants(guards, path+".compensation.command.input", path+".compensation.call")})
		}
	}
	all = append(all, toCome{"cancel", d.wants(nil, "cancel")})
	all = append(all, toCome{"completed", d.wants(nil, "completed")}, toCome{"compensated", d.wants(nil, "compensated")})
	for i := range d.spec.Ends {
		path := fmt.Sprintf("ends[%d]", i)
		emitted := d.wants(nil, path+".emit")
		all = append(all, toCome{path, slices.DeleteFunc(emitted, func(name string) bool { // the end is not applied while a variable of its condition is unset
			return slices.ContainsFunc(d.exprs[path+".when"].Reads(), func(r expr.Read) bool { return r.Object == "data" && r.Field == name })
		})})
	}
	for i, dl := range d.spec.Deadlines {
		path := fmt.Sprintf("deadlines[%d]", i)
		paths := []string{path + ".emit"}
		if dl.Since != "" && phase[dl.Since] == StepWaiting || dl.Since == "" && waiting { // a saga that waits for its lock schedules them when it gets the lock
			paths = append(paths, path+".payload")
		}
		all = append(all, toCome{"deadline " + dl.Name, d.wants(nil, paths...)})
	}
	return all
}

// wants returns the variables that the expressions under paths read. It leaves out a variable that the same expression, or one of
// guards, tests with has().
func (d *Definition) wants(guards []*expr.Expr, paths ...string) (names []string) {
	var tested []string
	for _, g := range guards {
		for _, r := range g.Reads() {
			if r.Tested && r.Object == "data" {
				tested = append(tested, r.Field)
			}
		}
	}
	for _, path := range sortedKeys(d.exprs) {
		if !slices.ContainsFunc(paths, func(p string) bool { return under(path, p) }) {
			continue
		}
		reads := d.exprs[path].Reads()
		for _, r := range reads {
			guarded := slices.Contains(tested, r.Field) || slices.Contains(reads, expr.Read{Object: r.Object, Field: r.Field, Tested: true})
			if r.Object == "data" && !r.Tested && !guarded && !slices.Contains(names, r.Field) {
				names = append(names, r.Field)
			}
		}
	}
	for _, path := range sortedKeys(d.named) {
		for _, name := range d.named[path] {
			if slices.ContainsFunc(paths, func(p string) bool { return under(path, p) }) && !slices.Contains(tested, name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func under(path, p string) bool {
	rest, is := strings.CutPrefix(path, p)
	return is && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// readsOf returns the fields of an object that the expressions under p read. It leaves out a field that the same expression tests with
// has().
func (d *Definition) readsOf(p, object string) (names []string) {
	for _, path := range sortedKeys(d.exprs) {
		if !under(path, p) {
			continue
		}
		reads := d.exprs[path].Reads()
		for _, r := range reads {
			tested := slices.Contains(reads, expr.Read{Object: r.Object, Field: r.Field, Tested: true})
			if r.Object == object && !r.Tested && !tested && !slices.Contains(names, r.Field) {
				names = append(names, r.Field)
			}
		}
	}
	return names
}
