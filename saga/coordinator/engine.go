package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
)

// A Message is what came from a hop, read.
type Message struct {
	ID      string
	Hop     string // the name
	Type    string
	Key     string
	Outcome string
	// SagaID, SagaStep and SagaOperation are of answers.
	SagaID, SagaStep, SagaOperation string
	// Epoch of an answer is that of the command it answers.
	Epoch  int
	Fields map[string]any
	// Reason says of an exhausted event why.
	Reason string
}

// A Decided is what followed from one event for one saga.
type Decided struct {
	// Message is the index of the message that it followed from; -1: none did.
	Message int
	ID      string
	Event   saga.Event
	State   saga.State
	Effects saga.Effects
}

// definitions are those that are known: of each saga the one that new instances get, and all by their hashes.
type definitions struct {
	current map[string]*saga.Definition
	names   []string // of current, sorted
	mu      sync.RWMutex
	byHash  map[string]*saga.Definition // guarded by mu
	all     []*saga.Definition          // of byHash, by saga and hash; guarded by mu
	// find gets one that is not known, of a saga that somebody else started.
	find func(ctx context.Context, hash string) (*saga.Definition, error)
}

func newDefinitions(defs []*saga.Definition) (*definitions, error) {
	ds := &definitions{current: make(map[string]*saga.Definition), byHash: make(map[string]*saga.Definition)}
	for _, d := range defs {
		name := d.Spec().Saga
		if ds.current[name] != nil {
			return nil, fmt.Errorf("two definitions of saga %s: want the one that new instances get", name)
		}
		ds.current[name] = d
		ds.byHash[d.Hash()] = d
		ds.names = append(ds.names, name)
	}
	slices.Sort(ds.names)
	ds.sort()
	return ds, nil
}

// known are all definitions that this process has met, in an order that does not depend on when.
func (ds *definitions) known() []*saga.Definition {
	ds.mu.RLock()
	defer ds.mu.RUnlock()
	return ds.all
}

func (ds *definitions) sort() {
	ds.all = slices.SortedFunc(maps.Values(ds.byHash), func(a, b *saga.Definition) int {
		return cmp.Or(cmp.Compare(a.Spec().Saga, b.Spec().Saga), cmp.Compare(a.Hash(), b.Hash()))
	})
}

func (ds *definitions) of(ctx context.Context, hash string) (*saga.Definition, error) {
	ds.mu.RLock()
	d := ds.byHash[hash]
	ds.mu.RUnlock()
	if d != nil {
		return d, nil
	}
	if ds.find == nil {
		return nil, fmt.Errorf("definition %s is not known", hash)
	}
	d, err := ds.find(ctx, hash)
	if err == nil {
		ds.mu.Lock()
		ds.byHash[hash] = d
		ds.sort()
		ds.mu.Unlock()
	}
	return d, err
}

// concern says whether an event that answers no command may start or move a saga.
func (ds *definitions) concern(hop, event string) bool {
	for _, d := range ds.known() {
		if d.Concerns(hop, event) {
			return true
		}
	}
	return false
}

// pass is one transaction's decisions.
type pass struct {
	*definitions
	store Store
	now   time.Time

	sagas   map[string]*loaded
	decided []Decided
	wake    map[string]bool // sagas whose deadlines are to be looked at once more, at once
}

// loaded is a saga in a pass. A State of version 0 is none yet.
type loaded struct {
	d       *saga.Definition
	state   saga.State
	was     int
	stored  time.Time // Record.WakeAt
	wakeAt  time.Time // the same, unless that has come
	entries []Entry
	known   []Association // those it had, or has got in this pass
	fresh   []Association
}

func (ds *definitions) begin(store Store) *pass {
	return &pass{definitions: ds, store: store, sagas: make(map[string]*loaded), wake: make(map[string]bool)}
}

// target is an event on its way to the sagas that it is for.
type target struct {
	message int
	event   saga.Event
	id      string      // the saga, where it is known
	by      Association // how it is found, where it is not
	d       *saga.Definition
	// answered is the saga that has the event as an answer, and does not await it as well.
	answered string
}

