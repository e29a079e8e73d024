package explore_test

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// losses says how often databases are set back in a run, and what else may happen.
type losses struct {
	saga, hop int  // how often
	operator  bool // a person acts on a parked saga
	busy      bool // the person acts at any time, not only when nothing else happens
	redrive   bool // dead letters are redriven
	migrate   bool // the saga is moved to another definition
	changes   bool // the other definition has several changes, of any kind
	local     bool // h1 works in the saga's database, which has its commands and answers too
	later     bool // a command may wait on a retry topic, and others of its key are handled before it
	forget    int  // how often a hop deletes the answers that it has stored, since their retention is over
	quorum    bool // two more optional steps, and one that needs some of them
	cancel    bool // an event cancels the saga, as its definition declares
	each      bool // some steps run for each element of a list
	runs      uint64
}

// lossy runs one saga and its hops by chance, and sets databases back: the saga's, or a hop's. Kafka keeps all messages, and they are read
// again. A hop answers no second time if a command comes again by the same decision, and the saga reads an answer of one id once.
type lossy struct {
	losses
	r     *rand.Rand
	now   time.Time
	first *saga.Definition
	other *saga.Definition
	mine  sagaData
	hops  map[string]hopData

	commands map[string][]sentOnce // by hop
	answers  map[string][]answered // by hop
	settled  map[string]bool       // by step: a person has skipped it
	actions  int
	log      []string
	wrong    string // an effect that came twice, or that was undone twice
}

// sagaData is the content of the saga's database.
type sagaData struct {
	d        *saga.Definition
	s        saga.State
	read     map[string]int  // answers that the saga has read, by hop
	seen     map[string]bool // by id
	early    []answered
	reported map[string]bool // by step: an answer is a dead letter, or waits for ever
	// commands and answers are of h1, if that works in this database.
	commands []sentOnce
	answers  []answered
	h1       hopData
}

func (d sagaData) copied() sagaData {
	d.read, d.seen, d.early, d.reported = maps.Clone(d.read), maps.Clone(d.seen), slices.Clone(d.early), maps.Clone(d.reported)
	return d
}

// hopData is the content of a hop's database.
type hopData struct {
	read    int                   // commands
	barrier map[string]saga.Event // by step and operation: the answer
	key     map[string]int        // by step and operation: the epoch that it answered
	handled map[string]bool       // by sentOnce.id
	effect  map[string]int        // by step: 1 took effect, 2 is undone, -1 was undone and never took effect
	dead    []sentOnce
	givenUp map[string]bool // by step: there was a dead letter
	deleted time.Time       // answers up to this time are deleted
}

func (d hopData) copied() hopData {
	d.barrier, d.key, d.handled, d.effect = maps.Clone(d.barrier), maps.Clone(d.key), maps.Clone(d.handled), maps.Clone(d.effect)
	d.dead, d.givenUp = slices.Clone(d.dead), maps.Clone(d.givenUp)
	return d
}

type sentOnce struct {
	saga.Send
	id string
	at time.Time
}

type answered struct {
	saga.Event
	id string
}

var lossyHops = []string{"h0", "h1"}

