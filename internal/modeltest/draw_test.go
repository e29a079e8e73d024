package modeltest_test

import (
	"fmt"

	"pgregory.net/rapid"
)

// drawing is a plan that is being drawn.
type drawing struct {
	t       *rapid.T
	p       plan
	n       int       // messages so far
	all     []message // in their order
	forgot  int       // messages up to this one are deleted from the inbox; once, since later ones have times of the future
	copied  bool      // a copy of the database exists
	local   bool      // the topics are local
	waits   bool      // the second group has not started
	members int
	late    []message // compensations whose forward command was sent
}

// draw draws a plan.
func draw(t *rapid.T) plan {
	d := &drawing{t: t}
	s := &d.p.Setup
	where := d.word("where", "kafka", "moves", "local", "kafka", "kafka")
	s.Moves = where == "moves"
	s.Local = where == "local" || s.Moves && d.chance("local at first", 50)
	s.Batch = d.one("batch", 1, 1, 7, 100)
	s.Partitions = int32(d.one("partitions", 1, 2))
	s.Attempts = d.one("attempts", 4, 2)
	s.Immediate = d.one("immediate", -1, 1)
	s.All = d.chance("all", 30)
	s.Limited = !s.Local && d.chance("limited", 30)
	s.Audit = d.one("audit", 0, 0, 1, 1) == 1
	s.Late = s.Audit && (s.Local || s.Moves) && d.one("late", 0, 1) == 1
	s.NoRelay = s.Local && !s.Moves && d.one("no relay", 0, 1) == 1
	d.waits = s.Late
	switch d.index("setting", 12) {
	case 7:
		s.Setting, s.Value = "default_transaction_isolation", "repeatable read"
	case 8:
		s.Setting, s.Value = "lock_timeout", "1s"
	case 9:
		s.Setting, s.Value = "synchronous_commit", "off"
	case 10:
		s.Setting, s.Value = "idle_session_timeout", "300ms"
	case 11:
		s.Setting, s.Value = "client_encoding", "LATIN1"
	}
	d.local = s.Local
	d.add(step{Do: "join"})
	d.members = 1
	for range rapid.IntRange(1, 14).Draw(t, "steps") {
		d.step()
	}
	for range d.moves() {
		d.send()
		d.move()
		d.send()
		for range d.index("steps", 4) {
			d.step()
		}
	}
	if len(d.late) > 0 {
		d.add(step{Do: "send", Messages: d.late})
	}
	return d.p
}

func (d *drawing) add(s step) { d.p.Steps = append(d.p.Steps, s) }

func (d *drawing) chance(what string, percent int) bool {
	return rapid.IntRange(0, 99).Draw(d.t, what) >= 100-percent
}

// one draws one of the values; a plan shrinks towards the first.
func (d *drawing) one(what string, values ...int) int {
	return values[rapid.IntRange(0, len(values)-1).Draw(d.t, what)]
}

func (d *drawing) word(what string, values ...string) string {
	return values[rapid.IntRange(0, len(values)-1).Draw(d.t, what)]
}

// step draws one step. Sending comes first, since a plan shrinks towards small numbers.
func (d *drawing) step() {
	kafka, stays := !d.local, !d.local && !d.p.Setup.Moves
	choices := []struct {
		weight int
		legal  bool
		do     func()
	}{
		{40, true, d.send},
		{8, true, func() { d.add(step{Do: "let", N: d.one("ended", 1, 5, 20)}) }},
		{3, true, d.burst},
		{5, d.n > d.forgot, func() { d.add(step{Do: "resend", N: d.forgot + 1 + d.index("message", d.n-d.forgot)}) }},
		{7, d.members < 3, d.join},
		{5, d.members > 0, func() { d.member("leave"); d.members-- }},
		{6, d.members > 0, func() { d.member("kill"); d.members-- }},
		{4, d.members > 0, func() { d.member("freeze") }},
		{4, true, func() { d.member("thaw") }},
		{6, true, func() { d.add(step{Do: "cut"}) }},
		{6, true, func() { d.add(step{Do: "redrive", N: d.index("letter", 5)}) }},
		{3, true, func() { d.add(step{Do: "discard", N: d.index("letter", 5)}) }},
		{4, true, func() { d.add(step{Do: "release", N: d.index("held", 5)}) }},
		{3, true, func() { d.add(step{Do: "retry"}) }},
		{3, true, func() { d.add(step{Do: "settle"}) }},
		{4, stays, d.rewind},
		{6, stays && len(d.late) == 0 && d.forgot == 0, d.forget},
		{15, !d.copied, func() { d.add(step{Do: "copy"}); d.copied, d.members = true, 1 }},
		{60, d.copied, d.setBack},
		{3, kafka, func() { d.add(step{Do: "new topic", N: d.one("topic", 0, 1)}); d.copied, d.members = false, 1 }},
		{8, stays, d.newDelay},
		{20, d.p.Setup.Moves, d.move},
		{25, d.waits, d.startAudit},
		{5, d.p.Setup.Local || d.p.Setup.Moves, func() { d.add(step{Do: "partition", N: d.one("positions", 3, 20)}) }},
	}
	total := 0
	for _, c := range choices {
		if c.legal {
			total += c.weight
		}
	}
	at := rapid.IntRange(0, total-1).Draw(d.t, "step")
	for _, c := range choices {
		if !c.legal {
			continue
		}
		if at < c.weight {
			c.do()
			return
		}
		at -= c.weight
	}
}

