package saga

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/moments"
)

// forward begins or skips each step whose needs are decided, and completes the saga when no step is left. If it returns true, it has
// changed the saga, and must be called again.
func (x *decision) forward() (changed bool) {
	if !x.tolerateFailed() {
		return false
	}
	if ended, waits := x.endsEarly(); ended || waits {
		return ended
	}
	open := false
	for i, st := range x.d.steps {
		if p := x.s.Steps[i].Phase; p == Intent || p == CompensateIntent {
			open = true
		}
		if st.each != nil && x.s.Steps[i].Phase == Intent {
			began, ok := x.beginItems(i)
			if !ok {
				return false
			}
			changed = changed || began
			continue
		}
		if x.s.Steps[i].Phase != StepWaiting || st.of >= 0 {
			continue
		}
		switch x.join(st) {
		case joinReady:
			if !x.begin(i) {
				return false
			}
			if st.each != nil {
				return true // its items are further steps from now on
			}
			changed = true
		case joinImpossible:
			x.skip(i, "a step that it needs was not done")
			changed = true
		case quorumMissed:
			x.refused(i, "", fmt.Sprintf("fewer than %d of %s succeeded", st.AtLeast, strings.Join(st.Needs, ", ")))
			return true
		default:
			open = true
		}
	}
	switch {
	case changed || x.parkUnfindable():
	case !open:
		x.complete("", nil)
	}
	return changed
}

type joined int

const (
	joinWaits joined = iota
	joinReady
	joinImpossible
	quorumMissed // the quorum of the step cannot be reached
)

// join reports whether a step can begin, waits for steps that it needs, or can never begin.
func (x *decision) join(st *step) joined {
	done, skipped, failed := 0, 0, 0
	for _, n := range st.needs {
		switch ss := x.s.Steps[n]; {
		case ss.Phase == Done:
			done++
		case ss.Phase == Skipped:
			skipped++
		case ss.Tolerated:
			failed++
		}
	}
	all := len(st.needs)
	over := done+skipped+failed == all
	switch {
	case all == 0:
		return joinReady
	case all-skipped-failed < st.AtLeast:
		return quorumMissed
	case st.AtLeast > 0:
		return when(over)
	case st.Join == All && skipped > 0:
		return joinImpossible
	case st.Join == All:
		return when(over)
	case over && done == 0:
		return joinImpossible
	case st.Join == First:
		return when(done > 0)
	}
	return when(over)
}

func when(holds bool) joined {
	if holds {
		return joinReady
	}
	return joinWaits
}

func (x *decision) skip(i int, why string) {
	x.s.Steps[i].Phase = Skipped
	x.moment(moments.StepSkipped, x.s.Steps[i].Name, why)
}

// begin starts step i, or skips the step if its condition does not hold. It returns false if the saga is parked.
func (x *decision) begin(i int) bool {
	st, ss := x.d.steps[i], &x.s.Steps[i]
	if st.when != nil {
		holds, err := st.when.Holds(x.objects(nil))
		if err != nil {
			x.park(fmt.Sprintf("%s: when: %s", st.Name, err))
			return false
		}
		if !holds {
			x.skip(i, st.When)
			return true
		}
	}
	if variable, missing := x.cannotBeFound(st); missing {
		x.park(fmt.Sprintf("%s: its event finds the saga by data.%s, which has no value", st.Name, variable))
		return false
	}
	due, err := x.deadlinesFrom(i)
	if err != nil {
		x.park(fmt.Sprintf("%s: %s", st.Name, err))
		return false
	}
	if st.each != nil {
		return x.beginEach(i, due)
	}
	if st.send != nil && !x.send(i, st.send, forwardOp) {
		return false
	}
	ss.Started = x.s.Version
	if st.send != nil {
		ss.Sent = x.now
	}
	x.armAll(due)
	x.moment(moments.StepStarted, st.Name, "")
	if st.waitsForNothing() {
		x.done(i, "")
		return true
	}
	ss.Phase = Intent
	if st.Timeout > 0 {
		x.arm(st.Name+stepTimeout, st.Timeout, nil)
	}
	return true
}

// cannotBeFound reports whether no event of st can find the saga, so that the step would wait for ever. It returns the first variable
// that has no value.
func (x *decision) cannotBeFound(st *step) (variable string, missing bool) {
	return st.findsNone(func(variable string) bool {
		i, known := x.d.byName[x.d.setters[variable]]
		return expr.Text(x.s.Data[variable]) == "" && !(known && x.s.Steps[i].Phase.maySet())
	})
}

// parkUnfindable parks the saga if a step waits for an event that cannot find the saga any more, and reports whether it parked the saga.
// This happens if a parallel step was answered without the value by which the event finds the saga, or if an operator has set the variable
// to an empty value. A step with a time-out does not park the saga: the time-out ends the step, as if its event had not come.
func (x *decision) parkUnfindable() bool {
	for i, st := range x.d.steps {
		if x.s.Steps[i].Phase != Intent || st.Timeout > 0 {
			continue
		}
		if variable, missing := x.cannotBeFound(st); missing {
			x.park(fmt.Sprintf("%s: its event finds the saga by data.%s, which has no value", st.Name, variable))
			return true
		}
	}
	return false
}

