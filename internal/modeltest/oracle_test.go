package modeltest_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// evidence counts the effects, dead letters and events of a message in one group.
type evidence struct {
	done, refused, due                           int
	position                                     int64 // of the effect
	xid                                          string
	redrive                                      int // of the life that had the effect
	open, redriven, discarded                    int // dead letters
	answered, failures, exhausted, nothing, told int // events
}

func (e *evidence) effects() int { return e.done + e.refused }
func (e *evidence) letters() int { return e.open + e.redriven + e.discarded }
func (e *evidence) String() string {
	return fmt.Sprintf("%+v", *e)
}

// of identifies a message in a group.
type of struct {
	group string
	n     int
}

// verdict compares the evidence with the ends that the model allows.
func (h *history) verdict() {
	all := h.collect()
	for _, m := range h.sent {
		for i, group := range h.groupsOf(m) {
			h.judge(m, group, i == 1, all)
		}
	}
	h.judgeSagas(all)
	h.judgeRepeats(all)
	h.judgeOrder(all)
	h.judgeOutbox(all)
	if len(h.violations) > 0 {
		h.fail("%s", strings.Join(h.violations, "\n"))
	}
}

func (h *history) violate(format string, args ...any) {
	h.violations = append(h.violations, fmt.Sprintf(format, args...))
}

// collect reads the evidence.
func (h *history) collect() map[of]*evidence {
	all := make(map[of]*evidence)
	at := func(group string, n int) *evidence {
		if all[of{group, n}] == nil {
			all[of{group, n}] = &evidence{}
		}
		return all[of{group, n}]
	}
	each := func(sql string, fields []any, do func()) {
		rows, err := h.pool.Query(h.ctx, sql)
		require.NoError(h.t, err)
		_, err = pgx.ForEachRow(rows, fields, func() error { do(); return nil })
		require.NoError(h.t, err)
	}
	var group, kind, status, id, topic, typ, leaked, xid, step string
	var n, redrive int
	var position int64
	each("SELECT grp, n, kind, redrive, position, leaked, xid::text FROM effects ORDER BY position",
		[]any{&group, &n, &kind, &redrive, &position, &leaked, &xid}, func() {
			e := at(group, n)
			switch kind {
			case "done":
				e.done++
			case "refused":
				e.refused++
			case "due":
				e.due++
				return
			}
			e.position, e.redrive, e.xid = position, redrive, xid
			if leaked != "" {
				h.violate("message %d ran with a setting of another one", n)
			}
		})
	each("SELECT consumer_group, message_id, status FROM troupe.dead_letters", []any{&group, &id, &status}, func() {
		number, known := h.numbers[id]
		if !known {
			h.violate("a dead letter of message %s, which the model did not send", id)
			return
		}
		e := at(group, number)
		switch status {
		case "open":
			e.open++
		case "redriven":
			e.redriven++
		case "discarded":
			e.discarded++
		}
	})
	each("SELECT topic, cause, type, saga_step FROM relayed ORDER BY position", []any{&topic, &id, &typ, &step}, func() {
		number, known := h.numbers[id]
		group, ofEvents := strings.CutSuffix(topic, ".events")
		if !known || !ofEvents || !slices.Contains(h.groups(), group) {
			return
		}
		e := at(group, number)
		switch typ {
		case "Answered":
			e.answered++
		case "Refused":
			e.failures++
		case "Told":
			e.told++
		case "troupe.Nothing":
			e.nothing++
		case "troupe.Exhausted":
			e.exhausted++
			if step != "" && h.numbered(number).event() {
				h.violate("the dead letter of event %d answers the saga's step", number)
			}
		}
	})
	for _, m := range h.sent {
		for _, group := range h.groupsOf(m) {
			at(group, m.N)
		}
	}
	return all
}

func (h *history) numbered(n int) message {
	return h.sent[slices.IndexFunc(h.sent, func(m message) bool { return m.N == n })]
}

// fails reports whether the handler's script fails a whole life of m.
func (h *history) fails(m message, audit bool, redrive int) bool {
	b, s := m.Body, h.p.Setup
	if audit && b.AuditFine {
		return false
	}
	attempts := s.Attempts
	if m.Kind == kindLoose && !s.Local {
		attempts = 1 + max(s.Immediate, 0) + 1
	}
	switch b.Do {
	case doPermanent, doPanic, doPlain, doGoexit, doSwallow, doRows, doCommit, doLimit, doGone:
		return true
	case doNothing:
		return m.answers(s)
	}
	return b.Fails >= attempts || b.Mended && redrive == 0
}

// answers reports whether the handler of m answers.
func (m message) answers(s setup) bool { return m.Kind != kindHappened && !(m.event() && s.All) }