func runLossy(seed uint64, what losses) *lossy {
	r := rand.New(rand.NewPCG(seed, 7))
	spec := chance(r, true)
	spec.Lock = ""
	if what.quorum {
		addQuorum(r, &spec)
	}
	if what.cancel {
		cancelByChance(rand.New(rand.NewPCG(seed, 8)), &spec)
	}
	if what.each {
		forEachByChance(rand.New(rand.NewPCG(seed, 9)), &spec)
	}
	d, err := saga.Define(spec)
	if err != nil {
		panic(err)
	}
	l := &lossy{
		losses: what, r: r, now: time.Unix(1000, 0), first: d, commands: make(map[string][]sentOnce),
		answers: make(map[string][]answered), hops: make(map[string]hopData), settled: make(map[string]bool),
		mine: sagaData{d: d, read: make(map[string]int), seen: make(map[string]bool), reported: make(map[string]bool)},
	}
	for _, hop := range lossyHops {
		l.hops[hop] = hopData{
			barrier: make(map[string]saga.Event), key: make(map[string]int), handled: make(map[string]bool), effect: make(map[string]int),
			givenUp: make(map[string]bool),
		}
	}
	start := map[string]any{"id": "1", "n": r.IntN(4)}
	if what.each {
		start["l"] = []any{"a", "b", "c"}[:rand.New(rand.NewPCG(seed, 10)).IntN(4)]
	}
	l.decide(saga.Event{Kind: saga.Started, Fields: start}, "start")
	for _, st := range spec.Steps {
		if st.Command == nil && r.IntN(3) > 0 {
			came := append(slices.Clone(st.Success), st.Failure...)[r.IntN(1+len(st.Failure))]
			e := saga.Event{Kind: saga.Observed, Hop: came.Hop, Type: came.Event, Message: came.Event}
			l.answers["event "+st.Name] = []answered{{e, e.Message}}
		}
	}
	if what.cancel {
		e := saga.Event{Kind: saga.Observed, Hop: "h0", Type: "Cancel", Message: "Cancel", Fields: map[string]any{"sure": true, "reason": "ill"}}
		l.answers["event cancel"] = []answered{{e, e.Message}}
	}
	copyAt, setAt := make(map[int]string), make(map[int]string)
	plan := func(times int, of func() string) {
		at := 0
		for range times {
			copyAt[at+1+r.IntN(6)], at = of(), at+7
			setAt[at+r.IntN(8)] = copyAt[slices.Max(slices.Collect(maps.Keys(copyAt)))]
			at += 8
		}
	}
	plan(what.saga, func() string { return "saga" })
	plan(what.hop, func() string {
		if what.local { // h1 is set back with the saga
			return "h0"
		}
		return lossyHops[r.IntN(2)]
	})
	forgetAt := make(map[int]bool)
	for range what.forget {
		forgetAt[3+r.IntN(20)] = true
	}
	var saved sagaData
	savedHop := make(map[string]hopData)
	if what.migrate {
		if l.other = changed(r, spec); what.changes {
			l.other = withChanges(r, spec)
		}
	}
	for i, idle := 0, 0; i < 500 && idle < 30; i++ {
		switch of := copyAt[i]; of {
		case "":
		case "saga":
			saved = l.mine.copied()
			if l.local {
				saved.commands, saved.answers, saved.h1 = slices.Clone(l.commands["h1"]), slices.Clone(l.answers["h1"]), l.hops["h1"].copied()
			}
		default:
			savedHop[of] = l.hops[of].copied()
		}
		switch of := setAt[i]; {
		case of == "saga" && saved.read != nil:
			l.log, idle = append(l.log, "the saga's database is set back"), 0
			if l.local {
				l.commands["h1"], l.answers["h1"], l.hops["h1"] = saved.commands, saved.answers, saved.h1
			}
			l.mine, saved = saved, sagaData{}
		case of != "" && savedHop[of].barrier != nil:
			l.log, idle = append(l.log, "the database of "+of+" is set back"), 0
			l.hops[of] = savedHop[of].copied()
		}
		if forgetAt[i] {
			l.forgetAnswers(lossyHops[r.IntN(2)])
		}
		moves := l.moves(idle > 8)
		if idle++; len(moves) > 0 {
			idle = 0
			moves[r.IntN(len(moves))]()
		}
	}
	for _, a := range l.mine.early {
		l.mine.reported[a.Step] = true
	}
	return l
}

