package saga

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/moments"
)

// heldByDeadlines is State.Held of a saga that was parked because a payload of the deadlines that count from its start cannot be evaluated.
const heldByDeadlines = "deadlines from the start"

// armFirst schedules the deadlines that count from the saga's start. For a saga that waits for its lock, that is the time when it gets
// the lock. If a payload cannot be evaluated, armFirst schedules none and parks the saga; they are scheduled when an operator resumes it.
func (x *decision) armFirst() {
	due, err := x.deadlinesFrom(-1)
	if err != nil {
		x.s.Held = heldByDeadlines
		x.park(err.Error())
		return
	}
	if t := x.d.spec.Timeout; t > 0 {
		x.arm(TimeoutName, t, nil)
	}
	x.armAll(due)
}

// pendingDeadline is a deadline that is about to be scheduled, with its evaluated payload.
type pendingDeadline struct {
	*deadline
	payload map[string]any
}

// deadlinesFrom returns the deadlines that count from a step, or from the saga's start if step is -1. It evaluates their payloads. If one
// cannot be evaluated, it returns an error: the step, or the saga, must not begin then.
func (x *decision) deadlinesFrom(step int) (all []pendingDeadline, err error) {
	for _, dl := range x.d.deadlines {
		if dl.since != step {
			continue
		}
		payload, err := evaluate(dl.payload, x.objects(nil))
		if err != nil {
			return nil, fmt.Errorf("deadline %s: %w", dl.Name, err)
		}
		all = append(all, pendingDeadline{dl, payload})
	}
	return all, nil
}

// armAll schedules the deadlines in due.
func (x *decision) armAll(due []pendingDeadline) {
	for _, dl := range due {
		x.arm(dl.Name, dl.After, dl.payload)
	}
}

// arm schedules a deadline. If one of this name is scheduled, the new one replaces it.
func (x *decision) arm(name string, after Duration, payload map[string]any) {
	a := Armed{Name: name, At: x.now.Add(time.Duration(after)), Payload: payload}
	x.s.Deadlines = slices.DeleteFunc(x.s.Deadlines, func(b Armed) bool { return b.Name == name })
	x.insert(a)
	x.fx.Scheduled = append(x.fx.Scheduled, a)
}

// insert adds a to the deadlines, which are ordered by name.
func (x *decision) insert(a Armed) {
	at, _ := slices.BinarySearchFunc(x.s.Deadlines, a.Name, func(b Armed, name string) int { return strings.Compare(b.Name, name) })
	x.s.Deadlines = slices.Insert(x.s.Deadlines, at, a)
}

// disarm cancels a deadline, if one of this name is scheduled.
func (x *decision) disarm(name string) {
	n := len(x.s.Deadlines)
	x.s.Deadlines = slices.DeleteFunc(x.s.Deadlines, func(b Armed) bool { return b.Name == name })
	if len(x.s.Deadlines) < n {
		x.fx.Cancelled = append(x.fx.Cancelled, name)
	}
}

// fired applies a deadline that is due.
func (x *decision) fired(e Event) {
	i := slices.IndexFunc(x.s.Deadlines, func(a Armed) bool { return a.Name == e.Deadline })
	if i < 0 {
		x.ignore("the deadline %s was cancelled or met before", e.Deadline)
		return
	}
	due := x.s.Deadlines[i]
	if due.At.After(x.now) {
		x.ignore("the deadline %s is due at %s only", due.Name, due.At.Format(time.RFC3339Nano))
		return
	}
	if due.Overdue {
		x.ignore("the deadline %s waits until the saga is taken up", due.Name)
		return
	}
	x.s.Deadlines = slices.Delete(x.s.Deadlines, i, i+1)
	x.fx.Met = append(x.fx.Met, due.Name)
	switch {
	case due.Name == TimeoutName:
		x.moment(moments.DeadlineMet, "", due.Name)
		x.goBack("it took longer than " + x.d.spec.Timeout.String())
	case strings.HasSuffix(due.Name, compTimeout):
		x.compensateFailed(x.stepOf(due.Name, compTimeout), "no answer in time")
	case strings.HasSuffix(due.Name, stepTimeout):
		x.timedOut(x.stepOf(due.Name, stepTimeout))
	case e.Keep:
		x.applyOrKeep(due)
	default:
		x.apply(due)
	}
}

