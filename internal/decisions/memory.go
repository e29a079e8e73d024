package decisions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// Memory is a Store and a coordinator in virtual time, for tests and for exploring a definition. It decides on each message at once,
// and reports the decision to OnDecided. It sends nothing. It is not safe for concurrent use.
type Memory struct {
	// OnDecided is called for each decision, also one that changed nothing.
	OnDecided func(Decided)

	definitions *Definitions
	now         time.Time
	records     map[string]Record
	logs        map[string][]Entry
	associated  map[Association][]string
	stash       []Stashed // ordered by position
	lastStashed int64     // the position of the event that was stashed last
	locks       []memoryLock
}

type memoryLock struct{ name, id string }

var _ Store = (*Memory)(nil)

// NewMemory returns an empty Memory whose virtual time is now.
func NewMemory(now time.Time, defs ...*saga.Definition) (*Memory, error) {
	ds, err := NewDefinitions(defs)
	if err != nil {
		return nil, err
	}
	return &Memory{
		definitions: ds, now: now, records: make(map[string]Record), logs: make(map[string][]Entry),
		associated: make(map[Association][]string),
	}, nil
}

// Start starts a saga and returns its id. If the key has a saga already, Start changes nothing.
func (m *Memory) Start(name string, fields map[string]any) (id string, err error) {
	err = m.pass(func(p *pass) error {
		is, err := p.begin(context.Background(), name, fields)
		id = is.ID
		return err
	})
	return id, err
}

// Take decides on a message.
func (m *Memory) Take(msg Message) error {
	return m.pass(func(p *pass) error { return p.messages(context.Background(), []Message{msg}) })
}

// Act applies an operator's action to a saga. If the action is not allowed, the error wraps ErrRefused.
func (m *Memory) Act(id string, e saga.Event) (fx saga.Effects, err error) {
	err = m.pass(func(p *pass) error {
		fx, err = p.act(context.Background(), id, e)
		return err
	})
	return fx, err
}

// Advance moves the virtual time by d. Each deadline that becomes due is decided at its own time.
func (m *Memory) Advance(d time.Duration) error {
	end := m.now.Add(d)
	for {
		var next string
		for _, id := range sortedKeys(m.records) {
			at := m.records[id].WakeAt
			if !at.IsZero() && !at.After(end) && (next == "" || at.Before(m.records[next].WakeAt)) {
				next = id
			}
		}
		if next == "" {
			m.now = end
			return nil
		}
		if at := m.records[next].WakeAt; at.After(m.now) {
			m.now = at
		}
		if err := m.pass(func(p *pass) error { return p.due(context.Background(), next) }); err != nil {
			return err
		}
	}
}

// Clock returns the virtual time.
func (m *Memory) Clock() time.Time { return m.now }

// Sagas returns the states of all sagas, ordered by id.
func (m *Memory) Sagas() (all []saga.State) {
	for _, id := range sortedKeys(m.records) {
		r := m.records[id]
		s, err := m.definitions.byHash[r.Definition].ReadState(r.State)
		if err != nil {
			panic(err) // cannot happen: this Memory wrote it
		}
		all = append(all, s)
	}
	return all
}

// Log returns the entries of a saga's log.
func (m *Memory) Log(id string) []Entry { return slices.Clone(m.logs[id]) }

// Within runs do on the store. If do returns an error, Within takes back all changes of do.
func (m *Memory) Within(do func(Store) error) error {
	kept := *m
	kept.records, kept.logs, kept.associated = maps.Clone(m.records), maps.Clone(m.logs), maps.Clone(m.associated)
	kept.stash, kept.locks = slices.Clone(m.stash), slices.Clone(m.locks)
	err := do(m)
	if err != nil {
		*m = kept
	}
	return err
}