// addQuorum adds two optional steps with compensations, which run from the start or after another step, and a step with a quorum that
// needs them.
func addQuorum(r *rand.Rand, spec *saga.Spec) {
	one := func(of int) bool { return r.IntN(of) == 0 }
	last := saga.Step{Name: "quorum", Needs: []string{"s3", "s4"}, AtLeast: 1 + r.IntN(2), Optional: one(4)}
	for _, name := range []string{"s3", "s4", "quorum"} {
		st := last
		if name != "quorum" {
			st = saga.Step{Name: name, Optional: !one(5)}
			if one(2) {
				st.Needs = []string{"s" + strconv.Itoa(r.IntN(2))}
			}
		}
		hop := lossyHops[r.IntN(2)]
		st.Command = &saga.Command{Hop: hop, Type: "Do"}
		st.Success, st.Failure = []saga.Answer{{Event: "Done"}}, []saga.Answer{{Event: "Refused"}}
		if one(2) {
			st.Timeout = saga.Duration(time.Minute)
		}
		if one(8) {
			st.Irreversible = "nobody minds"
		} else {
			st.Compensation = &saga.Compensation{Command: &saga.Command{Hop: hop, Type: "Undo"}, Success: []saga.Answer{{Event: "Undone"}}}
			if one(3) {
				st.Compensation.Timeout = saga.Duration(time.Minute)
			}
		}
		spec.Steps = append(spec.Steps, st)
	}
}

// changed returns a definition to which sagas of spec may be moved: a step asks the other hop, or is left out, or there is one more.
func changed(r *rand.Rand, spec saga.Spec) *saga.Definition {
	spec.Version++
	spec.Steps = slices.Clone(spec.Steps)
	k := r.IntN(len(spec.Steps))
	at := &spec.Steps[k]
	switch r.IntN(3) {
	case 0:
		if at.Command != nil {
			hop := lossyHops[r.IntN(2)]
			at.Command = &saga.Command{Hop: hop, Type: "Do"}
			if c := at.Compensation; c != nil {
				of := *c
				of.Command = &saga.Command{Hop: hop, Type: "Undo"}
				at.Compensation = &of
			}
		}
	case 1:
		more := saga.Step{
			Name: "more", Needs: []string{at.Name}, Command: &saga.Command{Hop: lossyHops[r.IntN(2)], Type: "Do"},
			Success: []saga.Answer{{Event: "Done"}}, Failure: []saga.Answer{{Event: "Refused"}}, Optional: r.IntN(2) == 0,
		}
		more.Compensation = &saga.Compensation{Command: &saga.Command{Hop: more.Command.Hop, Type: "Undo"}, Success: []saga.Answer{{Event: "Undone"}}}
		spec.Steps = append(spec.Steps, more)
	default:
		at.When = "data.n < 1"
	}
	d, err := saga.Define(spec)
	if err != nil {
		panic(err)
	}
	return d
}

// step returns the step of the definition that the saga runs on, or of another one if that alone has it.
func (l *lossy) step(name string) (st saga.Step) {
	name, _, _ = strings.Cut(name, "[")
	for _, d := range []*saga.Definition{l.mine.d, l.other, l.first} {
		if d == nil {
			continue
		}
		for _, one := range d.Spec().Steps {
			if one.Name == name {
				return one
			}
		}
	}
	panic(name)
}