// messages takes what came, in this order.
func (p *pass) messages(ctx context.Context, ms []Message) error {
	var targets []target
	for i, m := range ms {
		ts, err := p.targets(i, m)
		if err != nil {
			return at(i, retry.Permanent(err))
		}
		targets = append(targets, ts...)
	}
	if err := p.find(ctx, targets); err != nil {
		return err
	}
	for _, t := range targets {
		if err := p.take(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// failedAt says which message could not be decided; -1: it was none.
type failedAt struct {
	message int
	error
}

func (f failedAt) Unwrap() error { return f.error }

func at(message int, err error) error { return failedAt{message, err} }

// targets says for which sagas m is: the one that it answers, and, as it is an event like any other, those that it starts
// and others that await it.
func (p *pass) targets(i int, m Message) (ts []target, err error) {
	answered := ""
	if m.SagaID != "" && m.SagaStep != "" {
		answered = m.SagaID
		// Whatever type it is of: one that this process no longer has, or not yet, is ours if it is stored as ours.
		ts = append(ts, target{message: i, id: m.SagaID, event: saga.Event{
			Kind: saga.Answered, Step: m.SagaStep, Operation: m.SagaOperation, Epoch: m.Epoch, Outcome: m.Outcome,
			Hop: m.Hop, Type: m.Type, Fields: m.Fields, Reason: m.Reason, Message: m.ID,
		}})
	}
	for _, name := range p.names {
		d := p.current[name]
		data, starts, err := d.StartedBy(m.Hop, m.Type, m.Fields)
		if err != nil {
			return nil, fmt.Errorf("start of saga %s by %s: %w", name, m.Type, err)
		}
		if starts {
			key, data, err := d.Start(data)
			if err != nil {
				return nil, fmt.Errorf("start by %s: %w", m.Type, err)
			}
			ts = append(ts, target{message: i, id: name + "/" + key, d: d, event: saga.Event{
				Kind: saga.Started, Hop: m.Hop, Type: m.Type, Fields: data, Message: m.ID,
			}})
		}
	}
	var all []Association
	for _, d := range p.known() { // the older ones too, whose instances still run
		for _, by := range awaits(d, m) {
			if slices.Contains(all, by) || by.Variable == "" && by.Saga+"/"+by.Value == answered {
				continue
			}
			all = append(all, by)
			ts = append(ts, target{message: i, by: by, d: d, answered: answered, event: saga.Event{
				Kind: saga.Observed, Hop: m.Hop, Type: m.Type, Fields: m.Fields, Message: m.ID,
			}})
		}
	}
	return ts, nil
}

// awaits says by what sagas of d are found that may await m.
func awaits(d *saga.Definition, m Message) (all []Association) {
	for _, a := range d.Awaited() {
		if a.Hop != m.Hop || a.Event != m.Type {
			continue
		}
		by := Association{Saga: d.Spec().Saga, Value: m.Key}
		if a.By != nil {
			by.Variable, by.Value = a.By.Variable, text(m.Fields[a.By.Field])
		}
		if by.Value != "" && !slices.Contains(all, by) {
			all = append(all, by)
		}
	}
	return all
}

// text is a value as associations compare it.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return fmt.Sprint(v)
}

// find loads all sagas that targets are for, at once, and sets the ids of those that are found by association. What is for
// several sagas becomes several targets when it is taken.
func (p *pass) find(ctx context.Context, targets []target) error {
	var ids []string
	var by []Association
	for i, t := range targets {
		switch {
		case t.id != "":
			ids = append(ids, t.id)
		case t.by.Variable == "":
			targets[i].id = t.by.Saga + "/" + t.by.Value
			ids = append(ids, targets[i].id)
		case !slices.Contains(by, t.by):
			by = append(by, t.by)
		}
	}
	if len(by) > 0 {
		found, err := p.store.Associated(ctx, by)
		if err != nil {
			return err
		}
		for _, a := range by {
			ids = append(ids, found[a]...)
		}
	}
	return p.load(ctx, ids)
}

// load gets the sagas that are not there yet.
func (p *pass) load(ctx context.Context, ids []string) error {
	slices.Sort(ids)
	ids = slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return p.sagas[id] != nil })
	if len(ids) == 0 {
		return nil
	}
	records, err := p.store.Load(ctx, ids)
	if err == nil {
		p.now, err = p.store.Now(ctx)
	}
	if err != nil {
		return err
	}
	for _, r := range records {
		d, err := p.of(ctx, r.Definition)
		if err != nil {
			return fmt.Errorf("saga %s: %w", r.ID, err)
		}
		s, err := d.ReadState(r.State)
		if err != nil {
			return err
		}
		l := &loaded{d: d, state: s, was: s.Version, stored: r.WakeAt, wakeAt: r.WakeAt}
		l.known = associations(l)
		p.sagas[r.ID] = l
	}
	for _, id := range ids {
		if p.sagas[id] == nil {
			p.sagas[id] = &loaded{}
		}
	}
	return nil
}

