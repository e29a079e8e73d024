package modeltest_test

import (
	"fmt"
	"slices"
)

// send draws up to eight messages that are sent together.
func (d *drawing) send() {
	s := step{Do: "send"}
	for range 1 + d.index("messages", 8) {
		some := d.some()
		s.Messages, d.all = append(s.Messages, some...), append(d.all, some...)
	}
	d.add(s)
}

// some draws a message, or a few that belong together.
func (d *drawing) some() []message {
	local, all := d.p.Setup.Local || d.p.Setup.Moves, d.p.Setup.All
	switch at := d.index("kind", 100); {
	case at < 30:
		return d.acts()
	case at < 40 && len(d.late) > 0:
		m := d.late[0]
		d.late = d.late[1:]
		return []message{m}
	case at < 52:
		return d.step2()
	case at < 60 && !d.p.Setup.Local:
		m := d.next(kindLoose, d.key())
		if local { // how often it is tried depends on where it is
			m.Body.Fails = d.one("fails", 0, 1)
			d.manner(&m.Body)
		} else {
			d.script(&m)
		}
		return []message{m}
	case at < 70:
		m := d.next(kindCall, d.key())
		d.script(&m)
		return []message{m}
	case at < 85:
		return d.happened()
	default:
		m := d.next(kindReacted, d.key())
		d.scriptEvent(&m)
		if m.Second = d.chance("second hop", 30); m.Second && !all {
			m.Of = d.earlier(func(o message) bool {
				return o.Kind == kindReacted && !o.Second && !slices.ContainsFunc(d.all, func(r message) bool { return r.Of == o.N })
			})
		}
		return []message{m}
	}
}

// acts draws a command, or one that repeats an earlier one under another id.
func (d *drawing) acts() []message {
	m := d.next(kindAct, d.key())
	if d.chance("repeats", 12) {
		of := d.earlier(func(o message) bool {
			return o.Kind == kindAct && o.Of == 0 && o.Saga == "" && o.Body.DueMS == 0 && o.Body.Tells == "" && o.Body.Cancels == 0
		})
		if of > 0 {
			o := d.numbered(of)
			m.Of, m.Key, m.Body = of, o.Key, o.Body // another request under the same idempotency key would be refused
			return []message{m}
		}
	}
	d.script(&m)
	if d.chance("schedules", 15) && m.Body.Do == "" {
		m.Body.DueMS = d.one("due", 1, 50, 400)
	} else if d.chance("cancels", 5) {
		m.Body.Cancels = d.earlier(func(o message) bool { return o.Body.DueMS > 0 })
	}
	if d.chance("tells", 15) {
		m.Body.Tells = d.word("tells", "a", "b", "c")
	}
	return []message{m}
}

// earlier draws a message that is not forgotten, 0 if there is none.
func (d *drawing) earlier(fits func(message) bool) int {
	var some []int
	for _, m := range d.all {
		if m.N > d.forgot && fits(m) {
			some = append(some, m.N)
		}
	}
	if len(some) == 0 {
		return 0
	}
	return some[d.index("earlier", len(some))]
}

func (d *drawing) numbered(n int) message {
	return d.all[slices.IndexFunc(d.all, func(m message) bool { return m.N == n })]
}

// step2 draws both calls of a saga's step: one after the other, the compensation first, or later.
func (d *drawing) step2() []message {
	key := d.key()
	forward, undo := d.next(kindAct, key), d.next(kindUndo, key)
	saga := fmt.Sprintf("saga-%d", forward.N)
	forward.Saga, undo.Saga = saga, saga
	d.script(&forward)
	undo.Body.Fails = d.one("undo fails", 0, 0, 1)
	undo.Doubt = d.chance("doubt", 40)
	switch d.index("undo", 4) {
	case 0, 1:
		return []message{forward, undo}
	case 2:
		return []message{undo, forward}
	}
	d.late = append(d.late, undo)
	return []message{forward}
}

// happened draws an event, or the events of both calls of a saga's step.
func (d *drawing) happened() []message {
	key := d.key()
	m := d.next(kindHappened, key)
	d.scriptEvent(&m)
	if !d.chance("of a saga", 30) {
		return []message{m}
	}
	m.Saga = fmt.Sprintf("saga-%d", m.N)
	undone := d.next(kindHappened, key)
	undone.Saga, undone.Undone = m.Saga, true
	d.scriptEvent(&undone)
	return []message{m, undone}
}

// script draws the script of a command's handler.
func (d *drawing) script(m *message) {
	b := &m.Body
	switch at := d.index("does", 100); {
	case at < 45:
	case at < 55:
		b.Do = doRefuse
	case at < 72:
		b.Fails = d.one("fails", 1, 2, 3)
	case at < 80:
		b.Mended = true
	case at < 86:
		b.Do = doPermanent
	case at < 90:
		b.Do = doPanic
	case at < 93:
		b.Do = doNothing
	default:
		b.Do = d.word("mistake", doSet, doGoexit, doSwallow, doRows, doCommit, doLimit, doGone)
	}
	d.manner(b)
}

func (d *drawing) scriptEvent(m *message) {
	b := &m.Body
	switch at := d.index("does", 100); {
	case at < 60:
	case at < 80:
		b.Fails = d.one("fails", 1, 2, 3)
	case at < 88:
		b.Mended = true
	case at < 94:
		b.Do = doPermanent
	case at < 97:
		b.Do = doPanic
	default:
		b.Do = doPlain
	}
	b.AuditFine = d.chance("audit is fine", 50)
	d.manner(b)
}

func (d *drawing) manner(b *body) {
	if d.chance("slow", 15) {
		b.SlowMS = d.one("slow", 5, 60, 300)
	}
	if d.chance("rate limited", 8) {
		b.LimitMS = d.one("limit", 100, 1500)
	}
	b.Queued = d.chance("queued", 30)
}
