package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/rule"
	"github.com/troupe-go/troupe/saga"
)

// deadlines finds deadlines that are never scheduled, never due or never cancelled, and events that read fields which the payload
// does not have.
func deadlines(m *model) {
	begun := m.everBegun()
	for k, dl := range m.s.Deadlines {
		path := fmt.Sprintf("deadlines[%d]", k)
		since, from := m.index[dl.Since]
		switch {
		case from && !begun.has(since):
			m.report("deadline-never", path+".since", nil,
				"%s counts from %s, which never begins; count from a step that does", dl.Name, dl.Since)
			continue
		case !from && m.s.Timeout > 0 && dl.After >= m.s.Timeout:
			m.report("deadline-never", path+".after", nil,
				"%s is due after %s, and the saga's time is up after %s; let it come earlier", dl.Name, dl.After, m.s.Timeout)
		case from:
			m.skippedSince(path, dl, since)
		}
		if len(dl.Until) > 0 {
			m.cancelled(path, dl)
		}
		for i, e := range dl.Emit {
			m.deadlineFields(fmt.Sprintf("%s.emit[%d].input", path, i), dl, e)
		}
	}
}

func (m *model) skippedSince(path string, dl saga.Deadline, since int) {
	for _, c := range m.runs {
		if c.skipped.has(since) {
			m.report("deadline-skipped", path+".since", m.trace(c, since, "skipped"),
				"%s is not scheduled where %s is skipped; count from a step that always begins, or from the start", dl.Name, dl.Since)
			return
		}
	}
}

// cancelled reports each step of until for which no run exists in which it is done after the deadline was scheduled, and a
// deadline that is met in a run in which all of these steps are skipped.
func (m *model) cancelled(path string, dl saga.Deadline) {
	since, from := m.index[dl.Since]
	var until set
	for _, name := range dl.Until {
		until |= only(m.index[name])
	}
	for _, c := range m.runs {
		guarded := (c.guarded & until) != 0
		if guarded && c.skipped&until == until && c.cut == 0 && (!from || c.begun.has(since)) {
			at := lowest(c.guarded & until)
			m.reportAs(rule.Warning, "deadline-not-cancelled", path+".until", m.trace(c, at, "skipped"),
				"%s is met where %s is skipped, which should cancel it; count since a step that is skipped with it", dl.Name, m.names(until))
			break
		}
	}
	for k, name := range dl.Until {
		u := m.index[name]
		works := slices.ContainsFunc(m.runs, func(c *run) bool {
			return c.begun.has(u) && (!from || c.begun.has(since) && !c.before[since].has(u))
		})
		if !works {
			m.report("deadline-not-cancelled", fmt.Sprintf("%s.until[%d]", path, k), nil,
				"%s does not cancel %s: it never begins, or is done before that is scheduled; name a step that comes after", name, dl.Name)
		}
	}
}

func (m *model) deadlineFields(path string, dl saga.Deadline, e saga.Emit) {
	for _, name := range sortedKeys(e.Input) {
		x := m.d.Expr(path + "." + name)
		if x == nil {
			continue
		}
		for _, r := range x.Reads() {
			if _, has := dl.Payload[r.Field]; r.Object == "deadline" && !r.Tested && !has {
				m.report("deadline-field", path+"."+name, nil,
					"deadline.%s: the payload of %s has %s; add it there", r.Field, dl.Name,
					orNothing(strings.Join(sortedKeys(dl.Payload), ", ")))
			}
		}
	}
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}