// judge checks that the lives of m have ended as they may.
func (h *history) judge(m message, group string, audit bool, all map[of]*evidence) {
	e := all[of{group, m.N}]
	bad := func(why string) { h.violate("message %d (%s) in %s: %s: %s", m.N, m.Kind, group, why, e) }
	if e.effects() > 1 {
		bad("more than one effect")
	}
	answers := m.answers(h.p.Setup)
	idle := 0 // ended without its handler: a repeated or empty answer
	if answers {
		idle = e.answered + e.failures + e.nothing - e.effects()
	}
	if idle < 0 {
		bad("an effect without an answer")
	}
	if !answers && e.answered+e.failures+e.nothing > 0 {
		bad("an answer of a listener")
	}
	if e.exhausted != e.letters() {
		bad("exhausted events and dead letters differ")
	}
	if m.Body.Tells != "" && e.told != e.effects() {
		bad("events told")
	}
	ends := e.effects() + e.open + e.discarded + idle
	switch {
	case ends == 1:
	case ends == 0 && h.mayBeOvertaken(m):
	case ends == 0:
		bad("ended without effect, refusal, dead letter or reason")
	case !h.operated[m.N]:
		bad("more than one end")
	}
	if idle > 0 && m.Saga == "" && !h.repeated(m) {
		bad("an answer without an effect")
	}
	late := m.Saga != "" && !m.event() && h.redrivenLate[m.N] // then it is refused, since its step may have been answered
	if late && e.effects() > 0 && !h.wentBack {
		bad("an effect of a command whose answer may be deleted")
	}
	if fails := h.fails(m, audit, e.redriven); !h.operated[m.N] && !late {
		switch {
		case fails && e.effects() > 0:
			bad("an effect of a handler that fails")
		case !fails && e.open+e.discarded > 0:
			bad("a dead letter of a handler that does not fail")
		case e.done > 0 && m.Body.Do == doRefuse, e.refused > 0 && m.Body.Do != doRefuse:
			bad("another outcome")
		}
	}
	h.judgeDeadline(m, e, all)
}

func (h *history) judgeDeadline(m message, e *evidence, all map[of]*evidence) {
	if m.Body.DueMS == 0 {
		return
	}
	least := e.done
	for _, o := range h.sent {
		if o.Body.Cancels == m.N && all[of{h.hop.String(), o.N}].effects() > 0 {
			least = 0
		}
	}
	if e.due < least || e.due > e.done {
		h.violate("the deadline of message %d was met %d times", m.N, e.due)
	}
}

// repeated reports whether another command has m's idempotency key. Events of two topics with one key are not the same.
func (h *history) repeated(m message) bool {
	return m.Kind == kindAct && m.Of > 0 || slices.ContainsFunc(h.sent, func(o message) bool { return o.Of == m.N && o.Kind == kindAct })
}

// mayBeOvertaken reports whether m may end without a trace in the tables: its compensation cancelled it while it was held.
func (h *history) mayBeOvertaken(m message) bool {
	return m.Kind == kindAct && m.Saga != "" && (!h.p.Setup.Local || h.p.Setup.Moves) && h.undo(m) != nil
}

func (h *history) undo(m message) *message {
	i := slices.IndexFunc(h.sent, func(o message) bool { return o.Kind == kindUndo && o.Saga == m.Saga })
	if i < 0 {
		return nil
	}
	return &h.sent[i]
}

// judgeSagas checks that both calls of each step fit together.
func (h *history) judgeSagas(all map[of]*evidence) {
	group := h.hop.String()
	for _, m := range h.sent {
		if m.Kind != kindAct || m.Saga == "" {
			continue
		}
		undo := h.undo(m)
		f := all[of{group, m.N}]
		if undo == nil {
			if f.nothing > 0 {
				h.violate("forward command %d did nothing without a compensation: %s", m.N, f)
			}
			continue
		}
		c := all[of{group, undo.N}]
		switch {
		case c.nothing > 0 && !undo.Doubt:
			h.violate("compensation %d did nothing without doubt: %s", undo.N, c)
		case c.nothing > 0 && f.done > 0:
			h.violate("step %s took effect (%s) and its compensation did nothing (%s)", m.Saga, f, c)
		case c.done > 0 && f.done > 0 && f.position > c.position:
			h.violate("step %s took effect (%s) after its compensation (%s)", m.Saga, f, c)
		}
	}
}

// judgeRepeats checks that commands with one idempotency key have one effect.
func (h *history) judgeRepeats(all map[of]*evidence) {
	group := h.hop.String()
	effects := make(map[int]int)
	for _, m := range h.sent {
		if m.Kind == kindAct && m.Saga == "" {
			effects[cmp.Or(m.Of, m.N)] += all[of{group, m.N}].effects()
		}
	}
	for n, times := range effects {
		if times > 1 {
			h.violate("the idempotency key of message %d had %d effects", n, times)
		}
	}
}

// judgeOrder checks that the effects of a key came in the order of their messages. Redriven messages may come at any time.
func (h *history) judgeOrder(all map[of]*evidence) {
	type line struct {
		group, topic, key string
		era               int
	}
	last := make(map[line]*message)
	for _, m := range h.sent {
		for _, group := range h.groupsOf(m) {
			e := all[of{group, m.N}]
			if !m.ordered() || e.effects() == 0 || e.redrive > 0 || h.operated[m.N] {
				continue
			}
			l := line{group, h.topicOf(m), m.Key, h.eras[m.N]}
			if before := last[l]; before != nil && all[of{group, before.N}].position > e.position {
				h.violate("message %d took effect after %d of its key %s in %s", before.N, m.N, m.Key, group)
			}
			last[l] = &m
		}
	}
}

// judgeOutbox checks that rows that handlers of one transaction wrote for a key are in the order in which they ran.
func (h *history) judgeOutbox(all map[of]*evidence) {
	rows, err := h.pool.Query(h.ctx, "SELECT cause, coalesce(key, '') FROM relayed WHERE topic = $1 ORDER BY position", h.hop.Events())
	require.NoError(h.t, err)
	type line struct{ xid, key string }
	last := make(map[line]int)
	var id string
	var key []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &key}, func() error {
		n, known := h.numbers[id]
		if !known {
			return nil
		}
		e := all[of{h.hop.String(), n}]
		if e.effects() == 0 || len(key) == 0 {
			return nil
		}
		l := line{e.xid, string(key)}
		if before := last[l]; before != 0 && all[of{h.hop.String(), before}].position > e.position {
			h.violate("what message %d wrote for key %s is behind what message %d wrote, which ran after it", n, key, before)
		}
		last[l] = n
		return nil
	})
	require.NoError(h.t, err)
}
