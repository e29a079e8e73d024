package explore

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// moment is the time of everything. Deadlines are stored as due from the start: any that is armed may fire.
var moment = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// command is a message to a participant.
type command struct {
	step, op int
	epoch    uint8
	doubt    bool
	redriven bool
}

// event is an input of Decide. If it is an answer, the other fields identify it.
type event struct {
	saga.Event
	step, op int
	reply    uint8
	epoch    uint8
}

// instance is a state of the saga, with what the search needs of it often.
type instance struct {
	state     saga.State // with all items of the model
	decided   saga.State // the same state as Decide returned it
	decisions []*outcome // by event
	ended     bool
	waits     []bool  // by step: its answer, or its compensation's, is awaited and no deadline is armed for it
	refused   []int   // steps that are refused: they have had no effect and must have none
	fires     []armed // deadlines
}

type armed struct {
	event uint16
	name  string
}

// outcome is a decision, computed once: Decide is pure.
type outcome struct {
	next     uint32
	sends    []uint16
	fx       saga.Effects
	nothing  bool   // the event was ignored or refused
	observed bool   // the event is an awaited one
	problem  string // the invariant that it breaks
	used     []string
	noted    bool // used was added to the explorer's
}

// early reports that the event is an awaited one, which a step that has not begun will await.
func (o *outcome) early() bool { return o.fx.Early && o.observed }

// decide returns the cached decision, or makes it.
func (x *explorer) decide(s uint32, e uint16) *outcome {
	in := x.sagas[s]
	for len(in.decisions) <= int(e) {
		in.decisions = append(in.decisions, nil)
	}
	if in.decisions[e] == nil {
		in.decisions[e] = x.decision(in.decided, x.events[e].Event)
	}
	return in.decisions[e]
}

func (x *explorer) decision(s saga.State, e saga.Event) *outcome {
	next, fx := x.cfg.Decide(x.m.d, s, e, moment)
	again, fxAgain := x.cfg.Decide(x.m.d, s, e, moment)
	o := &outcome{fx: fx, nothing: fx.Ignored != "" || fx.Refused != "", observed: e.Kind == saga.Observed}
	o.problem = x.broken(x.withItems(s), x.withItems(next), fx)
	o.used = x.notes(x.withItems(s), x.withItems(next), e, fx)
	if !reflect.DeepEqual(next, again) || !reflect.DeepEqual(fx, fxAgain) {
		o.problem = "the same arguments decide differently"
	}
	for _, c := range fx.Commands {
		i := x.stepIndex(c.Step)
		if i < 0 {
			o.problem = fmt.Sprintf("a command is sent for a step %q, which there is not", c.Step)
			continue
		}
		op := forward
		if c.Operation == operations[compensate] {
			op = compensate
		}
		o.sends = append(o.sends, x.command(command{step: i, op: op, epoch: uint8(min(c.Epoch, maxEpoch)), doubt: c.Doubt}))
	}
	o.next = x.instance(next)
	return o
}

// broken returns the invariant that a decision breaks, "" if none.
func (x *explorer) broken(s, next saga.State, fx saga.Effects) string {
	if fx.Ignored != "" || fx.Refused != "" {
		if !reflect.DeepEqual(s, next) {
			return "an ignored or refused event has changed the saga"
		}
		return ""
	}
	if s.Ended() {
		return fmt.Sprintf("the saga had ended as %s, and goes on", s.Status)
	}
	if next.Version != s.Version+1 {
		return fmt.Sprintf("the version was %d and is %d: want one more", s.Version, next.Version)
	}
	if next.Ended() && len(next.Deadlines) > 0 {
		return fmt.Sprintf("the saga ended as %s, and the deadline %s is armed", next.Status, next.Deadlines[0].Name)
	}
	for _, dl := range next.Deadlines {
		if step, op := x.deadlineOf(dl.Name); step >= 0 && next.Steps[step].Phase != awaitedPhase[op] {
			return fmt.Sprintf("the deadline %s is armed, and step %s is %s", dl.Name, next.Steps[step].Name, next.Steps[step].Phase)
		}
	}
	if next.Status == saga.Parked && s.Status != saga.Parked && fx.Alert == "" {
		return "the saga is parked without an alert"
	}
	if back := slices.IndexFunc(fx.Commands, func(c saga.Send) bool {
		return c.Operation == operations[compensate] && !x.tolerated(next, c.Step)
	}); back >= 0 {
		for i, st := range x.m.steps {
			if st.Pivot && !st.undoable() && next.Steps[i].Phase == saga.Done {
				return fmt.Sprintf("after the pivot %s, step %s is compensated", st.Name, fx.Commands[back].Step)
			}
		}
	}
	if next.Status == saga.Completed && !x.m.early {
		for _, ss := range next.Steps {
			if ss.Phase != saga.Done && ss.Phase != saga.Skipped && !ss.Tolerated {
				return fmt.Sprintf("the saga is completed, and step %s is %s", ss.Name, orWaiting(ss.Phase))
			}
		}
	}
	if problem := x.brokenOptional(s, next); problem != "" {
		return problem
	}
	if problem := x.brokenForward(s, next); problem != "" {
		return problem
	}
	if problem := x.brokenItems(s, next); problem != "" {
		return problem
	}
	if problem := x.brokenCancel(s, next, fx); problem != "" {
		return problem
	}
	if next.Status == saga.Completed && next.Back {
		return "the saga is completed on its way back"
	}
	return ""
}