// findsNone reports whether st awaits events, and each of them finds the saga by a variable that is missing. It returns the first such
// variable. missing reports whether a variable is unset, null or empty, and no step can set it any more.
func (s *step) findsNone(missing func(variable string) bool) (variable string, none bool) {
	if s.send != nil {
		return "", false
	}
	for _, a := range slices.Concat(s.success, s.failure) {
		if a.By == nil || !missing(a.By.Variable) {
			return "", false
		}
		variable = orElse(variable, a.By.Variable)
	}
	return variable, variable != ""
}

// maySet reports whether a step in phase p has not begun or may still be answered, so that it may set its variables.
func (p Phase) maySet() bool { return p == StepWaiting || p == Intent || p == GivenUp || p == Doubt }

// maxSent limits the size of the commands of one decision as JSON, in bytes. Each of the 100 items of a step may send a variable of megabytes, and
// decoded values may have ten times their size.
const maxSent = 32 << 20

// send adds a command of step i to the effects. If the command cannot be built, send parks the saga and returns false.
func (x *decision) send(i int, c *command, operation string) bool {
	st, ss := x.d.steps[i], x.s.Steps[i]
	out := Send{Step: st.Name, Operation: operation, Epoch: ss.Epoch, First: ss.First, Hop: c.hop, Type: c.typ, Retry: c.retry, Since: ss.Sent}
	if operation == compensateOp {
		out.Epoch, out.First = ss.BackEpoch, ss.BackFirst
		out.Doubt = ss.Doubt && c.hop == st.send.hop
		if !out.Doubt {
			out.Since = ss.BackSent
		}
	}
	if out.Since.IsZero() && (out.Epoch > 0 || out.Doubt) {
		out.Since = x.s.StartedAt
	}
	fields, ok := x.fields(c.input, x.objectsOf(i, nil))
	if !ok {
		return false
	}
	if x.sent += size(fields); x.sent > maxSent {
		x.full = len(x.fx.Commands) > 0
		x.park(fmt.Sprintf("%s: the commands that are sent at once would have more than %d MiB: send less of the variables, or fewer items at once",
			st.Name, maxSent>>20))
		return false
	}
	out.Fields = fields
	if c.endpoint != nil {
		path, err := fill(c.endpoint, x.holesOf(i))
		if err != nil {
			x.park(fmt.Sprintf("%s: %s", st.Name, err))
			return false
		}
		out.Fields = map[string]any{"method": c.method, "path": path}
		if len(c.input) > 0 {
			out.Fields["body"] = fields
		}
	}
	if err := x.fitsMessage(out.Fields); err != nil {
		x.park(fmt.Sprintf("%s: %s: %s", st.Name, c.typ, err))
		return false
	}
	x.fx.Commands = append(x.fx.Commands, out)
	return true
}

// fitsMessage returns an error if a message with these fields has more bytes than Event.Limit.
func (x *decision) fitsMessage(fields map[string]any) error {
	const growth = 6 // of a character that JSON escapes
	if x.limit == 0 || size(fields)*growth <= x.limit {
		return nil
	}
	text, err := json.Marshal(fields)
	if err == nil && len(text) > x.limit {
		return fmt.Errorf("it would have %d bytes, and a message has at most %d: send less of the variables", len(text), x.limit)
	}
	return nil // the writer of the message reports the error
}

// endsEarly applies the first of the definition's ends whose condition holds. ended reports that an end was applied, or that the saga was
// parked because a condition cannot be evaluated. waits reports that the end completes the saga and was not applied, since it waits until
// the compensations of optional steps are answered.
func (x *decision) endsEarly() (ended, waits bool) {
	for _, e := range x.d.ends {
		parks := e.Then == ThenPark || e.Then == ThenCompensate && x.passed()
		if parks && slices.Contains(x.s.Passed, e.End.When) {
			continue
		}
		objects := x.objects(nil)
		holds, err := e.when.Holds(objects)
		if errors.Is(err, expr.ErrUnset) {
			continue
		}
		if err != nil {
			x.park(fmt.Sprintf("ends: %s", err))
			return true, false
		}
		if !holds {
			continue
		}
		if e.Then == ThenComplete && x.compensating() {
			return false, true
		}
		why := e.End.When
		if e.reason != nil {
			if v, err := e.reason.Eval(objects); err == nil {
				if text, ok := v.(string); ok {
					why = text
				}
			}
		}
		if parks {
			x.s.Held = e.End.When
		}
		x.then(e.Then, why, e.emit)
		return true, false
	}
	return false, false
}

// complete ends the saga as completed. Steps that wait for an event are skipped.
func (x *decision) complete(why string, emits []emit) {
	if x.s.Ended() {
		return
	}
	x.s.Reason = cut(why)
	if emits == nil {
		emits = x.d.completed
	}
	if !x.emit(emits, x.objects(nil)) {
		return
	}
	for i := range x.s.Steps {
		if p := x.s.Steps[i].Phase; p == StepWaiting || p == Intent && x.d.steps[i].send == nil {
			x.s.Steps[i].Phase = Skipped
		}
	}
	x.s.Status = Completed
	x.moment(moments.SagaCompleted, "", why)
}