// moves returns the moves that are possible now. A deadline is due seldom, or, if late is true and nothing else moves, at once.
func (l *lossy) moves(late bool) (all []func()) {
	for _, hop := range lossyHops {
		if l.hops[hop].read < len(l.commands[hop]) {
			all = append(all, func() { l.perform(hop) })
		}
		if h := l.hops[hop]; l.redrive && len(h.dead) > 0 && l.r.IntN(8) == 0 {
			all = append(all, func() {
				c := h.dead[0]
				c.id += " redriven"
				h.dead = slices.Clone(h.dead[1:])
				l.hops[hop] = h
				l.commands[hop] = append(l.commands[hop], c)
				l.log = append(l.log, "redriven: "+c.id)
			})
		}
	}
	for _, hop := range []string{"h0", "h1", "event s0", "event s1", "event s2", "event cancel"} {
		if n := l.mine.read[hop]; n < len(l.answers[hop]) {
			if hop == "event cancel" && l.r.IntN(6) > 0 {
				continue
			}
			all = append(all, func() {
				l.mine.read[hop]++
				if a := l.answers[hop][n]; !l.mine.seen[hop+a.id] {
					l.mine.seen[hop+a.id] = true
					l.take(a)
				}
			})
		}
	}
	if len(l.mine.early) > 0 && l.r.IntN(3) == 0 {
		all = append(all, func() { a := l.mine.early[0]; l.mine.early = slices.Clone(l.mine.early[1:]); l.take(a) })
	}
	if l.cancel && l.operator && l.r.IntN(40) == 0 {
		all = append(all, func() {
			l.actions++
			l.decide(saga.Event{Kind: saga.ActCancel, Actor: "ann", Reason: "ill"}, fmt.Sprintf("action %d", l.actions))
		})
	}
	if l.operator && l.mine.s.Status == saga.Parked && len(all) == 0 && l.r.IntN(3) == 0 || l.busy && l.actions < 6 && l.r.IntN(6) == 0 {
		all = append(all, l.act)
	}
	if l.migrate && l.mine.d != l.other && l.r.IntN(6) == 0 {
		all = append(all, func() {
			if s, err := saga.Migrate(l.mine.d, l.other, l.mine.s); err == nil {
				l.mine.d, l.mine.s = l.other, s
				l.log = append(l.log, "moved to the other definition")
			}
		})
	}
	if len(l.mine.s.Deadlines) > 0 && (l.r.IntN(6) == 0 || late && len(all) == 0) {
		if due := l.mine.s.Deadlines[l.r.IntN(len(l.mine.s.Deadlines))]; !due.Overdue {
			return []func(){func() {
				if l.now.Before(due.At) {
					l.now = due.At
				}
				l.decide(saga.Event{Kind: saga.Fired, Deadline: due.Name, Keep: true}, due.Name+strconv.Itoa(l.mine.s.Version))
			}}
		}
	}
	return all
}

// act lets a person act who knows what the services have.
func (l *lossy) act() {
	l.actions++
	id := fmt.Sprintf("action %d", l.actions)
	e := saga.Event{Kind: saga.ActResume, Actor: "ann", Reason: "why not"}
	if l.r.IntN(4) == 0 {
		e.Kind = saga.ActCompensate
	}
	stuck := saga.Stuck(l.mine.d, l.mine.s)
	if len(stuck) > 0 && e.Kind == saga.ActResume {
		e.Step = stuck[l.r.IntN(len(stuck))]
		st := l.step(e.Step)
		hop := ""
		if st.Command != nil {
			hop = st.Command.Hop
		}
		e.Kind = []saga.Kind{saga.ActRetry, saga.ActRetry, saga.ActSkip, saga.ActResolve}[l.r.IntN(4)]
		failed := slices.ContainsFunc(l.mine.s.Steps, func(ss saga.StepState) bool { return ss.Name == e.Step && ss.Phase == saga.CompensateFailed })
		e.Happened = l.hops[hop].effect[e.Step] == 1 != failed
		if e.Kind == saga.ActSkip || e.Kind == saga.ActResolve && e.Happened {
			l.settled[e.Step] = true
		}
	}
	if l.busy && l.r.IntN(8) == 0 {
		e.Kind, e.Step, e.Fields = saga.ActSet, "", map[string]any{"n": l.r.IntN(4)}
	}
	l.decide(e, id)
}

// forgetAnswers deletes the answers that hop has stored, whose retention is over, three hours later.
func (l *lossy) forgetAnswers(hop string) {
	h := l.hops[hop].copied()
	if len(h.barrier) == 0 {
		return
	}
	h.deleted = l.now
	clear(h.barrier)
	clear(h.key)
	l.hops[hop] = h
	l.now = l.now.Add(3 * time.Hour)
	l.log = append(l.log, "three hours later "+hop+" has deleted its answers")
}

func (l *lossy) decide(e saga.Event, id string) saga.Effects {
	next, fx := saga.Decide(l.mine.d, l.mine.s, e, l.now)
	l.log = append(l.log, fmt.Sprintf("%s %s%s %s %s: %s %s%s", e.Kind, e.Step, e.Deadline, e.Operation, e.Type, next.Status, fx.Ignored, fx.Refused))
	l.mine.s = next
	for _, c := range fx.Commands {
		l.commands[c.Hop] = append(l.commands[c.Hop], sentOnce{c, fmt.Sprint(id, " ", c.Step, " ", c.Operation, " ", c.Epoch), l.now})
	}
	if fx.Refused != "" && !e.Kind.Action() || l.migrate && fx.Alert != "" {
		l.mine.reported[e.Step] = true
	}
	return fx
}

