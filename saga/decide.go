package saga

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/expr"
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
		return
	}
	key, data, err := x.d.Start(e.Fields)
	if err != nil {
		x.refuse("%s", err)
		return
	}
	x.s = State{
		Saga: x.d.spec.Saga, Key: key, Definition: x.d.hash, Version: 1, Status: Running, Data: data, StartedAt: x.now,
		Steps: make([]StepState, len(x.d.steps)),
	}
	x.copied = true
	for i, st := range x.d.steps {
		x.s.Steps[i].Name = st.Name
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

// armFirst schedules what counts from the start.
func (x *decision) armFirst() {
	if t := x.d.spec.Timeout; t > 0 {
		x.arm(TimeoutName, t, nil)
	}
	x.armSince(-1)
}

func (x *decision) armSince(step int) {
	for _, dl := range x.d.deadlines {
		if dl.since != step {
			continue
		}
		payload, ok := x.fields(dl.payload, x.objects(nil))
		if !ok {
			return
		}
		x.arm(dl.Name, dl.After, payload)
	}
}

func (x *decision) arm(name string, after Duration, payload map[string]any) {
	a := Armed{Name: name, At: x.now.Add(time.Duration(after)), Payload: payload}
	x.s.Deadlines = slices.DeleteFunc(x.s.Deadlines, func(b Armed) bool { return b.Name == name })
	at, _ := slices.BinarySearchFunc(x.s.Deadlines, name, func(b Armed, name string) int { return strings.Compare(b.Name, name) })
	x.s.Deadlines = slices.Insert(x.s.Deadlines, at, a)
	x.fx.Scheduled = append(x.fx.Scheduled, a)
}

func (x *decision) disarm(name string) {
	n := len(x.s.Deadlines)
	x.s.Deadlines = slices.DeleteFunc(x.s.Deadlines, func(b Armed) bool { return b.Name == name })
	if len(x.s.Deadlines) < n {
		x.fx.Cancelled = append(x.fx.Cancelled, name)
	}
}

// answered takes what a hop made of a command or a compensation.
func (x *decision) answered(e Event) {
	i, ok := x.d.byName[e.Step]
	if !ok {
		x.ignore("there is no step %q", e.Step)
		return
	}
	if e.Operation == compensateOp {
		x.undone(i, e)
		return
	}
	st, ss := x.d.steps[i], &x.s.Steps[i]
	switch ss.Phase {
	case Intent, GivenUp, Doubt:
	default:
		x.late(i, e)
		return
	}
	switch e.Outcome {
	case "success":
		if !x.set(st.success, e) {
			return
		}
		x.done(i, e.Type)
	case "failure":
		reason := e.Type
		if a := x.match(st.failure, e); a != nil {
			if !x.store(a, e) {
				return
			}
			reason = x.reasonOf(a, e)
		}
		x.refused(i, e.Type, reason)
	case "exhausted":
		x.givenUp(i, e)
	default:
		x.ignore("an answer without an outcome")
	}
}

// late is an answer that nobody waits for. One that says that a call which was in doubt took effect leaves what it gave,
// since its compensation may be sent again.
func (x *decision) late(i int, e Event) {
	ss := &x.s.Steps[i]
	if ss.Phase == CompensateIntent || ss.Phase == CompensateFailed {
		if a := x.match(x.d.steps[i].success, e); ss.Doubt && e.Outcome == "success" && a != nil && len(a.set) > 0 && x.unset(a) {
			x.store(a, e)
			return
		}
	}
	x.ignore("step %s is %s: its answer %s is late or was given before", ss.Name, phaseText(ss.Phase), e.Type)
}

func (x *decision) unset(a *answer) bool {
	for _, f := range a.set {
		if _, set := x.s.Data[f.name]; set {
			return false
		}
	}
	return true
}

func phaseText(p Phase) string {
	if p == StepWaiting {
		return "waiting"
	}
	return string(p)
}

func (x *decision) done(i int, event string) {
	ss := &x.s.Steps[i]
	ss.Phase, ss.Doubt, ss.Answer = Done, false, event
	x.disarm(ss.Name + stepTimeout)
	for _, dl := range x.d.deadlines {
		if slices.Contains(dl.until, i) {
			x.disarm(dl.Name)
		}
	}
	x.moment(StepCompleted, ss.Name, event)
	if x.d.steps[i].Pivot && x.s.Back { // nothing was undone yet: backward waits for a pivot
		x.s.Back = false
		if x.s.Status == Compensating {
			x.s.Status = Running
		}
		if stuck := Stuck(x.d, x.s); len(stuck) > 0 {
			x.park(fmt.Sprintf("%s is done, and there is no way back, but %s is not", ss.Name, stuck[0]))
			return
		}
	}
	x.takeUp()
}

func (x *decision) refused(i int, event, reason string) {
	ss := &x.s.Steps[i]
	ss.Phase, ss.Doubt, ss.Answer = Refused, false, event
	x.disarm(ss.Name + stepTimeout)
	x.moment(StepFailed, ss.Name, reason)
	x.takeUp()
	x.goBack(reason)
}

func (x *decision) givenUp(i int, e Event) {
	ss := &x.s.Steps[i]
	if ss.Phase == GivenUp {
		x.ignore("step %s is exhausted already", ss.Name)
		return
	}
	ss.Answer = e.Type
	x.disarm(ss.Name + stepTimeout)
	reason := orElse(e.Reason, "its hop gave up")
	x.moment(StepExhausted, ss.Name, reason)
	switch {
	case x.s.Back: // it has had no effect, and may have when it is redriven
		x.doubt(i)
	case x.d.steps[i].Exhausted == CompensateThen && !x.passed():
		x.doubt(i)
		x.goBack(fmt.Sprintf("%s: %s", ss.Name, reason))
	default:
		ss.Phase = GivenUp
		x.park(fmt.Sprintf("%s: %s", ss.Name, reason))
	}
}

// doubt notes that nobody knows whether a command took effect or will.
func (x *decision) doubt(i int) { x.s.Steps[i].Phase, x.s.Steps[i].Doubt = Doubt, true }

// undone takes what became of a compensation.
func (x *decision) undone(i int, e Event) {
	ss := &x.s.Steps[i]
	if ss.Phase != CompensateIntent && ss.Phase != CompensateFailed {
		x.ignore("step %s is %s: the answer %s to its compensation is late or was given before", ss.Name, phaseText(ss.Phase), e.Type)
		return
	}
	if e.Outcome == "success" {
		x.restored(i, e.Type)
		return
	}
	if ss.Phase == CompensateFailed {
		x.ignore("the compensation of step %s has failed already", ss.Name)
		return
	}
	x.compensateFailed(i, orElse(e.Reason, e.Type))
}

func (x *decision) restored(i int, event string) {
	ss := &x.s.Steps[i]
	ss.Phase, ss.Answer = Undone, event
	x.disarm(ss.Name + compTimeout)
	x.moment(CompensationCompleted, ss.Name, event)
	x.takeUp()
}

func (x *decision) compensateFailed(i int, reason string) {
	ss := &x.s.Steps[i]
	ss.Phase = CompensateFailed
	x.disarm(ss.Name + compTimeout)
	x.moment(CompensationFailed, ss.Name, reason)
	x.park(fmt.Sprintf("%s: its compensation failed: %s", ss.Name, reason))
}

// observed takes an event that somebody waits for.
func (x *decision) observed(e Event) {
	took := false
	for i, st := range x.d.steps {
		if st.send == nil && x.s.Steps[i].Phase == Intent && x.observe(i, e) {
			took = true
		}
	}
	switch {
	case took:
	case !x.d.awaitsLater(x.s, e):
		x.ignore("nothing waits for %s of %s", e.Type, e.Hop)
	case e.Message != "" && slices.ContainsFunc(x.s.Early, func(b Event) bool { return b.Message == e.Message }):
		x.ignore("%s of %s is kept already", e.Type, e.Hop)
	case len(x.s.Early) == maxEarly:
		x.ignore("%s of %s comes before it is awaited, like %d others", e.Type, e.Hop, maxEarly)
	default:
		x.s.Early = append(slices.Clip(x.s.Early), e)
	}
}

// maxEarly is how many events are kept until they are awaited.
const maxEarly = 64

// observe takes e for a step that waits, if it is for that one.
func (x *decision) observe(i int, e Event) bool {
	st := x.d.steps[i]
	if a := x.match(st.success, e); a != nil {
		if x.store(a, e) {
			x.done(i, e.Type)
		}
		return true
	}
	if a := x.match(st.failure, e); a != nil {
		if x.store(a, e) {
			x.refused(i, e.Type, x.reasonOf(a, e))
		}
		return true
	}
	return false
}

// awaitsLater says whether a step that has not begun waits for e.
func (d *Definition) awaitsLater(s State, e Event) bool {
	for i, st := range d.steps {
		if st.send != nil || s.Steps[i].Phase != StepWaiting {
			continue
		}
		for _, a := range slices.Concat(st.success, st.failure) {
			if a.Hop == e.Hop && a.Event == e.Type {
				return true
			}
		}
	}
	return false
}

// match finds the answer that e is.
func (x *decision) match(as []*answer, e Event) *answer {
	for _, a := range as {
		if a.Event != e.Type || (e.Hop != "" && a.Hop != e.Hop) {
			continue
		}
		if a.when != nil {
			holds, err := a.when.Holds(x.objects(map[string]any{"event": e.Fields}))
			if err != nil || !holds {
				continue
			}
		}
		return a
	}
	return nil
}

// set takes a success's variables. An event that the definition does not know parks the saga: it cannot be guessed what it
// means.
func (x *decision) set(as []*answer, e Event) bool {
	a := x.match(as, e)
	if a == nil && e.Type == NothingType {
		return true
	}
	if a == nil {
		x.s.Steps[x.d.byName[e.Step]].Phase = GivenUp
		x.s.Steps[x.d.byName[e.Step]].Answer = e.Type
		x.disarm(e.Step + stepTimeout)
		x.park(fmt.Sprintf("%s: the definition does not know the answer %s", e.Step, e.Type))
		return false
	}
	return x.store(a, e)
}

// store sets the variables of a.
func (x *decision) store(a *answer, e Event) bool {
	if len(a.set) == 0 {
		return true
	}
	data, err := x.d.variables(a.set, x.objects(map[string]any{"event": e.Fields}))
	if err != nil {
		x.park(fmt.Sprintf("%s: %s", a.Event, err))
		return false
	}
	x.put(data)
	return true
}

func (x *decision) put(data map[string]any) {
	if len(data) == 0 {
		return
	}
	if !x.copied {
		x.s.Data, x.copied = maps.Clone(x.s.Data), true
	}
	maps.Copy(x.s.Data, data)
}

func (x *decision) reasonOf(a *answer, e Event) string {
	if a.reason == nil {
		return e.Type
	}
	v, err := a.reason.Eval(x.objects(map[string]any{"event": e.Fields}))
	if text, ok := v.(string); err == nil && ok && text != "" {
		return cut(text)
	}
	return e.Type
}

// fired is a deadline's turn.
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
	x.s.Deadlines = slices.Delete(x.s.Deadlines, i, i+1)
	x.fx.Met = append(x.fx.Met, due.Name)
	switch {
	case due.Name == TimeoutName:
		x.moment(DeadlineMet, "", due.Name)
		x.goBack("it took longer than " + x.d.spec.Timeout.String())
	case strings.HasSuffix(due.Name, compTimeout):
		x.compensateFailed(x.d.byName[strings.TrimSuffix(due.Name, compTimeout)], "no answer in time")
	case strings.HasSuffix(due.Name, stepTimeout):
		x.timedOut(x.d.byName[strings.TrimSuffix(due.Name, stepTimeout)])
	default:
		x.met(due)
	}
}