func (p *pass) take(ctx context.Context, t target) error {
	switch t.event.Kind {
	case saga.Started:
		return p.start(ctx, t)
	case saga.Observed:
		return p.observe(ctx, t)
	}
	p.decide(t.message, t.id, t.event)
	return p.unstash(ctx, t.message, t.id)
}

// start begins a saga, unless there is one, and gives it what came before it.
func (p *pass) start(ctx context.Context, t target) error {
	l := p.sagas[t.id]
	if l.state.Version > 0 {
		p.decide(t.message, t.id, t.event) // says why not
		return nil
	}
	l.d = t.d
	lock, err := t.d.Lock(t.event.Fields)
	if err != nil {
		return at(t.message, retry.Permanent(fmt.Errorf("saga %s: lock: %w", t.id, err)))
	}
	if lock != "" {
		granted, err := p.store.Lock(ctx, t.d.Spec().Saga+"/"+lock, t.id)
		if err != nil {
			return err
		}
		t.event.Locked = !granted
	}
	p.decide(t.message, t.id, t.event)
	return p.unstash(ctx, t.message, t.id)
}

// observe brings an event to the sagas that it is for, or keeps it until there is one.
func (p *pass) observe(ctx context.Context, t target) error {
	ids, err := p.observers(ctx, t)
	if err != nil {
		return err
	}
	if len(ids) == 0 && p.awaitable(t) {
		if err := p.store.Guard(ctx, []Association{t.by}); err != nil {
			return err
		}
		if t.by.Variable == "" {
			delete(p.sagas, t.id)
			if err := p.load(ctx, []string{t.id}); err != nil {
				return err
			}
		}
		if ids, err = p.observers(ctx, t); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if id == t.answered {
			continue
		}
		p.decide(t.message, id, t.event)
		if err := p.unstash(ctx, t.message, id); err != nil {
			return err
		}
	}
	if len(ids) > 0 {
		return nil
	}
	if p.now.IsZero() { // nothing was loaded
		if p.now, err = p.store.Now(ctx); err != nil {
			return err
		}
	}
	keep := cmp.Or(time.Duration(t.d.Spec().Stash), time.Hour)
	return p.store.Stash(ctx, []Stashed{{Association: t.by, Event: t.event, Expires: p.now.Add(keep)}})
}

// awaitable says whether t's saga is not there, rather than ended.
func (p *pass) awaitable(t target) bool { return t.id == "" || p.sagas[t.id].state.Version == 0 }