func (l *lossy) take(a answered) {
	if l.decide(a.Event, a.id).Early {
		l.mine.early = append(l.mine.early, a)
	}
}

// perform handles a hop's next command, with the barrier of package participant.
func (l *lossy) perform(hop string) {
	h := l.hops[hop]
	c := l.commands[hop][h.read]
	h.read++
	defer func() { l.hops[hop] = h }()
	if h.handled[c.id] {
		return
	}
	if l.later && l.r.IntN(8) == 0 {
		l.commands[hop] = append(l.commands[hop], c)
		l.log = append(l.log, fmt.Sprintf("    %s: %s: later", hop, c.id))
		return
	}
	h.handled[c.id] = true
	mine, forward := c.Step+" "+c.Operation, c.Operation == "forward"
	e, ranBefore := h.barrier[mine]
	known := ranBefore && (e.Outcome == "success" || h.key[mine] == c.Epoch)
	other, otherKnown := h.barrier[c.Step+map[bool]string{true: " compensate", false: " forward"}[forward]]
	answer := func(outcome, typ string) {
		e = saga.Event{Kind: saga.Answered, Step: c.Step, Operation: c.Operation, Outcome: outcome, Type: typ, Hop: hop}
		if outcome != "exhausted" {
			h.barrier[mine], h.key[mine] = e, c.Epoch
		}
	}
	chance := l.r.IntN(6)
	switch st := l.step(c.Step); {
	case known:
	case !otherKnown && (!forward && c.Doubt || !ranBefore) && h.forgets(c):
		answer("exhausted", "troupe.Exhausted")
		h.dead, h.givenUp[c.Step] = append(h.dead, c), true
	case forward && otherKnown:
		answer("failure", saga.NothingType)
	case forward && chance == 0 && len(st.Failure) > 0 && !st.Retriable:
		answer("failure", "Refused")
	case forward && chance == 1:
		answer("exhausted", "troupe.Exhausted")
		h.dead, h.givenUp[c.Step] = append(h.dead, c), true
	case forward:
		answer("success", "Done")
		if effect := h.effect[c.Step]; effect != 0 && l.wrong == "" && !l.mine.reported[c.Step] {
			l.wrong = fmt.Sprintf("%s takes effect after %d", c.Step, effect)
		}
		h.effect[c.Step] = 1
	case c.Doubt && other.Outcome != "success":
		answer("success", saga.NothingType)
		if !otherKnown {
			other = e
			other.Operation, other.Outcome = "forward", "failure"
			h.barrier[c.Step+" forward"], h.key[c.Step+" forward"] = other, -1
		}
	case l.operator && chance == 0:
		answer("failure", "NotUndone")
	case l.operator && chance == 1:
		answer("exhausted", "troupe.Exhausted")
		h.dead, h.givenUp[c.Step] = append(h.dead, c), true
	default:
		answer("success", "Undone")
		if h.effect[c.Step] == 2 && l.wrong == "" {
			l.wrong = c.Step + " is undone twice"
		}
		if h.effect[c.Step] *= 2; h.effect[c.Step] == 0 {
			h.effect[c.Step] = -1
		}
	}
	e.Epoch = c.Epoch
	e.Message = fmt.Sprint(c.id, " ", e.Type, " ", e.Outcome)
	if e.Type == "Done" && strings.HasPrefix(c.Step, "s0") {
		e.Fields = map[string]any{"ok": len(l.answers)%3 > 0}
	}
	l.log = append(l.log, fmt.Sprintf("    %s: %s: %s", hop, c.id, e.Type))
	l.answers[hop] = append(l.answers[hop], answered{e, e.Message})
}