// awaitedPhase is the phase of a step whose answer is awaited, by operation.
var awaitedPhase = [2]saga.Phase{saga.Intent, saga.CompensateIntent}

func orWaiting(p saga.Phase) saga.Phase {
	if p == saga.StepWaiting {
		return "waiting"
	}
	return p
}

// deadlineOf returns the step and the operation whose answer a deadline bounds; step is -1 if it bounds no answer.
func (x *explorer) deadlineOf(name string) (step, op int) {
	step, op = -1, forward
	if of, ok := strings.CutSuffix(name, ".compensate."+saga.TimeoutName); ok {
		return x.stepIndex(of), compensate
	}
	if of, ok := strings.CutSuffix(name, "."+saga.TimeoutName); ok {
		step = x.stepIndex(of)
	}
	return step, op
}

func (x *explorer) stepIndex(name string) int {
	return slices.IndexFunc(x.m.steps, func(s step) bool { return s.Name == name })
}

// instance returns the index of s, without the parts that distinguish otherwise equal sagas: counts, times, and texts for
// people.
func (x *explorer) instance(s saga.State) uint32 {
	s.Version, s.Reason, s.StartedAt, s.EndedAt = min(s.Version, 1), "", moment, time.Time{}
	s.Steps = slices.Clone(s.Steps)
	for i := range s.Steps {
		s.Steps[i].Started, s.Steps[i].Answer = min(s.Steps[i].Started, 1), ""
		s.Steps[i].Sent, s.Steps[i].BackSent = time.Time{}, time.Time{}
	}
	s.Deadlines = slices.Clone(s.Deadlines)
	for i := range s.Deadlines {
		s.Deadlines[i].At = moment
	}
	key, err := json.Marshal(s)
	if err != nil {
		panic(err) // maps, texts and numbers
	}
	if i, known := x.sagaIndex[string(key)]; known {
		return i
	}
	in := &instance{state: x.withItems(s), decided: s, ended: s.Ended(), waits: make([]bool, len(x.m.steps))}
	for i, ss := range in.state.Steps {
		awaits := ss.Phase == saga.CompensateIntent || ss.Phase == saga.Intent && x.m.steps[i].hop[forward] >= 0
		in.waits[i] = awaits && !in.ended
		if ss.Phase == saga.Refused && s.Status != saga.Abandoned && x.m.steps[i].hop[forward] >= 0 {
			in.refused = append(in.refused, i)
		}
	}
	for _, dl := range s.Deadlines {
		if step, _ := x.deadlineOf(dl.Name); step >= 0 {
			in.waits[step] = false
		}
		if !dl.Overdue {
			in.fires = append(in.fires, armed{x.event(event{Event: saga.Event{Kind: saga.Fired, Deadline: dl.Name, Keep: true}}), dl.Name})
		}
	}
	i := uint32(len(x.sagas))
	x.sagas, x.sagaIndex[string(key)] = append(x.sagas, in), i
	return i
}

// event returns the index of e.
func (x *explorer) event(e event) uint16 {
	key := fmt.Sprintf("%d %d %d %d %s %s %s %s %t %t %v", e.step, e.op, e.reply, e.epoch, e.Kind, e.Hop, e.Type+e.Deadline, e.Step,
		e.Happened, e.Locked, e.Fields)
	if i, known := x.eventIndex[key]; known {
		return i
	}
	if e.Kind == saga.Observed {
		e.Message = fmt.Sprintf("m-%d", len(x.events))
	}
	i := uint16(len(x.events))
	x.events, x.eventIndex[key] = append(x.events, e), i
	return i
}

// answer returns the index of the event by which a participant answers c.
func (x *explorer) answer(c command, reply uint8) uint16 {
	at := ((c.step*2+c.op)*256+int(reply))*(maxEpoch+1) + int(c.epoch)
	if i, known := x.answers[at]; known {
		return i
	}
	s, r := &x.m.steps[c.step], x.m.steps[c.step].replies[c.op][reply]
	i := x.event(event{step: c.step, op: c.op, reply: reply, epoch: c.epoch, Event: saga.Event{
		Kind: saga.Answered, Step: s.Name, Operation: operations[c.op], Epoch: int(c.epoch), Outcome: r.outcome,
		Hop: x.m.hops[s.hop[c.op]], Type: r.typ, Fields: r.fields,
	}})
	x.answers[at] = i
	return i
}

// command returns the index of c.
func (x *explorer) command(c command) uint16 {
	if i, known := x.commandIndex[c]; known {
		return i
	}
	i := uint16(len(x.commands))
	x.commands, x.commandIndex[c] = append(x.commands, c), i
	return i
}
