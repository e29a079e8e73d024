package explore

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/moments"
	"github.com/troupe-go/troupe/saga"
)

// Unseen lists the parts of a definition that no execution has used. The explorer chooses the values of variables and events from
// the values that conditions compare them with. If a condition calculates, such as data.cents * 2 > 10, or reads inside a value,
// these values may not distinguish its cases: then Unseen shows a case that was left out.
type Unseen struct {
	// Completed is true if no execution has completed the saga.
	Completed bool `json:"completed,omitempty"`
	// Steps are the names of the steps that have never begun.
	Steps []string `json:"steps,omitempty"`
	// Conditions are the paths of the conditions of steps that have always held, and of ends that have never held.
	Conditions []string `json:"conditions,omitempty"`
	// Answers are the answers that were never used, as path and event.
	Answers []string `json:"answers,omitempty"`
	// Start describes the values of variables at the start that were left out.
	Start string `json:"start,omitempty"`
}

// Any reports whether anything is unseen.
func (u Unseen) Any() bool {
	return u.Completed || len(u.Steps)+len(u.Conditions)+len(u.Answers)+len(u.Start) > 0
}

// Lines returns a sentence for each part.
func (u Unseen) Lines() (all []string) {
	if u.Completed {
		all = append(all, "no execution completes the saga")
	}
	for _, name := range u.Steps {
		all = append(all, "step "+name+" never begins")
	}
	all = append(all, u.Conditions...)
	for _, a := range u.Answers {
		all = append(all, a+" is never used")
	}
	if u.Start != "" {
		all = append(all, u.Start)
	}
	return all
}

// notes returns the parts of the definition that a decision on e uses, as paths. before and next are as Decide has them.
func (x *explorer) notes(before, next saga.State, e saga.Event, fx saga.Effects) (used []string) {
	for _, m := range fx.Moments {
		i := x.stepIndex(m.Step)
		switch {
		case m.What == moments.SagaCompleted:
			used = append(used, moments.SagaCompleted)
		case i < 0:
		case m.What == moments.StepStarted:
			used = append(used, begins(x.m.steps[i].at))
		case m.What == moments.StepSkipped && m.Why == x.m.steps[i].When:
			used = append(used, skips(x.m.steps[i].at))
		case m.What == moments.StepCompleted:
			used = append(used, x.answerOf(i, "success", x.m.steps[i].Success, m.Why, before, e)...)
		case m.What == moments.StepFailed:
			used = append(used, x.answerOf(i, "failure", x.m.steps[i].Failure, next.Steps[i].Answer, before, e)...)
		case m.What == moments.CompensationCompleted && x.m.steps[i].Compensation != nil:
			used = append(used, x.answerOf(i, "compensation.success", x.m.steps[i].Compensation.Success, m.Why, before, e)...)
		}
	}
	if fails(next, e, fx) {
		used = append(used, parksFor+fx.Alert)
	}
	used = append(used, x.cancelsBy(before, next, e)...)
	for k := range x.m.spec.Ends {
		if slices.ContainsFunc(fx.Moments, func(m saga.Moment) bool { return ended(m.What) }) && x.holds(fmt.Sprintf("ends[%d].when", k), next, saga.Event{}) {
			used = append(used, endsBy(k))
		}
	}
	return used
}

// parksFor is the prefix of the reason in a path.
const parksFor = "parks: "

// fails reports whether a decision parks the saga although no hop has failed, no time has passed and no person has acted.
func fails(next saga.State, e saga.Event, fx saga.Effects) bool {
	if fx.Alert == "" || next.Held != "" {
		return false
	}
	unsent := slices.ContainsFunc(fx.Moments, func(m saga.Moment) bool {
		return m.What == moments.CompensationFailed && e.Operation != operations[compensate] && !strings.HasSuffix(e.Deadline, ".compensate."+saga.TimeoutName)
	})
	return unsent || e.Kind == saga.Started || e.Kind == saga.Observed || e.Kind == saga.Answered && e.Outcome == success
}