// forgets reports whether an answer to c's step that is not stored may have been deleted.
func (h hopData) forgets(c sentOnce) bool {
	since := c.Since
	if since.IsZero() {
		since = c.at
	}
	return !h.deleted.IsZero() && since.Before(h.deleted.Add(time.Hour))
}

// waits returns the step whose answer a saga awaits although all messages were handled, "" if none.
func (l *lossy) waits() string {
	for _, hop := range lossyHops {
		if l.hops[hop].read < len(l.commands[hop]) || l.mine.read[hop] < len(l.answers[hop]) {
			return ""
		}
	}
	for _, ss := range l.mine.s.Steps {
		sent := ss.Phase == saga.CompensateIntent || ss.Phase == saga.Intent && l.step(ss.Name).Command != nil && !l.repeats(ss.Name)
		due := slices.ContainsFunc(l.mine.s.Deadlines, func(a saga.Armed) bool { return strings.HasPrefix(a.Name, ss.Name+".") || a.Name == saga.TimeoutName })
		if sent && !due && l.mine.s.Status != saga.Abandoned {
			return fmt.Sprintf("%s is %s, and nothing answers it", ss.Name, ss.Phase)
		}
	}
	return ""
}

// left returns the effect that an ended saga leaves behind, or misses, without a trace, "" if none.
func (l *lossy) left() string {
	s := l.mine.s
	if l.wrong != "" {
		return l.wrong
	}
	if s.Status != saga.Completed && s.Status != saga.Compensated {
		return cmp.Or(l.waits(), l.stops())
	}
	for _, hop := range lossyHops { // of commands of the other definition
		for name, effect := range l.hops[hop].effect {
			mine := slices.ContainsFunc(s.Steps, func(ss saga.StepState) bool { return ss.Name == name }) &&
				slices.ContainsFunc(l.mine.d.Spec().Steps, func(st saga.Step) bool {
					step, _, _ := strings.Cut(name, "[")
					return st.Name == step && st.Command != nil && st.Command.Hop == hop
				})
			if !mine && effect == 1 && !l.mine.reported[name] {
				return fmt.Sprintf("%s took effect at %s, which the definition does not ask", name, hop)
			}
		}
	}
	for _, ss := range s.Steps {
		st := l.step(ss.Name)
		if st.Command == nil || l.repeats(ss.Name) || l.mine.reported[ss.Name] || l.settled[ss.Name] || ss.Phase == saga.Intent {
			continue
		}
		h := l.hops[st.Command.Hop]
		if l.hop > 0 && h.givenUp[ss.Name] {
			continue // the dead letter is the trace
		}
		switch effect := h.effect[ss.Name]; {
		case effect < 0:
			return ss.Name + " was undone, and never took effect"
		case ss.Phase == saga.Done && effect == 0:
			return ss.Name + " is done, and never took effect"
		case ss.Phase == saga.Done && effect > 1:
			return ss.Name + " is done, and was undone"
		case effect == 1 && st.Compensation != nil && (s.Status == saga.Compensated || ss.Phase != saga.Done):
			return fmt.Sprintf("%s took effect, and is %s", ss.Name, ss.Phase)
		}
	}
	return ""
}

// repeats reports whether the step of that name has items.
func (l *lossy) repeats(name string) bool {
	return l.step(name).ForEach != nil && !strings.Contains(name, "[")
}

