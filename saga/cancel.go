package saga

import (
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/internal/moments"
)

// A Cancel declares who can cancel a saga, and until which step. An accepted cancel compensates the saga as if a step had been refused:
// steps that run are waited for, each step that took effect is compensated, and the saga ends as compensated. A cancel that comes too
// late is refused, and the saga goes on.
type Cancel struct {
	// Before names a step. A cancel is accepted until this step begins or is skipped. Once a pivot has begun, no cancel is accepted,
	// since the pivot's effect cannot be undone. Default: until a pivot begins; without a pivot, until the saga ends.
	Before string `json:"before,omitempty"`
	// Events lists the events that cancel the saga. Such an event answers no command and finds the saga by its key only, so Set and By must
	// be empty. Reason of the Answer is the expression of the saga's reason. Default: the type of the event.
	Events []Answer `json:"events,omitempty"`
	// Operator lets an operator cancel the saga, by ActCancel.
	Operator bool `json:"operator,omitempty"`
	// Refused lists the events that are emitted when one of Events comes too late. A saga emits them at most once, however many cancels
	// come.
	Refused []Emit `json:"refused,omitempty"`
}

// A CancelResult is the result of the cancels of a saga.
type CancelResult string

// These are the values of CancelResult. It is empty if no cancel was accepted, and no event of Cancel.Events was refused. An event that is
// ignored, because the saga is being compensated already, and a refused ActCancel do not change it.
const (
	CancelAccepted CancelResult = "accepted"
	CancelRefused  CancelResult = "refused"
)

type cancel struct {
	*Cancel
	before  int // the index of the step; -1: none
	events  []*answer
	refused []emit
}

func (c *compiler) cancel(s *Cancel) *cancel {
	if s == nil {
		return nil
	}
	x := &cancel{Cancel: s, before: -1}
	if len(s.Events) == 0 && !s.Operator {
		c.wrong("cancel", "nothing can cancel the saga: want events or operator")
	}
	if s.Before != "" {
		i, ok := c.d.byName[s.Before]
		if !ok {
			c.wrong("cancel.before", "there is no step %q", s.Before)
		}
		x.before = i
	}
	events := slices.Clone(s.Events)
	for i, a := range events {
		path := fmt.Sprintf("cancel.events[%d]", i)
		if len(a.Set) > 0 {
			c.wrong(path+".set", "a cancel sets no variables")
		}
		if a.By != nil {
			c.wrong(path+".by", "a cancel finds its saga by the key only")
		}
		events[i].Set, events[i].By = nil, nil
		c.cancels(path, a)
	}
	x.events = c.answers("cancel.events", events, "", &step{})
	if len(s.Refused) > 0 && len(s.Events) == 0 {
		c.wrong("cancel.refused", "only an event is refused with an event: want events")
	}
	if len(s.Refused) > 0 && s.Before == "" && !slices.ContainsFunc(c.d.steps, func(st *step) bool { return st.Pivot }) {
		c.wrong("cancel.refused", "no cancel comes too late: there is no pivot, and no before")
	}
	x.refused = c.emits(c.data, "cancel.refused", s.Refused)
	return x
}

// cancels checks that the event of a is not also a start of the saga or an answer of a step.
func (c *compiler) cancels(path string, a Answer) {
	for _, st := range c.d.spec.Start {
		if st.Hop == a.Hop && st.Event == a.Event {
			c.wrong(path, "%s of %s starts the saga: want another event", a.Event, a.Hop)
		}
	}
	for _, st := range c.d.steps {
		for _, as := range [][]*answer{st.success, st.failure} {
			for _, b := range as {
				if b.Hop == a.Hop && b.Event == a.Event {
					c.wrong(path, "step %s expects %s of %s: want another event", st.Name, a.Event, a.Hop)
					return
				}
			}
		}
	}
}

// cancelledBy reports whether e is an event that cancels the saga, and applies it if it is one.
func (x *decision) cancelledBy(e Event) bool {
	if x.d.cancel == nil {
		return false
	}
	a, err := x.match(-1, x.d.cancel.events, e)
	if err != nil {
		x.refuse("cancel: %s", err) // it is unknown whether e cancels the saga
		return true
	}
	if a == nil {
		return false
	}
	late := x.tooLate()
	switch {
	case x.goesBackForGood():
		x.ignore("the saga is compensated already: %s changes nothing", e.Type)
	case late == "":
		x.cancel(fmt.Sprintf("%s of %s", e.Type, a.Hop), x.reasonOf(-1, a, e))
	case x.s.Cancel == CancelRefused:
		x.ignore("%s comes too late, and a cancel was refused before: %s", e.Type, late)
	default:
		x.refuseCancel(e, late)
	}
	return true
}

// cancel accepts a cancel: the saga goes back. by names the event, or an operator.
func (x *decision) cancel(by, reason string) {
	x.s.Cancel = CancelAccepted
	if x.s.Held == heldByDeadlines { // a saga that goes back needs none of these deadlines
		x.s.Held = ""
	}
	x.moment(moments.CancelAccepted, "", by)
	x.goBack(reason)
}

// refuseCancel refuses a cancel that comes too late, and emits the events in Refused. If one of them cannot be built, nothing changes,
// and e is refused as a whole, so that it becomes a dead letter.
func (x *decision) refuseCancel(e Event, why string) {
	events, err := x.build(x.d.cancel.refused, x.objects(nil))
	if err != nil {
		x.refuse("%s comes too late, and the event that refuses it cannot be built: %s", e.Type, err)
		return
	}
	x.fx.Events = append(x.fx.Events, events...)
	x.s.Cancel = CancelRefused
	x.moment(moments.CancelRefused, "", e.Type+": "+why)
}

// tooLate returns the reason why a cancel is refused now, or an empty text if it is accepted.
func (x *decision) tooLate() string {
	for i, st := range x.d.steps {
		switch phase := x.s.Steps[i].Phase; {
		case st.Pivot && ran(phase):
			return fmt.Sprintf("the pivot %s has begun", st.Name)
		case i == x.d.cancel.before && ran(phase):
			return fmt.Sprintf("step %s has begun", st.Name)
		case i == x.d.cancel.before && phase == Skipped:
			return fmt.Sprintf("step %s was skipped", st.Name)
		}
	}
	return ""
}

// goesBackForGood reports whether the saga goes back, and cannot go forward again by a pivot that may still succeed.
func (x *decision) goesBackForGood() bool {
	for i, st := range x.d.steps {
		if phase := x.s.Steps[i].Phase; st.Pivot && (phase == Intent || phase == Doubt && st.back == nil) {
			return false
		}
	}
	return x.s.Back
}

// actCancel applies an operator's cancel.
func (x *decision) actCancel(e Event) {
	if x.d.cancel == nil || !x.d.cancel.Operator {
		x.refuse("the definition declares no cancel by an operator: compensate the saga, or abandon it")
		return
	}
	late := x.tooLate()
	switch {
	case x.goesBackForGood():
		x.refuse("it is being compensated already")
	case late != "":
		x.refuse("the cancel comes too late: %s", late)
	default:
		x.s.Held = ""
		x.cancel("operator", orElse(e.Reason, "cancelled by an operator"))
	}
}