// observers are the sagas that t is for, as far as they are there.
func (p *pass) observers(ctx context.Context, t target) (ids []string, err error) {
	if t.id != "" {
		if p.sagas[t.id].state.Version == 0 {
			return nil, nil
		}
		return []string{t.id}, nil
	}
	found, err := p.store.Associated(ctx, []Association{t.by})
	if err != nil {
		return nil, err
	}
	ids = found[t.by]
	for _, id := range ids {
		if l := p.sagas[id]; l != nil && l.state.Version == 0 {
			delete(p.sagas, id) // it was started by another transaction since it was looked for
		}
	}
	for id, l := range p.sagas { // not saved yet
		if l.state.Version > 0 && slices.Contains(l.known, t.by) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, p.load(ctx, slices.Clone(ids))
}

// unstash gives a saga what came before it could be found.
func (p *pass) unstash(ctx context.Context, message int, id string) error {
	l := p.sagas[id]
	for l.state.Version > 0 && !l.state.Ended() {
		var fresh []Association
		for _, a := range associations(l) {
			if !slices.Contains(l.known, a) {
				fresh = append(fresh, a)
			}
		}
		if len(fresh) == 0 {
			return nil
		}
		l.known = append(l.known, fresh...)
		for _, a := range fresh {
			if a.Variable != "" {
				l.fresh = append(l.fresh, a)
			}
		}
		if err := p.store.Guard(ctx, fresh); err != nil {
			return err
		}
		events, err := p.store.Unstash(ctx, fresh)
		if err != nil {
			return err
		}
		for _, e := range events {
			p.decide(message, id, e.Event)
		}
	}
	return nil
}

// associations are all by which events find l now.
func associations(l *loaded) (all []Association) {
	for _, a := range l.d.Awaited() {
		by := Association{Saga: l.state.Saga, Value: l.state.Key}
		if a.By != nil {
			by.Variable, by.Value = a.By.Variable, text(l.state.Data[a.By.Variable])
		}
		if by.Value != "" && !slices.Contains(all, by) {
			all = append(all, by)
		}
	}
	return all
}

// decide is one event for one saga.
func (p *pass) decide(message int, id string, e saga.Event) saga.Effects {
	l := p.sagas[id]
	if l.d == nil {
		fx := saga.Effects{Ignored: "there is no such saga"}
		p.decided = append(p.decided, Decided{message, id, e, l.state, fx})
		return fx
	}
	s, fx := saga.Decide(l.d, l.state, e, p.now)
	if s.Version > l.state.Version {
		l.entries = append(l.entries, Entry{s.Version, p.now, e, fx.Moments})
	}
	l.state = s
	p.decided = append(p.decided, Decided{message, id, e, s, fx})
	return fx
}

// due brings a saga the deadlines that have come, in their order, and its lock.
func (p *pass) due(ctx context.Context, message int, id string) error {
	if err := p.load(ctx, []string{id}); err != nil {
		return err
	}
	l := p.sagas[id]
	l.wakeAt = time.Time{} // it has come
	if l.d == nil {
		return nil
	}
	if l.state.Status == saga.Waiting {
		granted, err := p.store.Granted(ctx, id)
		if err != nil {
			return err
		}
		if granted {
			p.decide(message, id, saga.Event{Kind: saga.Granted})
		}
	}
	for !l.state.Ended() {
		next, ok := nextDeadline(l.state)
		if !ok || next.At.After(p.now) {
			break
		}
		if fx := p.decide(message, id, saga.Event{Kind: saga.Fired, Deadline: next.Name}); fx.Ignored != "" {
			return fmt.Errorf("saga %s: deadline %s: %s", id, next.Name, fx.Ignored)
		}
	}
	return p.unstash(ctx, message, id)
}

func nextDeadline(s saga.State) (next saga.Armed, ok bool) {
	for _, a := range s.Deadlines {
		if !ok || a.At.Before(next.At) {
			next, ok = a, true
		}
	}
	return next, ok
}

// end gives up locks and saves what was decided. wake are the sagas whose WakeAt is new.
func (p *pass) end(ctx context.Context) (wake []Change, err error) {
	for _, d := range p.decided {
		if !d.Effects.Unlock {
			continue
		}
		granted, err := p.store.Unlock(ctx, d.ID)
		if err != nil {
			return nil, err
		}
		for _, id := range granted {
			if err := p.load(ctx, []string{id}); err != nil {
				return nil, err
			}
			p.wake[id] = true
		}
	}
	var changes []Change
	for _, id := range sortedKeys(p.sagas) {
		l := p.sagas[id]
		at := l.wakeAt
		next, ok := nextDeadline(l.state)
		switch {
		case l.state.Ended() || l.state.Version == 0:
			at = time.Time{}
		case p.wake[id]:
			at = p.now
		case ok && (at.IsZero() || next.At.Before(at)):
			at = next.At
		}
		c := Change{Was: l.was, State: l.state, Entries: l.entries, WakeAt: at, Associations: l.fresh}
		if l.d != nil && !at.Equal(l.wakeAt) || p.wake[id] {
			wake = append(wake, c)
		}
		if len(c.Entries) > 0 || l.d != nil && !at.Equal(l.stored) {
			changes = append(changes, c)
		}
	}
	if len(changes) == 0 {
		return nil, nil
	}
	return wake, p.store.Save(ctx, changes)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