func (x *decision) timedOut(i int) {
	ss, st := &x.s.Steps[i], x.d.steps[i]
	x.moment(StepTimedOut, ss.Name, "no answer within "+st.Timeout.String())
	if st.send == nil {
		x.refused(i, "", "it did not come within "+st.Timeout.String())
		return
	}
	x.doubt(i)
	reason := fmt.Sprintf("%s: no answer within %s", ss.Name, st.Timeout)
	switch {
	case x.s.Back:
	case st.back == nil || x.passed():
		x.park(reason)
	default:
		x.goBack(reason)
	}
}

// met is one of the definition's own deadlines.
func (x *decision) met(due Armed) {
	i := slices.IndexFunc(x.d.deadlines, func(dl *deadline) bool { return dl.Name == due.Name })
	dl := x.d.deadlines[i]
	x.moment(DeadlineMet, "", due.Name)
	payload := due.Payload
	if payload == nil {
		payload = map[string]any{}
	}
	if !x.emit(dl.emit, x.objects(map[string]any{"deadline": payload})) {
		return
	}
	x.then(dl.Then, "deadline "+dl.Name, nil)
}

func (x *decision) then(t Then, why string, emits []emit) {
	switch t {
	case ThenComplete:
		x.complete(why, emits)
	case ThenCompensate:
		x.goBack(why)
	case ThenPark:
		x.park(why)
	}
}

