package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/saga"
)

// hops finds commands that no known hop handles and events that no known hop emits.
func hops(m *model, known map[string]Hop) {
	events := func(path string, as []saga.Answer, hop string) {
		for k, a := range as {
			from := a.Hop
			if from == "" {
				from = hop
			}
			m.feeds(fmt.Sprintf("%s[%d].event", path, k), known, from, a.Event)
		}
	}
	for i, s := range m.s.Start {
		m.feeds(fmt.Sprintf("start[%d].event", i), known, s.Hop, s.Event)
	}
	if c := m.s.Cancel; c != nil {
		events("cancel.events", c.Events, "")
	}
	for _, n := range m.steps {
		m.consumes(n.path, known, n.Command, n.Call)
		events(n.path+".success", n.Success, n.hop)
		events(n.path+".failure", n.Failure, n.hop)
		if c := n.Compensation; c != nil {
			m.consumes(n.path+".compensation", known, c.Command, c.Call)
			events(n.path+".compensation.success", c.Success, hopOf(c.Command, c.Call))
		}
	}
}

func (m *model) consumes(path string, known map[string]Hop, command *saga.Command, call *saga.Call) {
	var hop string
	typ, where := saga.CallType, path+".call"
	switch {
	case command != nil:
		typ, hop, where = command.Type, command.Hop, path+".command"
	case call != nil:
		hop = call.Hop
	default:
		return
	}
	switch h, there := known[hop]; {
	case !there:
		m.report("no-consumer", where+".hop", nil,
			"there is no hop %s; there are %s", hop, strings.Join(sortedKeys(known), ", "))
	case !slices.Contains(h.Consumes, typ):
		m.report("no-consumer", where+".type", nil,
			"%s handles no %s; it handles %s", hop, typ, orNothing(strings.Join(h.Consumes, ", ")))
	}
}

func (m *model) feeds(path string, known map[string]Hop, hop, event string) {
	switch h, there := known[hop]; {
	case !there:
		m.report("no-producer", path, nil, "there is no hop %s; there are %s", hop, strings.Join(sortedKeys(known), ", "))
	case !slices.Contains(h.Emits, event):
		m.report("no-producer", path, nil, "%s emits no %s; it emits %s", hop, event, orNothing(strings.Join(h.Emits, ", ")))
	}
}
