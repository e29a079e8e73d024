package participant

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/troupe-go/troupe/internal/pg"
)

// A message without a handler here may be of a newer version of the service, whose members are about to start. Its key waits until the member that
// owns its partition has a handler. After Config.UnknownTypeWait the message is poison.

// The limits of the waits between two tries of such a message.
const (
	leastUnhandledWait = time.Second
	mostUnhandledWait  = 10 * time.Second
	// unhandledYield delays a member's claim of local work that waits for a handler and whose type the member does not handle. All members poll every
	// maxPoll: without the delay the busiest one would claim the entry each time.
	unhandledYield = 2 * maxPoll
)

// seenLately limits how long Stats shows a message after its last try here: another member may have it, or an operator released
// it.
const seenLately = 30 * time.Second

// UnhandledType is a type of commands, or a name of deadlines, that has no handler in this member. Its messages wait for a member that has one.
type UnhandledType struct {
	Topic    string
	Type     string    // the type of the commands; "" for deadlines
	Deadline string    // the name of the deadlines; "" for commands
	Messages int       // the messages that this member tried in the last 30 s; later messages of their keys wait, too
	Since    time.Time // when the first of these messages was tried without a handler
	Until    time.Time // when the first of these messages becomes poison
}

// lacksHandler reports whether m has no handler here and may have one in another member. No member has a handler for a message that has neither a
// type nor the name of a deadline.
func (m *message) lacksHandler() bool {
	return m.handler == nil && m.unreadable == nil && (m.Type != "" || m.deadline != nil)
}

// unhandled returns the failure to record for m, which has no handler here. Until Config.UnknownTypeWait is over, that is a failure that counts no
// attempt, so that m waits. After that it is f.
func (w *runner) unhandled(m *message, f failure) failure {
	tried := w.unknown.since(m)
	if m.unhandledFor == 0 && m.held != nil {
		m.unhandledFor = min(m.held.heldFor, tried)
	}
	if m.unhandledFor < w.p.cfg.UnknownTypeWait {
		return failure{class: Transient, err: f.err, uncounted: true}
	}
	w.p.awaited.drop(m)
	return f
}

// unhandledWait returns how long m, which has no handler here, waits for its next try: half of the time that it has waited so far, but 1 s at least,
// 10 s at most, and not beyond Config.UnknownTypeWait.
func (p *Participant) unhandledWait(m *message) time.Duration {
	wait := min(max(m.unhandledFor/2, leastUnhandledWait), mostUnhandledWait)
	return min(wait, p.cfg.UnknownTypeWait-m.unhandledFor)
}

// ageArgs returns the arguments of age_local.sql for the entries behind m.
func (l *local) ageArgs(m *message, f *failure) pg.Args {
	return pg.Args{
		"group": l.p.cfg.Group, "hold_key": m.entry.key[:], "position": m.offset, "topic": m.Topic, "type": m.Type,
		"unhandled_for": m.unhandledFor.Seconds(), "error": l.p.errorText(*f),
	}
}

// kind identifies the handler that a message needs: by a topic, and a type or the name of deadlines.
type kind struct{ topic, typ, deadline string }

func (m *message) kind() kind {
	if m.deadline != nil {
		return kind{topic: m.Topic, deadline: m.deadline.name}
	}
	return kind{topic: m.Topic, typ: m.Type}
}

func (k kind) compare(other kind) int {
	return cmp.Or(cmp.Compare(k.topic, other.topic), cmp.Compare(k.typ, other.typ), cmp.Compare(k.deadline, other.deadline))
}

// unknownTypes holds the kinds of messages that a partition's owner has tried without a handler, each with the time of the first try. The time also
// counts for messages that waited behind others of their keys since then: otherwise a key with a thousand such messages would wait a thousand times.
// It may be used concurrently.
type unknownTypes struct {
	mu sync.Mutex
	of map[kind]time.Time
}

// mostUnknownTypes limits the memory that a sender of random types can use.
const mostUnknownTypes = 1000

// since returns how long ago the first message of m's kind was tried; 0 if m is the first.
func (u *unknownTypes) since(m *message) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if first, ok := u.of[m.kind()]; ok {
		return time.Since(first)
	}
	if u.of == nil || len(u.of) >= mostUnknownTypes {
		u.of = make(map[kind]time.Time)
	}
	u.of[m.kind()] = time.Now()
	return 0
}

// awaited holds the messages that this member has tried lately and that wait for a handler. It may be used concurrently.
type awaited struct {
	mu     sync.Mutex
	of     map[kind]map[triedKey]tried
	pruned time.Time
}

type triedKey struct {
	offsetKey
	partition int32
}

type tried struct{ first, last time.Time }

// recordUnhandled records for Stats that m waits for a handler, and logs the first message of its kind.
func (p *Participant) recordUnhandled(m *message) {
	u, now := &p.awaited, time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.prune(now)
	k, since := m.kind(), now.Add(-m.unhandledFor)
	if u.of[k] == nil {
		if u.of == nil {
			u.of = make(map[kind]map[triedKey]tried)
		}
		u.of[k] = make(map[triedKey]tried)
		event := p.cfg.Log.Warn().Str("topic", k.topic)
		if m.deadline != nil {
			event = event.Str("deadline", k.deadline)
		} else {
			event = event.Str("type", k.typ)
		}
		event.Time("since", since).Time("until", since.Add(p.cfg.UnknownTypeWait)).Str("place", m.place()).
			Msg("no handler here for messages of this type: they wait with their keys for a member that has one, and are poison after " +
				"UnknownTypeWait; start the version that handles them, or make them dead letters with troupe held dead-letter")
	}
	u.of[k][triedKey{m.offsetKey(), m.partition}] = tried{since, now}
}

// drop removes m, which does not wait any more.
func (u *awaited) drop(m *message) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.of[m.kind()], triedKey{m.offsetKey(), m.partition})
}

// prune removes messages that were not tried lately.
func (u *awaited) prune(now time.Time) {
	if now.Sub(u.pruned) < time.Second {
		return
	}
	u.pruned = now
	for k, messages := range u.of {
		maps.DeleteFunc(messages, func(_ triedKey, t tried) bool { return now.Sub(t.last) > seenLately })
		if len(messages) == 0 {
			delete(u.of, k)
		}
	}
}

// types returns the messages that wait for a handler, counted by kind. wait is Config.UnknownTypeWait.
func (u *awaited) types(wait time.Duration) (all []UnhandledType) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.prune(time.Now())
	for _, k := range slices.SortedFunc(maps.Keys(u.of), kind.compare) {
		t := UnhandledType{Topic: k.topic, Type: k.typ, Deadline: k.deadline, Messages: len(u.of[k])}
		for _, m := range u.of[k] {
			if t.Since.IsZero() || m.first.Before(t.Since) {
				t.Since = m.first
			}
		}
		if t.Until = t.Since.Add(wait); t.Messages > 0 {
			all = append(all, t)
		}
	}
	return all
}