// lossCases are the histories that are run, by what goes wrong in them.
var lossCases = map[string]losses{
	"nothing, a person acts":                          {operator: true, busy: true, redrive: true, later: true, quorum: true, runs: 500},
	"nothing, answers are deleted":                    {operator: true, redrive: true, later: true, forget: 1, runs: 500},
	"the saga's database":                             {saga: 1, runs: 10_000},
	"the saga's database, twice":                      {saga: 2, runs: 2_000},
	"the saga's database, a person acts":              {saga: 1, operator: true, redrive: true, runs: 2_000},
	"the saga's database, a person acts at any time":  {saga: 1, operator: true, busy: true, redrive: true, later: true, quorum: true, runs: 500},
	"the saga's database, the saga is moved":          {saga: 1, migrate: true, runs: 2_000},
	"the saga's database, the saga is moved by hand":  {saga: 1, operator: true, busy: true, redrive: true, later: true, migrate: true, runs: 500},
	"the saga's database, in which a hop works":       {saga: 1, local: true, quorum: true, runs: 500},
	"the saga's database, with a hop, a person acts":  {saga: 1, local: true, operator: true, busy: true, redrive: true, later: true, runs: 500},
	"the saga's database, with a quorum, it is moved": {saga: 1, migrate: true, quorum: true, runs: 500},
	"the saga's database, with a cancel":              {saga: 1, cancel: true, quorum: true, runs: 2_000},
	"the same, a person acts":                         {saga: 2, cancel: true, operator: true, busy: true, redrive: true, later: true, runs: 1_000},
	"the same, the saga is moved":                     {saga: 1, cancel: true, migrate: true, quorum: true, runs: 1_000},
	"the database of a hop, with a cancel":            {hop: 1, cancel: true, quorum: true, runs: 1_000},
	"the database of a hop":                           {hop: 1, runs: 2_000},
	"the database of a hop, twice":                    {hop: 2, quorum: true, runs: 500},
	"the database of a hop, a person acts":            {hop: 1, operator: true, redrive: true, runs: 2_000},
	"the database of a hop, a person acts, any time":  {hop: 1, operator: true, busy: true, redrive: true, quorum: true, runs: 500},
	"the database of a hop, the saga is moved":        {hop: 1, operator: true, busy: true, redrive: true, migrate: true, quorum: true, runs: 500},
	"nothing, the saga is moved":                      {migrate: true, changes: true, each: true, runs: 250},
	"nothing, a person acts on a saga that is moved":  {migrate: true, changes: true, each: true, cancel: true, quorum: true, operator: true, busy: true, redrive: true, later: true, runs: 250},
	"the saga's database, it is moved, with changes":  {saga: 1, migrate: true, changes: true, each: true, cancel: true, quorum: true, operator: true, redrive: true, runs: 250},
	"nothing, with lists":                             {operator: true, busy: true, redrive: true, later: true, each: true, runs: 500},
	"the saga's database, with lists":                 {saga: 1, each: true, quorum: true, runs: 2_000},
	"the saga's database, with lists, it is moved":    {saga: 1, each: true, migrate: true, operator: true, busy: true, redrive: true, runs: 1_000},
	"the database of a hop, with lists":               {hop: 1, each: true, operator: true, redrive: true, runs: 1_000},
	"the database of a hop, which has retry topics":   {hop: 1, later: true, operator: true, redrive: true, cancel: true, each: true, quorum: true, runs: 2_000},
	"the database of a hop, answers are deleted":      {hop: 1, operator: true, redrive: true, forget: 1, runs: 500},
}

// random gives the time for which histories of random seeds are run instead.
var random, _ = time.ParseDuration(os.Getenv("TROUPE_MODEL"))

// seeds returns the seeds 0 to n-1 or, if TROUPE_MODEL is set, random ones.
func seeds(n uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		began := time.Now()
		for i := uint64(0); i < n || random > 0; i++ {
			seed := i
			if random > 0 {
				if time.Since(began) > random {
					return
				}
				seed = rand.Uint64()
			}
			if !yield(seed) {
				return
			}
		}
	}
}

// In TestASagaWhoseDatabaseIsSetBackLeavesNoEffectWithoutATrace the definitions have optional steps and quorums.
func TestASagaWhoseDatabaseIsSetBackLeavesNoEffectWithoutATrace(t *testing.T) {
	t.Parallel()
	for name, what := range lossCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ends := make(map[saga.Status]int)
			for seed := range seeds(what.runs) {
				l := runLossy(seed, what)
				ends[l.mine.s.Status]++
				if left := l.left(); left != "" {
					t.Fatalf("seed %d, the saga is %s: %s\n%s\n%s", seed, l.mine.s.Status, left, strings.Join(l.log, "\n"), l.mine.d.JSON())
				}
			}
			t.Log(ends)
		})
	}
}
