package explore

import (
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/saga"
)

func cancelEvents(spec saga.Spec) []saga.Answer {
	if spec.Cancel == nil {
		return nil
	}
	return spec.Cancel.Events
}

// awaitCancel adds the events that cancel the saga to the awaited ones: each comes once, at any time.
func (m *model) awaitCancel(v *values) error {
	events := cancelEvents(m.spec)
	for i, a := range events {
		same := alike(events, i)
		if same == nil {
			continue
		}
		all, err := v.of(same)
		if err != nil {
			return fmt.Errorf("cancel by %s of %s: %w", a.Event, a.Hop, err)
		}
		m.awaited = append(m.awaited, awaited{slices.Index(m.hops, a.Hop), a.Event, "", all})
	}
	return nil
}

// kinds returns the operator's actions on the whole saga.
func (m *model) kinds() []saga.Kind {
	all := []saga.Kind{saga.ActCompensate, saga.ActResume, saga.ActAbandon}
	if m.operatorCancels() {
		all = append(all, saga.ActCancel)
	}
	return all
}

func (m *model) operatorCancels() bool { return m.spec.Cancel != nil && m.spec.Cancel.Operator }

// brokenCancel returns the invariant about cancels that a decision breaks, "" if none. It reads the definition only: a step has begun
// if its phase in s, the state before the decision, says so.
func (x *explorer) brokenCancel(s, next saga.State, fx saga.Effects) string {
	c := x.m.spec.Cancel
	accepted := next.Cancel == saga.CancelAccepted
	switch {
	case c == nil && next.Cancel != "":
		return "a cancel is " + string(next.Cancel) + ", and the definition declares none"
	case accepted && next.Status == saga.Completed:
		return "the saga is completed, and its cancel was accepted"
	case accepted && !next.Back:
		return "a cancel is accepted, and the saga does not go back"
	case next.Cancel == s.Cancel || len(s.Steps) == 0:
		return ""
	case !accepted && s.Status != next.Status:
		return fmt.Sprintf("a cancel is refused, and the saga was %s and is %s", s.Status, next.Status)
	case !accepted && len(fx.Events) != len(c.Refused):
		return fmt.Sprintf("a cancel is refused, and %d events say so: want %d", len(fx.Events), len(c.Refused))
	}
	for i, ss := range s.Steps {
		st := &x.m.steps[i]
		begun := ss.Phase != saga.StepWaiting && ss.Phase != saga.Skipped
		if accepted && begun && (st.Pivot || st.Name == c.Before) {
			return fmt.Sprintf("a cancel is accepted after step %s has begun", st.Name)
		}
		if !accepted && (begun && st.Pivot || ss.Phase != saga.StepWaiting && st.Name == c.Before) {
			return ""
		}
	}
	if !accepted {
		return "a cancel is refused before its step or a pivot has begun"
	}
	return ""
}

func cancelsWith(event int) string { return fmt.Sprintf("cancel.events[%d]", event) }

// cancelsBy returns the path of the event by which a decision on e accepts or refuses a cancel.
func (x *explorer) cancelsBy(before, next saga.State, e saga.Event) []string {
	if next.Cancel == before.Cancel || e.Kind != saga.Observed {
		return nil
	}
	for k, a := range cancelEvents(x.m.spec) {
		if path := cancelsWith(k); a.Event == e.Type && a.Hop == e.Hop && (a.When == "" || x.holds(path+".when", before, e)) {
			return []string{path}
		}
	}
	return nil
}
