package saga

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/moments"
)

// Decide returns the state of a saga after the event e, and the effects of e. It has no clock, does no I/O, uses no random numbers and
// does not depend on the order of a map: the same arguments always give the same result. So a saga's log, applied event by event, gives
// the saga's state.
//
// s is the zero State if e is Started, and else a state of d. Decide changes neither s nor e.
//
// If e changes nothing, such as a duplicate, Decide returns s unchanged, with the reason in Effects.Ignored. Decide also returns s
// unchanged, with the reason in Effects.Refused, for an action that cannot be done, a start that is not valid,
// and an answer whose effect can no longer be compensated.
func Decide(d *Definition, s State, e Event, now time.Time) (State, Effects) {
	x := &decision{d: d.withItems(s), s: s, now: now.UTC().Truncate(time.Microsecond), limit: e.Limit}
	x.s.Steps = slices.Clone(s.Steps)
	x.s.Deadlines = slices.Clone(s.Deadlines)
	x.s.Version++
	x.take(e)
	if x.fx.Ignored != "" || x.fx.Refused != "" {
		return s, Effects{Ignored: x.fx.Ignored, Refused: x.fx.Refused, Early: x.fx.Early}
	}
	x.advance()
	if len(x.s.Deadlines) == 0 {
		x.s.Deadlines = nil // a state that is read from JSON has nil there
	}
	x.fx.Size = x.sent + size(e.Fields)
	for _, emitted := range x.fx.Events {
		x.fx.Size += size(emitted.Fields)
	}
	return x.s, x.fx
}

// A decision holds the state and the effects while Decide builds them.
type decision struct {
	d      *Definition
	s      State
	now    time.Time
	fx     Effects
	copied bool // s.Data belongs to this decision and may be changed
	limit  int  // Event.Limit
	sent   int  // approximate bytes of the bodies of fx.Commands as JSON
	full   bool // a command was not sent, since it has no room after the ones in fx.Commands
}

func (x *decision) ignore(format string, args ...any) { x.fx.Ignored = fmt.Sprintf(format, args...) }

func (x *decision) refuse(format string, args ...any) { x.fx.Refused = fmt.Sprintf(format, args...) }

func (x *decision) moment(what, step, why string) {
	x.fx.Moments = append(x.fx.Moments, Moment{what, step, cut(why)})
}

// take applies e, or ignores or refuses it.
func (x *decision) take(e Event) {
	switch {
	case e.Kind == Started:
		x.start(e)
	case x.s.Version == 1:
		x.ignore("there is no such saga")
	case x.s.Ended() && e.Kind.Action():
		x.refuse("the saga has ended: %s", x.s.Status)
	case x.tookEffectElsewhere(e):
		x.refuseElsewhere(e)
	case x.s.Ended():
		x.ended(e)
	case e.Kind.Action():
		x.act(e)
	case e.Kind == Granted:
		x.granted()
	case e.Kind == Answered && x.fromOtherHop(e):
		x.refuseOtherHop(e)
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
	if _, err := x.deadlinesFrom(-1); err != nil {
		x.refuse("%s", err)
		return
	}
	x.moment(moments.SagaStarted, "", "")
	if e.Locked {
		x.s.Status = Waiting
		x.moment(moments.SagaWaiting, "", "another saga holds its lock")
		return
	}
	x.armFirst()
}

// granted lets a saga that waits for its lock begin.
func (x *decision) granted() {
	if x.s.Status != Waiting {
		x.ignore("it waits for no lock")
		return
	}
	x.s.Status = Running
	x.moment(moments.SagaGranted, "", "")
	x.armFirst()
}

// because adds reason to the stored reasons of the saga.
func (x *decision) because(reason string) {
	reason = cut(reason)
	if x.s.Reason != "" && x.s.Reason != reason {
		reason = x.s.Reason + "; then " + reason
	}
	x.s.Reason = cut(reason)
}

func (x *decision) park(reason string) {
	reason = cut(reason)
	x.because(reason)
	x.fx.Alert = reason
	x.s.Status = Parked
	x.moment(moments.SagaParked, "", reason)
}

// resumeUnlessStuck resumes a parked saga, unless something in it still needs an operator.
func (x *decision) resumeUnlessStuck() {
	if x.s.Status != Parked || x.s.Held != "" || len(Stuck(x.d, x.s)) > 0 {
		return
	}
	x.s.Status = Running
	if x.s.Back {
		x.s.Status = Compensating
	}
	x.moment(moments.SagaResumed, "", "")
}

// Stuck returns the names of the steps that keep a parked saga from continuing. Each of them needs an action of an operator, or its
// late answer.
func Stuck(d *Definition, s State) []string {
	d = d.withItems(s)
	var stuck []string
	for i, ss := range s.Steps {
		optional := d.steps[i].Optional
		switch ss.Phase {
		case GivenUp, CompensateFailed:
			stuck = append(stuck, ss.Name)
		case Doubt:
			if !optional && (!s.Back || d.steps[i].back == nil) {
				stuck = append(stuck, ss.Name)
			}
		case Refused:
			if !optional && !s.Back {
				stuck = append(stuck, ss.Name)
			}
		}
	}
	return stuck
}

// advance moves the saga on until it waits for an event or has ended.
func (x *decision) advance() {
	if x.s.Status == Running {
		x.tolerateFailed()
	}
	x.meetOverdue()
	for x.s.Status == Running && x.forward() {
	}
	if x.s.Status == Compensating {
		x.backward()
	}
	x.settleItems()
	if x.s.Ended() {
		for len(x.s.Deadlines) > 0 {
			x.disarm(x.s.Deadlines[0].Name)
		}
		x.s.EndedAt = x.now
		x.fx.Unlock = x.d.lock != nil
	}
}

// emit adds events to the effects. If one of them cannot be built, emit adds none, parks the saga and returns false.
func (x *decision) emit(es []emit, objects map[string]any) bool {
	events, err := x.build(es, objects)
	if err != nil {
		x.park(err.Error())
		return false
	}
	x.fx.Events = append(x.fx.Events, events...)
	return true
}

func (x *decision) build(es []emit, objects map[string]any) ([]Emitted, error) {
	events := make([]Emitted, 0, len(es))
	for _, e := range es {
		fields, err := evaluate(e.input, objects)
		if err != nil {
			return nil, err
		}
		if err := x.fitsMessage(fields); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Event, err)
		}
		events = append(events, Emitted{Path: e.path, Hop: e.Hop, Type: e.Event, Failure: e.Failure, Fields: fields})
	}
	return events, nil
}

// fields evaluates the expressions in fs. If one of them fails, fields parks the saga and returns false.
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

// objects returns the objects that expressions can read: now, data, saga and the objects in more.
func (x *decision) objects(more map[string]any) map[string]any {
	all := map[string]any{expr.Now: x.now, "data": x.s.Data, "saga": map[string]any{
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

// maxReason limits the length of a stored reason, in bytes.
const maxReason = 2000

func cut(s string) string {
	s = strings.ReplaceAll(s, "\x00", "\uFFFD") // a reason may be a text of an event, and Postgres cannot store a NUL
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
