package saga

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Decide says what becomes of a saga when something happens, and what follows from it. It has no clock, does no I/O, rolls
// no dice and depends on no map's order: the same arguments give the same answer, for ever. So a saga's log, given to it
// event by event, gives the saga's state.
//
// s is the zero State for Started, and a state of d's else. It is not changed, nor is e. An event that changes nothing, such
// as a duplicate, gives s as it was, with Effects.Ignored; an action that cannot be done gives Effects.Refused.
func Decide(d *Definition, s State, e Event, now time.Time) (State, Effects) {
	x := &decision{d: d, s: s, now: now.UTC().Truncate(time.Microsecond)}
	x.s.Steps = slices.Clone(s.Steps)
	x.s.Deadlines = slices.Clone(s.Deadlines)
	x.s.Version++
	x.take(e)
	if x.fx.Ignored != "" || x.fx.Refused != "" {
		return s, Effects{Ignored: x.fx.Ignored, Refused: x.fx.Refused}
	}
	x.advance()
	if len(x.s.Deadlines) == 0 {
		x.s.Deadlines = nil // as it is read again
	}
	return x.s, x.fx
}

// decision is one under way.
type decision struct {
	d      *Definition
	s      State
	now    time.Time
	fx     Effects
	copied bool // s.Data is this decision's own
}

func (x *decision) ignore(format string, args ...any) { x.fx.Ignored = fmt.Sprintf(format, args...) }

func (x *decision) refuse(format string, args ...any) { x.fx.Refused = fmt.Sprintf(format, args...) }

func (x *decision) moment(what, step, why string) {
	x.fx.Moments = append(x.fx.Moments, Moment{what, step, why})
}

func (x *decision) take(e Event) {
	switch {
	case e.Kind == Started:
		x.start(e)
	case x.s.Version == 1:
		x.ignore("there is no such saga")
	case x.s.Ended() && e.Kind.Action():
		x.refuse("the saga has ended: %s", x.s.Status)
	case x.s.Ended():
		x.ignore("the saga has ended: %s", x.s.Status)
	case e.Kind.Action():
		x.act(e)
	case e.Kind == Granted:
		x.granted()
	case e.Kind == Answered:
		x.answered(e)
	case e.Kind == Observed:
		x.observed(e)
	case e.Kind == Fired:
		x.fired(e)
	default:
		x.ignore("an event of unknown kind %q", e.Kind)
	}
}

func (x *decision) start(e Event) {
	if x.s.Version != 1 {
		x.ignore("it has started already")
		if e.OtherData(x.s) {
			x.ignore("it has started already, with other data")
		}
		return
	}
	key, data, err := x.d.Start(e.Fields)
	if err != nil {
		x.refuse("%s", err)
		return
	}
	x.s = State{
		Saga: x.d.spec.Saga, Key: key, Definition: x.d.hash, Correlation: e.Correlation, StartedWith: e.DataHash, Version: 1, Status: Running, Data: data,
		StartedAt: x.now,
		Steps:     make([]StepState, len(x.d.steps)),
	}
	x.copied = true
	for i, st := range x.d.steps {
		x.s.Steps[i].Name = st.Name
	}
	if _, err := x.since(-1); err != nil {
		x.refuse("%s", err)
		return
	}
	x.moment(SagaStarted, "", "")
	if e.Locked {
		x.s.Status = Waiting
		x.moment(SagaWaiting, "", "another saga has what it locks")
		return
	}
	x.armFirst()
}

func (x *decision) granted() {
	if x.s.Status != Waiting {
		x.ignore("it waits for no lock")
		return
	}
	x.s.Status = Running
	x.moment(SagaGranted, "", "")
	x.armFirst()
}

func (x *decision) because(reason string) {
	reason = cut(reason)
	if x.s.Reason != "" && x.s.Reason != reason {
		reason = x.s.Reason + "; then " + reason
	}
	x.s.Reason = cut(reason)
}

func (x *decision) park(reason string) {
	x.because(reason)
	x.fx.Alert = reason
	x.s.Status = Parked
	x.moment(SagaParked, "", reason)
}

// takeUp lets a parked saga go on when nothing in it needs a person any more.
func (x *decision) takeUp() {
	if x.s.Status != Parked || x.s.Held != "" || len(Stuck(x.d, x.s)) > 0 {
		return
	}
	x.s.Status = Running
	if x.s.Back {
		x.s.Status = Compensating
	}
	x.moment(SagaResumed, "", "")
}

// Stuck are the steps that a parked saga cannot go on without: a person acts on them, or an answer comes after all.
func Stuck(d *Definition, s State) []string {
	var stuck []string
	for i, ss := range s.Steps {
		switch ss.Phase {
		case GivenUp, CompensateFailed:
			stuck = append(stuck, ss.Name)
		case Doubt:
			if !s.Back || d.steps[i].back == nil {
				stuck = append(stuck, ss.Name)
			}
		case Refused:
			if !s.Back {
				stuck = append(stuck, ss.Name)
			}
		}
	}
	return stuck
}

// advance goes on from what has happened until something must be waited for.
func (x *decision) advance() {
	x.meetOverdue()
	for x.s.Status == Running && x.forward() {
	}
	if x.s.Status == Compensating {
		x.backward()
	}
	if x.s.Ended() {
		for len(x.s.Deadlines) > 0 {
			x.disarm(x.s.Deadlines[0].Name)
		}
		x.s.EndedAt, x.s.Early = x.now, nil
		x.fx.Unlock = x.d.lock != nil
	}
}

// emit adds events. It returns false, and adds none, when one of them cannot be built; then the saga is parked.
func (x *decision) emit(es []emit, objects map[string]any) bool {
	before := len(x.fx.Events)
	for _, e := range es {
		fields, ok := x.fields(e.input, objects)
		if !ok {
			x.fx.Events = x.fx.Events[:before]
			return false
		}
		x.fx.Events = append(x.fx.Events, Emitted{Hop: e.Hop, Type: e.Event, Failure: e.Failure, Fields: fields})
	}
	return true
}

// fields evaluates a mapping. It says false when the saga is parked, since it cannot be.
func (x *decision) fields(fs []field, objects map[string]any) (map[string]any, bool) {
	values, err := evaluate(fs, objects)
	if err != nil {
		x.park(err.Error())
	}
	return values, err == nil
}

func evaluate(fs []field, objects map[string]any) (map[string]any, error) {
	values := make(map[string]any, len(fs))
	for _, f := range fs {
		v, err := f.is.Eval(objects)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		values[f.name] = v
	}
	return values, nil
}

// objects are what expressions see, more beside data and saga.
func (x *decision) objects(more map[string]any) map[string]any {
	all := map[string]any{"data": x.s.Data, "saga": map[string]any{
		"id": x.s.ID(), "key": x.s.Key, "reason": x.s.Reason, "compensated": x.undoneSteps(),
	}}
	for name, v := range more {
		if m, ok := v.(map[string]any); ok && m == nil {
			v = map[string]any{}
		}
		all[name] = v
	}
	return all
}

// maxReason is how long a reason is kept, in bytes.
const maxReason = 2000

func cut(s string) string {
	if len(s) <= maxReason {
		return s
	}
	return strings.ToValidUTF8(s[:maxReason], "")
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
