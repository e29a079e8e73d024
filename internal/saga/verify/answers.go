package verify

import (
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/saga"
)

// answers finds steps without a declared failure, and answers that can never be taken.
func answers(m *model) {
	for _, n := range m.steps {
		switch {
		case n.Command != nil && len(n.Failure) == 0 && !n.Retriable:
			m.report("no-failure-answer", n.path+".failure", nil,
				"%s does not say how it is refused: declare the event, or say retriable", n.Name)
		case n.sends && len(n.Failure) > 0 && n.Retriable:
			m.report("retriable-refused", n.path+".failure", nil,
				"%s is retriable and declares %s; strike out one", n.Name, n.Failure[0].Event)
		}
		if n.sends {
			m.shadowed(n, n.Success, n.Failure)
			continue
		}
		m.shadowed(n, slices.Concat(n.Success, n.Failure))
		for k, a := range slices.Concat(n.Success, n.Failure) {
			path := fmt.Sprintf("%s.success[%d]", n.path, k)
			if k >= len(n.Success) {
				path = fmt.Sprintf("%s.failure[%d]", n.path, k-len(n.Success))
			}
			if slices.ContainsFunc(m.s.Start, func(s saga.Start) bool { return s.Hop == a.Hop && s.Event == a.Event }) {
				m.report("start-awaited", path, nil,
					"%s of %s starts the saga, and %s never sees that one; wait for another event", a.Event, a.Hop, n.Name)
			}
		}
	}
}

// shadowed finds, in each of the lists, answers that come after another one which always takes their event.
func (m *model) shadowed(n node, lists ...[]saga.Answer) {
	for at, list := range lists {
		for k, a := range list {
			before := slices.IndexFunc(list[:k], func(b saga.Answer) bool {
				return b.Event == a.Event && b.Hop == a.Hop && (b.When == "" || b.When == a.When)
			})
			if before < 0 {
				continue
			}
			path := fmt.Sprintf("%s.success[%d]", n.path, k)
			switch {
			case at == 1:
				path = fmt.Sprintf("%s.failure[%d]", n.path, k)
			case k >= len(n.Success):
				path = fmt.Sprintf("%s.failure[%d]", n.path, k-len(n.Success))
			}
			m.report("shadowed-answer", path, nil,
				"%s is taken by an answer before it, always; give that one a condition, or strike this one out", a.Event)
		}
	}
}