func (m *Memory) pass(do func(*pass) error) error {
	p := m.definitions.begin(m)
	err := m.Within(func(Store) error {
		err := do(p)
		if err == nil {
			_, err = p.end(context.Background())
		}
		return err
	})
	if err != nil {
		return err
	}
	if m.OnDecided != nil {
		for _, d := range p.decided {
			m.OnDecided(d)
		}
	}
	// A saga that was granted a lock is due at once, and one for which another saga has left an event looks for it at once.
	for _, id := range sortedKeys(p.wake) {
		if err := m.pass(func(p *pass) error { return p.due(context.Background(), id) }); err != nil {
			return err
		}
	}
	for _, s := range p.search {
		err := m.pass(func(p *pass) error { return p.searchStash(context.Background(), s) })
		if err != nil && !errors.As(err, new(unreadable)) { // a program that can read the saga searches again
			return err
		}
	}
	return nil
}

// Now returns the virtual time.
func (m *Memory) Now(context.Context) (time.Time, error) { return m.now, nil }

// Load returns the sagas of ids that exist.
func (m *Memory) Load(_ context.Context, ids []string) (found []Record, _ error) {
	for _, id := range ids {
		if r, ok := m.records[id]; ok {
			found = append(found, r)
		}
	}
	return found, nil
}

// Save writes the changes, or none of them if one is in conflict.
func (m *Memory) Save(_ context.Context, changes []Change) error {
	for _, c := range changes {
		id := c.State.ID()
		r, there := m.records[id]
		var was struct{ Version int }
		if there {
			if err := json.Unmarshal(r.State, &was); err != nil {
				return err
			}
		}
		if was.Version != c.Was {
			return fmt.Errorf("saga %s: %w", id, ErrConflict)
		}
	}
	for _, c := range changes {
		id := c.State.ID()
		state, err := json.Marshal(c.State)
		if err != nil {
			return err
		}
		m.records[id] = Record{ID: id, Definition: c.State.Definition, State: state, WakeAt: c.WakeAt}
		m.logs[id] = append(slices.Clip(m.logs[id]), c.Entries...)
		for _, a := range c.Former {
			m.associated[a] = slices.DeleteFunc(slices.Clone(m.associated[a]), func(other string) bool { return other == id })
		}
		for _, a := range c.Associations {
			if !slices.Contains(m.associated[a], id) {
				m.associated[a] = append(slices.Clip(m.associated[a]), id)
			}
		}
		if c.State.Ended() {
			m.stash = slices.DeleteFunc(slices.Clone(m.stash), func(e Stashed) bool { return e.For == id && (e.Variable == "" || e.Shared) })
			for a, ids := range m.associated {
				m.associated[a] = slices.DeleteFunc(slices.Clone(ids), func(other string) bool { return other == id })
			}
		}
	}
	return nil
}

// Associated returns the ids of sagas by association.
func (m *Memory) Associated(_ context.Context, as []Association) (found map[Association][]string, stashed map[Association]bool, _ error) {
	found, stashed = make(map[Association][]string), make(map[Association]bool)
	for _, a := range as {
		if ids := m.associated[a]; len(ids) > 0 {
			found[a] = slices.Clone(ids)
		}
		stashed[a] = slices.ContainsFunc(m.stash, func(e Stashed) bool { return e.Association == a && e.For == "" })
	}
	return found, stashed, nil
}

// Guard does nothing: a Memory has one user.
func (m *Memory) Guard(context.Context, []Association) error { return nil }

// Stash adds events, and deletes expired ones.
func (m *Memory) Stash(_ context.Context, events []Stashed) error {
	m.stash = slices.DeleteFunc(slices.Clone(m.stash), m.isExpired)
	for _, e := range events {
		if !slices.ContainsFunc(m.stash, func(o Stashed) bool {
			return o.Association == e.Association && o.For == e.For && o.message() == e.message()
		}) {
			m.lastStashed++
			e.Position = m.lastStashed
			m.stash = append(m.stash, e)
		}
	}
	return nil
}

// isExpired reports whether an event for the next saga is over time, and no saga has its association.
func (m *Memory) isExpired(e Stashed) bool {
	return e.For == "" && !e.Expires.After(m.now) && len(m.associated[e.Association]) == 0
}

// StashBytes sums the sizes of the events.
func (m *Memory) StashBytes(_ context.Context, a Association, ids []string, e saga.Event) (map[string]int64, error) {
	bytes := make(map[string]int64)
	for _, o := range m.stash {
		if o.Association != a || o.message() == messageOf(e) || m.isExpired(o) {
			continue
		}
		text, err := json.Marshal(o.Event)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if o.For == "" || o.For == id {
				bytes[id] += int64(len(text))
			}
		}
	}
	return bytes, nil
}