// applyOrKeep applies a deadline that the definition declares. If the saga cannot apply the deadline now, applyOrKeep puts it back as
// overdue, and meetOverdue tries it again later. There are two such cases:
//
//   - The deadline completes the saga, but the saga is parked, goes back, or awaits the answer to a compensation.
//   - The deadline emits an event, or ends the saga with one, that cannot be built. The saga is then parked. applyOrKeep takes back the changes
//     that the deadline has made to the steps and to the list of events, so that a later try applies the whole deadline, once.
func (x *decision) applyOrKeep(due Armed) {
	then := x.d.deadlines[x.d.deadline(due.Name)].Then
	if then == ThenComplete && (x.s.Back || x.s.Status == Parked || x.compensating()) { // a saga that goes back goes forward again if its pivot succeeds
		x.keep(due)
		x.moment(moments.DeadlineKept, "", due.Name)
		return
	}
	steps := slices.Clone(x.s.Steps)
	first, events := len(x.fx.Moments), len(x.fx.Events)
	if !x.apply(due) {
		x.s.Steps = steps
		x.fx.Moments[first].What, x.fx.Events = moments.DeadlineKept, x.fx.Events[:events]
		x.keep(due)
	}
}

// keep puts a deadline back into the state, as overdue.
func (x *decision) keep(due Armed) {
	due.Overdue = true
	x.insert(due)
	x.fx.Met = slices.DeleteFunc(x.fx.Met, func(name string) bool { return name == due.Name })
}

// meetOverdue applies the overdue deadlines, the earliest first, as long as the saga runs. It passes over a deadline that completes the
// saga, while a compensation is not answered.
func (x *decision) meetOverdue() {
	for x.s.Status == Running {
		next := -1
		for i, a := range x.s.Deadlines {
			if a.Overdue && !x.mustDelayCompletion(a) && (next < 0 || a.At.Before(x.s.Deadlines[next].At)) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		due := x.s.Deadlines[next]
		x.s.Deadlines = slices.Delete(x.s.Deadlines, next, next+1)
		x.fx.Met = append(x.fx.Met, due.Name)
		x.applyOrKeep(due)
	}
}

// timedOut applies the time-out of step i. An awaited event counts as refused. A command is in doubt then: unless the step is optional, the
// saga goes back, or is parked if the step has no compensation or a pivot is done.
func (x *decision) timedOut(i int) {
	ss, st := &x.s.Steps[i], x.d.steps[i]
	x.moment(moments.StepTimedOut, ss.Name, "no answer within "+st.Timeout.String())
	if st.send == nil {
		x.refused(i, "", fmt.Sprintf("no answer for step %s within %s", ss.Name, st.Timeout))
		return
	}
	x.doubt(i)
	reason := fmt.Sprintf("%s: no answer within %s", ss.Name, st.Timeout)
	switch {
	case x.s.Back, st.Optional:
		x.resumeUnlessStuck() // the commands that the limit of bytes has delayed follow
	case st.back == nil || x.passed():
		x.park(reason)
	default:
		x.goBack(reason)
	}
}

// deadline returns the index of a deadline that the definition declares, or -1.
func (d *Definition) deadline(name string) int {
	return slices.IndexFunc(d.deadlines, func(dl *deadline) bool { return dl.Name == name })
}

// apply applies a deadline of the definition. If one of the events that the deadline emits cannot be built, or one that the end of the saga
// emits, the saga is parked and apply returns false.
func (x *decision) apply(due Armed) bool {
	dl := x.d.deadlines[x.d.deadline(due.Name)]
	x.moment(moments.DeadlineMet, "", due.Name)
	payload := due.Payload
	if payload == nil {
		payload = map[string]any{}
	}
	if !x.emit(dl.emit, x.objects(map[string]any{"deadline": payload})) {
		return false
	}
	if dl.Then == ThenPark {
		x.s.Held = "deadline " + dl.Name
	}
	x.then(dl.Then, "deadline "+dl.Name, nil)
	return dl.Then != ThenComplete || x.s.Back || x.s.Ended()
}

func (x *decision) then(t Then, why string, emits []emit) {
	switch t {
	case ThenComplete:
		if !x.s.Back { // a saga that goes back is compensated first
			x.complete(why, emits)
		}
	case ThenCompensate:
		x.goBack(why)
	case ThenPark:
		x.park(why)
	}
}