func (d *drawing) index(what string, n int) int { return rapid.IntRange(0, n-1).Draw(d.t, what) }

func (d *drawing) member(do string) { d.add(step{Do: do, N: d.index("member", 3)}) }

func (d *drawing) join() {
	s := step{Do: "join"}
	if d.chance("dies", 30) {
		s.Die = d.word("in", "before the handler", "before the commit", "after the commit", "after a failed attempt",
			"before the commit of offsets", "after the commit of offsets")
		s.N = d.one("nth", 1, 3, 10)
		s.Freeze = d.chance("freeze", 30)
	} else {
		d.members++
	}
	s.Older = len(d.p.Steps) > 0 && d.chance("older", 20)
	d.add(s)
}

func (d *drawing) rewind() {
	s := step{Do: "rewind", Forget: d.forgot == 0 && d.chance("forget", 40)}
	if s.Forget {
		if len(d.late) > 0 {
			s.Forget = false // a compensation's forward call would be forgotten
		} else {
			d.forgot = d.n
		}
	}
	d.add(s)
	d.members = 1
}

// forget deletes the answers of a saga's step, both of whose calls have ended, and redrives a dead letter, which may be the step's
// forward command.
func (d *drawing) forget() {
	key := d.key()
	forward, undo := d.next(kindAct, key), d.next(kindUndo, key)
	forward.Saga = fmt.Sprintf("saga-%d", forward.N)
	undo.Saga, undo.Doubt = forward.Saga, d.chance("doubt", 40)
	forward.Body.Mended = true
	d.all = append(d.all, forward, undo)
	d.add(step{Do: "send", Messages: []message{forward}})
	d.add(step{Do: "settle"})
	d.add(step{Do: "send", Messages: []message{undo}})
	d.add(step{Do: "rewind", Forget: true})
	d.forgot, d.members = d.n, 1
	d.add(step{Do: "redrive", N: d.index("letter", 3)})
}

// setBack replaces the database by its copy. If members stop cleanly before, the lost commits had been acknowledged.
func (d *drawing) setBack() {
	d.send()
	if d.chance("all of it ends", 50) {
		d.add(step{Do: "settle"})
	} else {
		d.add(step{Do: "let", N: 20})
	}
	d.add(step{Do: "set back", Peace: d.chance("members stop", 60)})
	d.copied, d.members = false, 1
}

// newDelay deploys a version with another retry topic, while a message waits on the topic of the earlier version.
func (d *drawing) newDelay() {
	m := d.next(kindLoose, d.key())
	m.Body.Fails = 1
	d.all = append(d.all, m)
	d.add(step{Do: "send", Messages: []message{m}})
	d.add(step{Do: "let", N: 1})
	d.add(step{Do: "new delay"})
	d.members = 1
}

// moves draws how often the topics move after the first steps.
func (d *drawing) moves() int {
	if d.p.Setup.Moves {
		return d.one("moves", 1, 2, 3)
	}
	return 0
}

// move makes the topics local, or returns them to Kafka. Before that the second group must have started: it gets no message that the
// other side has.
func (d *drawing) move() {
	if d.waits {
		d.startAudit()
	}
	if d.local {
		d.add(step{Do: "go back", Peace: d.chance("members stop", 60), Rolling: d.one("rolling", 1, 0) == 1})
		d.copied = false
	} else {
		d.add(step{Do: "become local", Rolling: d.one("rolling", 1, 0) == 1})
	}
	d.local, d.members = !d.local, 1
}

// startAudit starts the second group. In Kafka it has offsets that a copy of the database does not know.
func (d *drawing) startAudit() {
	d.add(step{Do: "audit"})
	d.waits = false
	d.copied = d.copied && d.local
}

// burst sends many messages of a key, of which the first fails once.
func (d *drawing) burst() {
	s := step{Do: "send"}
	key := d.key()
	if key == "" {
		key = "a"
	}
	for i := range 250 {
		m := d.next(kindAct, key)
		if i == 0 {
			m.Body.Fails = 1
		}
		s.Messages = append(s.Messages, m)
		d.all = append(d.all, m)
	}
	d.add(s)
}

func (d *drawing) key() string { return d.word("key", "a", "b", "c", "") }

func (d *drawing) next(kind, key string) message {
	d.n++
	return message{N: d.n, Kind: kind, Key: key, Body: body{N: d.n}}
}