// FindStashed deletes the expired events of fresh, and keeps the events of the key for the saga.
func (m *Memory) FindStashed(_ context.Context, id string, fresh []Association, q StashQuery) (found []Stashed, _ error) {
	m.stash = slices.DeleteFunc(slices.Clone(m.stash), func(e Stashed) bool { return slices.Contains(fresh, e.Association) && m.isExpired(e) })
	for i, e := range m.stash {
		if e.Variable == "" && slices.Contains(fresh, e.Association) {
			m.stash[i].For = id
		}
		wanted := func(w Wanted) bool {
			return w.Hop == e.Event.Hop && w.Type == e.Event.Type && (w.Association == e.Association || m.stash[i].For == id)
		}
		kept := id != "" && m.stash[i].For == id
		if e.Position > q.After && (kept && q.Wanted == nil || (kept || e.For == "") && slices.ContainsFunc(q.Wanted, wanted)) {
			found = append(found, m.stash[i])
		}
	}
	return q.inOrder(found, nil), nil
}

// DropStashed deletes the copies of e.
func (m *Memory) DropStashed(_ context.Context, id string, as []Association, e saga.Event) error {
	m.stash = slices.DeleteFunc(slices.Clone(m.stash), func(o Stashed) bool {
		return o.message() == messageOf(e) && (o.For == id || o.For == "" && slices.Contains(as, o.Association))
	})
	return nil
}

// LeftBy returns the associations in the order in which their events were stashed.
func (m *Memory) LeftBy(_ context.Context, id string) (left []Association, _ error) {
	for _, e := range m.stash {
		if e.For == id && e.Variable != "" && !e.Shared && !slices.Contains(left, e.Association) {
			left = append(left, e.Association)
		}
	}
	return left, nil
}

// OpenStashed changes the events in place: they keep their order.
func (m *Memory) OpenStashed(_ context.Context, id string, messages []saga.Event, after time.Duration) error {
	left := make([]Stashed, 0, len(m.stash))
	for _, e := range m.stash {
		is := messages == nil || slices.ContainsFunc(messages, func(o saga.Event) bool { return messageOf(o) == e.message() })
		if e.For == id && e.Variable != "" && !e.Shared && is {
			e.For, e.Expires = "", m.now.Add(after)
			if slices.ContainsFunc(m.stash, func(o Stashed) bool {
				return o.For == "" && o.Association == e.Association && o.message() == e.message()
			}) {
				continue
			}
		}
		left = append(left, e)
	}
	m.stash = left
	return nil
}

// Lock adds saga id to the queue for the lock name, unless id is in a queue already. It reports whether id is the first of its queue.
func (m *Memory) Lock(ctx context.Context, name, id string) (bool, error) {
	if !slices.ContainsFunc(m.locks, func(l memoryLock) bool { return l.id == id }) {
		m.locks = append(m.locks, memoryLock{name, id})
	}
	return m.Granted(ctx, id)
}

// Granted reports whether saga id is the first in its queue.
func (m *Memory) Granted(_ context.Context, id string) (bool, error) {
	i := slices.IndexFunc(m.locks, func(l memoryLock) bool { return l.id == id })
	if i < 0 {
		return false, nil
	}
	first := slices.IndexFunc(m.locks, func(l memoryLock) bool { return l.name == m.locks[i].name })
	return first == i, nil
}

// Unlock removes saga id from the queue for its lock. If id had the lock, Unlock returns the next saga of the queue, which has the lock
// now; otherwise it returns none.
func (m *Memory) Unlock(ctx context.Context, id string) ([]string, error) {
	had, _ := m.Granted(ctx, id)
	i := slices.IndexFunc(m.locks, func(l memoryLock) bool { return l.id == id })
	if i < 0 {
		return nil, nil
	}
	name := m.locks[i].name
	m.locks = slices.Delete(m.locks, i, i+1)
	next := slices.IndexFunc(m.locks, func(l memoryLock) bool { return l.name == name })
	if !had || next < 0 {
		return nil, nil
	}
	return []string{m.locks[next].id}, nil
}
