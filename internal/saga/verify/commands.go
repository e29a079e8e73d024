package verify

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/troupe-go/troupe/saga"
)

// An edge is a command to a hop.
type edge struct{ hop, typ string }

func edgeOf(command *saga.Command, call *saga.Call) edge {
	switch {
	case command != nil:
		return edge{command.Hop, command.Type}
	case call != nil:
		return edge{call.Hop, call.Method + " " + call.Endpoint}
	}
	return edge{}
}

// A policy is a retry policy with its path.
type policy struct {
	path  string
	retry *saga.Retry
}

// commands finds commands that can be confused with others, and compensations that cannot work.
func commands(m *model) {
	undoes := make(map[edge]string)
	policies := make(map[edge]stepPolicy)
	for _, n := range m.steps {
		c := n.Compensation
		if c == nil {
			continue
		}
		forward, back := edgeOf(n.Command, n.Call), edgeOf(c.Command, c.Call)
		undoes[back] = n.Name
		switch {
		case forward == back:
			m.report("key-clash", n.path+".compensation", nil,
				"%s is done and undone by the same %s to %s; give the compensation a type of its own",
				n.Name, back.typ, back.hop)
		case forward.hop != back.hop && n.doubtful:
			m.report("compensation-elsewhere", n.path+".compensation", nil,
				"%s may be in doubt, and %s cannot tell whether %s did it; let %s undo it, or leave out the time-out and exhausted", n.Name, back.hop, forward.hop, forward.hop)
		}
	}
	for _, n := range m.steps {
		if !n.sends {
			if n.Retry != nil || n.Exhausted != saga.Park || n.Retriable {
				m.report("nothing-to-retry", n.path, nil, "%s sends nothing: strike out retry, retriable and exhausted", n.Name)
			}
			continue
		}
		if other, does := undoes[edgeOf(n.Command, n.Call)]; does && n.Compensation != nil && other != n.Name {
			m.report("compensated-compensation", n.path+".compensation", nil,
				"%s is what undoes %s: a compensation is not compensated; strike it out, or the step", n.Name, other)
		}
		for _, p := range policiesOf(n) {
			m.sameOwner(policies, p.edge, stepPolicy{n.Name, p.policy})
		}
	}
}

type edgePolicy struct {
	edge
	policy
}

// policiesOf returns the retry policies of a step's command and compensation.
func policiesOf(n node) (all []edgePolicy) {
	all = append(all, edgePolicy{edgeOf(n.Command, n.Call), policy{n.path, n.Retry}})
	if c := n.Compensation; c != nil {
		all = append(all, edgePolicy{edgeOf(c.Command, c.Call), policy{n.path + ".compensation", c.Retry}})
	}
	return all
}

type stepPolicy struct {
	step string
	policy
}

func (m *model) sameOwner(seen map[edge]stepPolicy, e edge, p stepPolicy) {
	first, twice := seen[e]
	if !twice {
		seen[e] = p
		return
	}
	if first.step != p.step && !reflect.DeepEqual(first.retry, p.retry) {
		m.report("retry-owners", p.path+".retry", nil,
			"%s to %s is tried in another way at %s; say the same in both places", e.typ, e.hop, first.path)
	}
}

// ends finds ends that may come while a command is running or that leave a step done, and ends that consumers cannot distinguish.
func ends(m *model) {
	for k, e := range m.s.Ends {
		if e.Then != saga.ThenComplete {
			continue
		}
		for _, c := range m.runs {
			for _, t := range m.last(c, k).steps() {
				m.over(c, t, fmt.Sprintf("ends[%d]", k), e.When+" holds", only(t))
			}
		}
	}
	for k, dl := range m.s.Deadlines {
		if dl.Then != saga.ThenComplete {
			continue
		}
		for _, c := range m.runs {
			m.overDeadline(c, fmt.Sprintf("deadlines[%d]", k), dl)
		}
	}
	for i, a := range m.s.Completed {
		if announces(m.s.Compensated, a) {
			m.report("ends-alike", fmt.Sprintf("completed[%d]", i), nil,
				"%s says completed and compensated: give the latter another event, or failure", a.Event)
		}
	}
}

// announces reports whether a consumer takes one of es for a.
func announces(es []saga.Emit, a saga.Emit) bool {
	return slices.ContainsFunc(es, func(b saga.Emit) bool { return a.Event == b.Event && a.Hop == b.Hop && a.Failure == b.Failure })
}

// over reports the steps that may be running or done when the answer of step t ends the saga.
func (m *model) over(c *run, t int, path, when string, done set) {
	for _, i := range c.parallel(t).steps() {
		if m.steps[i].sends {
			m.report("end-under-way", path, m.failing(c, t, i,
				"under way"), "%s may be under way when %s; let it be done before, or compensate", m.steps[i].Name, when)
		}
	}
	for _, i := range (c.before[t] | done).steps() {
		if m.steps[i].Compensation != nil {
			m.report("end-leaves-done", path, m.trace(c, t, "done"),
				"%s stays done when %s; say then compensate, if it is to be undone", m.steps[i].Name, when)
		}
	}
}

func (m *model) overDeadline(c *run, path string, dl saga.Deadline) {
	since, from := m.index[dl.Since]
	if from && !c.begun.has(since) {
		return
	}
	when := dl.Name + " is due"
	for _, i := range c.begun.steps() {
		n := m.steps[i]
		switch due := m.mayBeDue(c, dl, i); {
		case from && c.before[since].has(i):
			if n.Compensation != nil {
				m.report("end-leaves-done", path, m.trace(c, since, "begins"),
					"%s stays done when %s; say then compensate, if it is to be undone", n.Name, when)
			}
		case due && n.sends:
			m.report("end-under-way", path, m.trace(c, i,
				"under way"), "%s may be under way when %s; let the deadline end before, or compensate", n.Name, when)
		}
	}
}