func begins(step int) string { return fmt.Sprintf("steps[%d]", step) }
func skips(step int) string  { return fmt.Sprintf("steps[%d].when", step) }
func endsBy(end int) string  { return fmt.Sprintf("ends[%d]", end) }

// ended reports whether a moment is one in which an end of the definition may have been met.
func ended(what string) bool {
	return what == moments.SagaCompleted || what == moments.SagaCompensating || what == moments.SagaParked
}

// answerOf returns the path of the first answer of a list that is the event typ. If the step took an event that had been kept,
// whose fields e does not have, it returns each answer of that type.
func (x *explorer) answerOf(i int, list string, as []saga.Answer, typ string, before saga.State, e saga.Event) (paths []string) {
	for k, a := range as {
		if a.Event != typ {
			continue
		}
		path := fmt.Sprintf("steps[%d].%s[%d]", x.m.steps[i].at, list, k)
		if e.Type != typ || a.When == "" {
			paths = append(paths, path)
			if e.Type == typ {
				break
			}
			continue
		}
		if x.holds(path+".when", before, e) {
			return append(paths, path)
		}
	}
	return paths
}

func (x *explorer) holds(path string, s saga.State, e saga.Event) bool {
	expression := x.m.d.Expr(path)
	if expression == nil {
		return false
	}
	objects := map[string]any{
		expr.Now: moment, "data": s.Data, "event": e.Fields, "saga": map[string]any{"id": s.ID(), "key": s.Key, "reason": s.Reason, "compensated": []any{}},
	}
	if i := x.stepIndex(e.Step); i >= 0 && x.m.steps[i].isItem() && !x.absent(s, i) {
		step := &x.m.steps[x.m.steps[i].of]
		objects[step.ForEach.As], objects["index"] = s.Lists[step.Name].([]any)[x.m.steps[i].item], int64(x.m.steps[i].item)
	}
	holds, err := expression.Holds(objects)
	return err == nil && holds
}

// Lines returns a sentence for each part that is Unseen, and for each of Parks.
func (r Report) Lines() []string {
	all := r.Unseen.Lines()
	for _, why := range r.Parks {
		all = append(all, "a saga is parked: "+why)
	}
	return all
}

// parks returns the reasons of Report.Parks.
func (x *explorer) parks() (all []string) {
	for _, path := range slices.Sorted(maps.Keys(x.used)) {
		if why, is := strings.CutPrefix(path, parksFor); is {
			all = append(all, why)
		}
	}
	return all
}

// unseen returns the parts that no execution so far has used.
func (x *explorer) unseen() (u Unseen) {
	u.Completed, u.Start = !x.used[moments.SagaCompleted], x.m.leftOut
	answers := func(step int, list string, as []saga.Answer) {
		for k, a := range as {
			if path := fmt.Sprintf("steps[%d].%s[%d]", step, list, k); !x.used[path] {
				u.Answers = append(u.Answers, path+": "+a.Event)
			}
		}
	}
	for i := range x.m.spec.Steps {
		s := &x.m.steps[i]
		if !x.used[begins(i)] {
			u.Steps = append(u.Steps, s.Name)
			continue // its answers are unseen as well
		}
		if s.When != "" && !x.used[skips(i)] {
			u.Conditions = append(u.Conditions, fmt.Sprintf("steps[%d].when always holds: %s", i, s.When))
		}
		answers(i, "success", s.Success)
		answers(i, "failure", s.Failure)
		if s.Compensation != nil {
			answers(i, "compensation.success", s.Compensation.Success)
		}
	}
	for k, e := range x.m.spec.Ends {
		if !x.used[endsBy(k)] {
			u.Conditions = append(u.Conditions, fmt.Sprintf("ends[%d].when never holds: %s", k, e.When))
		}
	}
	for k, a := range cancelEvents(x.m.spec) {
		if path := cancelsWith(k); !x.used[path] {
			u.Answers = append(u.Answers, path+": "+a.Event)
		}
	}
	return u
}