// passed says whether the point of no return is behind.
func (x *decision) passed() bool { return pivotal(x.d, x.s) != "" }

func pivotal(d *Definition, s State) string {
	for i, st := range d.steps {
		if st.Pivot && s.Steps[i].Phase == Done {
			return st.Name
		}
	}
	return ""
}

// goBack turns the saga round. After the pivot it cannot: a person must act.
func (x *decision) goBack(reason string) {
	if x.s.Back || x.s.Ended() {
		return
	}
	if p := pivotal(x.d, x.s); p != "" {
		x.park(fmt.Sprintf("%s; after %s there is no way back", reason, p))
		return
	}
	x.s.Back = true
	x.because(reason)
	if x.s.Status != Parked {
		x.s.Status = Compensating
	}
	x.moment(SagaCompensating, "", reason)
	x.disarm(TimeoutName)
	for i := range x.s.Steps {
		if x.s.Steps[i].Phase == GivenUp { // it has had no effect, and may have when it is redriven
			x.doubt(i)
		}
	}
	x.takeUp()
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
	if x.s.Status != Parked || len(Stuck(x.d, x.s)) > 0 {
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

// forward starts and skips what it can, and says whether it is worth while to look again.
func (x *decision) forward() (changed bool) {
	if x.endsEarly() {
		return true
	}
	open := false
	for i, st := range x.d.steps {
		if x.s.Steps[i].Phase == Intent {
			open = true
		}
		if x.s.Steps[i].Phase != StepWaiting {
			continue
		}
		switch x.join(st) {
		case goes:
			if !x.begin(i) {
				return false
			}
			changed = true
		case never:
			x.skip(i, "what it needs was not done")
			changed = true
		default:
			open = true
		}
	}
	if !changed && !open {
		x.complete("", nil)
	}
	return changed
}

type joined int

const (
	waits joined = iota
	goes
	never
)

// join says whether what a step needs is there.
func (x *decision) join(st *step) joined {
	done, skipped := 0, 0
	for _, n := range st.needs {
		switch x.s.Steps[n].Phase {
		case Done:
			done++
		case Skipped:
			skipped++
		}
	}
	all := len(st.needs)
	switch {
	case all == 0:
		return goes
	case st.Join == All && skipped > 0, skipped == all:
		return never
	case st.Join == First && done > 0, done == all, st.Join == Merge && done+skipped == all:
		return goes
	}
	return waits
}

func (x *decision) skip(i int, why string) {
	x.s.Steps[i].Phase = Skipped
	x.moment(StepSkipped, x.s.Steps[i].Name, why)
}

// begin starts a step, or skips it where its condition does not hold. It says false when the saga is parked over it.
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
	if st.send != nil && !x.send(i, st.send, forwardOp) {
		return false
	}
	ss.Started = x.s.Version
	x.armSince(i)
	x.moment(StepStarted, st.Name, "")
	if st.send == nil && len(st.success)+len(st.failure) == 0 {
		x.done(i, "")
		return true
	}
	ss.Phase = Intent
	if st.Timeout > 0 {
		x.arm(st.Name+stepTimeout, st.Timeout, nil)
	}
	if st.send == nil {
		x.takeEarly(i)
	}
	return x.s.Status == Running
}

// takeEarly gives a step that begins to wait what came before.
func (x *decision) takeEarly(i int) {
	for k, e := range x.s.Early {
		if x.observe(i, e) {
			x.s.Early = slices.Delete(slices.Clone(x.s.Early), k, k+1)
			return
		}
	}
}

// send adds a command. It says false when the saga is parked, since the command cannot be made.
func (x *decision) send(i int, c *command, operation string) bool {
	st, ss := x.d.steps[i], x.s.Steps[i]
	out := Send{Step: st.Name, Operation: operation, Epoch: ss.Epoch, Hop: c.hop, Type: c.typ, Retry: c.retry}
	if operation == compensateOp {
		out.Epoch = ss.BackEpoch
		out.Doubt = ss.Doubt && c.hop == st.send.hop
	}
	fields, ok := x.fields(c.input, x.objects(nil))
	if !ok {
		return false
	}
	out.Fields = fields
	if c.endpoint != nil {
		path, err := fill(c.endpoint, x.s.Data)
		if err != nil {
			x.park(fmt.Sprintf("%s: %s", st.Name, err))
			return false
		}
		out.Fields = map[string]any{"method": c.method, "path": path}
		if len(c.input) > 0 {
			out.Fields["body"] = fields
		}
	}
	x.fx.Commands = append(x.fx.Commands, out)
	return true
}

// endsEarly looks at the conditions by which the saga ends before its steps are through.
func (x *decision) endsEarly() bool {
	for _, e := range x.d.ends {
		objects := x.objects(nil)
		holds, err := e.when.Holds(objects)
		if errors.Is(err, expr.ErrUnset) {
			continue
		}
		if err != nil {
			x.park(fmt.Sprintf("ends: %s", err))
			return true
		}
		if !holds {
			continue
		}
		why := e.End.When
		if e.reason != nil {
			if v, err := e.reason.Eval(objects); err == nil {
				if text, ok := v.(string); ok {
					why = text
				}
			}
		}
		x.then(e.Then, why, e.emit)
		return true
	}
	return false
}

// complete ends the saga. What is still awaited comes too late.
func (x *decision) complete(why string, emits []emit) {
	if x.s.Ended() {
		return
	}
	x.s.Early, x.s.Reason = nil, cut(why)
	for i := range x.s.Steps {
		if p := x.s.Steps[i].Phase; p == StepWaiting || p == Intent && x.d.steps[i].send == nil {
			x.s.Steps[i].Phase = Skipped
		}
	}
	if emits == nil {
		emits = x.d.completed
	}
	if !x.emit(emits, x.objects(nil)) {
		return
	}
	x.s.Status = Completed
	x.moment(SagaCompleted, "", why)
}

// backward undoes what can be undone now: everything behind it is undone, or never had an effect.
func (x *decision) backward() {
	for i, st := range x.d.steps {
		switch p := x.s.Steps[i].Phase; {
		case st.Pivot && p == Intent:
			return // there may be no way back
		case st.Pivot && p == Doubt && st.back == nil:
			x.park(fmt.Sprintf("%s: it may have taken effect, and then there is no way back", st.Name))
			return
		}
	}
	x.giveUpWaiting()
	open := false
	for i := len(x.d.steps) - 1; i >= 0; i-- {
		st, ss := x.d.steps[i], &x.s.Steps[i]
		if x.settled(i) {
			continue
		}
		open = true
		if ss.Phase == Intent || ss.Phase == CompensateIntent {
			continue
		}
		if slices.ContainsFunc(st.after, func(j int) bool { return !x.settled(j) }) {
			continue
		}
		if st.back == nil {
			x.park(fmt.Sprintf("%s: it may have taken effect, and nothing undoes it", st.Name))
			return
		}
		if !x.send(i, st.back.send, compensateOp) {
			return
		}
		ss.Phase = CompensateIntent
		if t := st.back.spec.Timeout; t > 0 {
			x.arm(st.Name+compTimeout, t, nil)
		}
		x.moment(CompensationStarted, st.Name, "")
	}
	if open {
		return
	}
	if !x.emit(x.d.compensated, x.objects(nil)) {
		return
	}
	x.s.Status = Compensated
	x.moment(SagaCompensated, "", "")
}

// giveUpWaiting ends what the way back has no use for: steps that have not begun, events that are awaited, deadlines.
func (x *decision) giveUpWaiting() {
	for i := range x.s.Steps {
		ss := &x.s.Steps[i]
		if ss.Phase == StepWaiting || ss.Phase == Intent && x.d.steps[i].send == nil {
			ss.Phase = Skipped
			x.disarm(ss.Name + stepTimeout)
		}
	}
	for _, dl := range x.d.deadlines {
		x.disarm(dl.Name)
	}
	x.s.Early = nil
}

// settled says that nothing of a step is left to undo.
func (x *decision) settled(i int) bool {
	switch x.s.Steps[i].Phase {
	case StepWaiting, Skipped, Refused, Undone:
		return true
	case Done:
		return x.d.steps[i].back == nil
	}
	return false
}

// emit adds events. It says false when the saga is parked over one.
func (x *decision) emit(es []emit, objects map[string]any) bool {
	for _, e := range es {
		fields, ok := x.fields(e.input, objects)
		if !ok {
			return false
		}
		x.fx.Events = append(x.fx.Events, Emitted{Hop: e.Hop, Type: e.Event, Failure: e.Failure, Fields: fields})
	}
	return true
}

// fields evaluates a mapping. It says false when the saga is parked, since it cannot be.
func (x *decision) fields(fs []field, objects map[string]any) (map[string]any, bool) {
	values := make(map[string]any, len(fs))
	for _, f := range fs {
		v, err := f.is.Eval(objects)
		if err != nil {
			x.park(fmt.Sprintf("%s: %s", f.name, err))
			return nil, false
		}
		values[f.name] = v
	}
	return values, true
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

// undoneSteps are the names of the steps that were compensated, the first that had been done last.
func (x *decision) undoneSteps() []any {
	names := []any{}
	for i := len(x.s.Steps) - 1; i >= 0; i-- {
		if x.s.Steps[i].Phase == Undone {
			names = append(names, x.s.Steps[i].Name)
		}
	}
	return names
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
