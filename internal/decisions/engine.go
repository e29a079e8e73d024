package decisions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
)

// A Message is an event of a hop, decoded.
type Message struct {
	ID      string
	Hop     string // the name of the hop
	Type    string
	Key     string
	Outcome string
	// Correlation is the flow's correlation id.
	Correlation string
	// SagaID, SagaStep and SagaOperation are set for answers.
	SagaID, SagaStep, SagaOperation string
	// Epoch is, for an answer, the epoch of the command that it answers. It distinguishes a command from the same one that was sent
	// again.
	Epoch  int
	Fields map[string]any
	// Reason is set for an exhausted event: why the hop gave up the command.
	Reason string
	// Unreadable is the error of an answer whose payload cannot be decoded, so that Fields is empty. It matters only if the saga is
	// stored for this coordinator.
	Unreadable error
}

// A Decided is the decision on one event for one saga.
type Decided struct {
	// Message is the index of the message in the call of Messages; -1: no message caused the decision.
	Message int
	ID      string
	At      time.Time // the time of the decision, by the store's clock
	Event   saga.Event
	State   saga.State // after the decision
	Effects saga.Effects
}

// pass collects the decisions of one transaction in memory. Work is the same transaction with its writes; Memory has a pass without a Work.
type pass struct {
	*Definitions
	store    Store
	now      time.Time
	clockErr error // the error of Store.Now, if clock has called it

	sagas      map[string]*loaded
	decided    []Decided
	decidedFor map[string][]int // the indexes in decided of the decisions for each saga
	size       int              // of the decisions and of the copies of events: see checkSize
	stashed    []Stashed
	// correlation is the correlation id of a saga that Within starts.
	correlation string
	limit       int             // Event.Limit of the decisions
	wake        map[string]bool // the sagas that were granted a lock: End schedules a wake for each, due at once
	// unread holds the sagas that were granted a lock and that this program cannot read. End schedules a wake for each. The wake fails
	// here and becomes a dead letter. It can be redriven when a program runs that can read the saga.
	unread []string
	// afterFirstLoad is set by Work.WithFirstLoad, else nil. messages calls it when the sagas are loaded, before the first decision. An error
	// of afterFirstLoad ends the pass: the coordinator has learned new definitions, and must find the targets again.
	afterFirstLoad func(context.Context) error
	search         []search // the searches of the stash after this pass, since a saga has left events there
	retries        []target // each gets a deadline with a RetryEvent: see retryLater
}

// loaded is a saga in a pass. If the State's version is 0, the saga does not exist yet.
type loaded struct {
	d        *saga.Definition
	state    saga.State
	was      int       // the version when it was loaded
	stored   time.Time // Record.WakeAt
	wakeAt   time.Time // as stored; zero after due has handled the wake
	entries  []Entry
	owner    string        // the other coordinator that has the saga; empty if this one has it
	searched []want        // what the saga awaited when it was loaded, and what unstash has searched the stash for since
	known    []Association // the associations that the saga had when it was loaded, and the ones for which unstash has run since
	fresh    []Association // the associations in known that Save inserts
	moved    bool          // to another definition, and leaveFormer has not run since
	former   []Association // the associations by which events do not find the saga any more
	unlock   bool          // the saga has ended: leave releases its lock
	left     bool          // leave has run, or the saga had ended before
}

func (ds *Definitions) begin(store Store) *pass {
	return &pass{Definitions: ds, store: store, sagas: make(map[string]*loaded), decidedFor: make(map[string][]int), wake: make(map[string]bool)}
}

// messages finds the sagas that ms are for, loads them, and decides on ms in their order.
func (p *pass) messages(ctx context.Context, ms []Message) error {
	var targets []target
	for i, m := range ms {
		ts, err := p.targets(ctx, i, m)
		if p.clockErr != nil {
			return p.clockErr // not an error of the message
		}
		if err != nil {
			return at(i, retry.Permanent(err))
		}
		targets = append(targets, ts...)
	}
	if err := p.find(ctx, targets); err != nil {
		return err
	}
	if p.afterFirstLoad != nil {
		if err := p.afterFirstLoad(ctx); err != nil {
			return err
		}
	}
	p.decided = slices.Grow(p.decided, len(targets))
	for _, t := range targets {
		if err := p.decideTarget(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// clock returns the time of the pass. If no load has read the time yet, clock reads it.
func (p *pass) clock(ctx context.Context) (time.Time, error) {
	if p.now.IsZero() {
		p.now, p.clockErr = p.store.Now(ctx)
	}
	return p.now, p.clockErr
}

// FailedAt is the error about one message: Message is its index, or -1 if there was no message.
type FailedAt struct {
	Message int
	Err     error
}

func (f FailedAt) Error() string { return f.Err.Error() }

func (f FailedAt) Unwrap() error { return f.Err }

func at(message int, err error) error { return FailedAt{message, err} }

// load loads and locks the sagas of ids that the pass does not have yet. An id without a saga gets an empty loaded.
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
		if r.Owner != "" { // for this coordinator the saga does not exist
			p.sagas[r.ID] = &loaded{owner: r.Owner}
			continue
		}
		d, err := p.Of(ctx, r.Definition)
		var mistakes saga.Mistakes
		if errors.As(err, &mistakes) || errors.Is(err, ErrNoDefinition) {
			p.inUse(r.Definition)
			return unreadable{fmt.Errorf("saga %s: %w", r.ID, err)}
		}
		if err != nil {
			return fmt.Errorf("saga %s: %w", r.ID, err)
		}
		s, err := d.ReadState(r.State)
		if err != nil {
			return unreadable{err}
		}
		l := &loaded{d: d, state: s, was: s.Version, stored: r.WakeAt, wakeAt: r.WakeAt}
		l.known, l.searched, l.left = associations(l), wantsOf(l), s.Ended()
		p.sagas[r.ID] = l
	}
	for _, id := range ids {
		if p.sagas[id] == nil {
			p.sagas[id] = &loaded{}
		}
	}
	return nil
}

// unreadable is the error about a saga whose definition or state this program cannot read. It is not permanent: the participant tries the
// message again as its Retry says, and the message's key is held meanwhile. Then the message is a dead letter.
type unreadable struct{ error }

func (u unreadable) Unwrap() error { return u.error }

// decideTarget decides on the event of t.
func (p *pass) decideTarget(ctx context.Context, t target) error {
	switch t.event.Kind {
	case saga.Started:
		return p.start(ctx, t)
	case saga.Observed:
		return p.observe(ctx, t)
	}
	if err := p.loadAgain(ctx, t.id); err != nil {
		return err
	}
	if t.unreadable != nil && p.sagas[t.id].d != nil {
		return at(t.message, t.unreadable)
	}
	switch fx := p.decide(t.message, t.id, t.event); {
	case fx.Refused != "":
		return p.failed(t, fx.Refused)
	case fx.Early && t.unreadable == nil:
		p.retryEarly(t)
	}
	return p.unstash(ctx, t.message, t.id)
}

// loadAgain loads a saga again if an earlier load did not find it. A relay that reads the write-ahead log may publish a command before
// other sessions see the transaction that wrote it. So the answer may come before the saga is visible. loadAgain calls Guard, which
// waits for that transaction, and then loads the saga.
func (p *pass) loadAgain(ctx context.Context, id string) error {
	if p.sagas[id].d != nil {
		return nil
	}
	of, key, found := strings.Cut(id, "/")
	if !found {
		return nil
	}
	if err := p.store.Guard(ctx, []Association{{Saga: of, Value: key}}); err != nil {
		return err
	}
	delete(p.sagas, id)
	return p.load(ctx, []string{id})
}

// start starts the saga of t, unless the saga exists, and applies the events that were stashed for it.
func (p *pass) start(ctx context.Context, t target) error {
	l := p.sagas[t.id]
	if l.state.Version > 0 {
		p.decide(t.message, t.id, t.event) // records why it is ignored
		return nil
	}
	if l.owner != "" {
		return p.failed(t, OwnedBy(l.owner))
	}
	if _, fx := saga.Decide(t.d, l.state, t.event, p.now); fx.Refused != "" { // checked before the saga takes a lock
		p.add(Decided{t.message, t.id, p.now, t.event, l.state, fx})
		return p.failed(t, fx.Refused)
	}
	l.d = t.d
	if t.lock != "" {
		granted, err := p.store.Lock(ctx, t.lock, t.id)
		if err != nil {
			return err
		}
		t.event.Locked = !granted
	}
	p.decide(t.message, t.id, t.event)
	return p.unstash(ctx, t.message, t.id)
}

// OwnedBy returns the reason why a coordinator cannot start a saga: another coordinator, named by owner, has it.
func OwnedBy(owner string) string {
	return "the coordinator " + owner + " has it in the same database: two coordinators of one type of saga need a database each"
}

// decide applies one event to one saga, and adds the decision to the pass, unless the event is an awaited one that is early.
func (p *pass) decide(message int, id string, e saga.Event) saga.Effects {
	l := p.sagas[id]
	if l.d == nil {
		fx := saga.Effects{Ignored: "there is no such saga", Early: e.Kind == saga.Answered && l.owner == "" && p.knows(id)}
		p.add(Decided{message, id, p.now, e, l.state, fx})
		return fx
	}
	if !e.Kind.Action() && (e.Kind != saga.Started || message >= 0) { // a caller gets the error instead
		e.Limit = p.limit
	}
	s, fx := saga.Decide(l.d, l.state, e, p.now)
	if fx.Alert == "" {
		e.Limit = 0 // it made no difference
	}
	if fx.Early && e.Kind == saga.Observed { // nothing is recorded: the caller, give, stashes it
		return fx
	}
	if s.Version > l.state.Version {
		l.entries = append(l.entries, Entry{Version: s.Version, At: p.now, Event: e, Moments: fx.Moments})
	}
	l.state, l.unlock = s, l.unlock || fx.Unlock
	p.add(Decided{message, id, p.now, e, s, fx})
	return fx
}

// add adds a decision to the pass.
func (p *pass) add(d Decided) {
	p.decidedFor[d.ID] = append(p.decidedFor[d.ID], len(p.decided))
	p.decided = append(p.decided, d)
	p.size += d.Effects.Size
}

// due handles a wake of a saga. It applies the grant of the saga's lock, if the saga waits for it and has been granted it, and then
// each deadline that is due, the earliest first.
func (p *pass) due(ctx context.Context, id string) error {
	if err := p.load(ctx, []string{id}); err != nil {
		return err
	}
	l := p.sagas[id]
	l.wakeAt = time.Time{} // end schedules the next wake
	if l.d == nil {
		return nil
	}
	if l.state.Status == saga.Waiting {
		granted, err := p.store.Granted(ctx, id)
		if err != nil {
			return err
		}
		if granted {
			p.decide(-1, id, saga.Event{Kind: saga.Granted})
		}
	}
	// Deadlines are decided on until none is due. A decision may add a deadline, or cancel one.
	for !l.state.Ended() {
		next, ok := nextDeadline(l.state)
		if !ok || next.At.After(p.now) {
			break
		}
		if fx := p.decide(-1, id, saga.Event{Kind: saga.Fired, Deadline: next.Name, Keep: true}); fx.Ignored != "" {
			return fmt.Errorf("saga %s: deadline %s: %s", id, next.Name, fx.Ignored)
		}
	}
	return p.unstash(ctx, -1, id)
}

// nextDeadline returns the earliest deadline that has not fired. An overdue deadline has fired already: it stays in the state until the
// saga can apply it.
func nextDeadline(s saga.State) (next saga.Armed, ok bool) {
	for _, a := range s.Deadlines {
		if a.Overdue {
			continue
		}
		if !ok || a.At.Before(next.At) {
			next, ok = a, true
		}
	}
	return next, ok
}

// end saves the changes. It returns the changes whose wake must be scheduled or
// cancelled.
//
// If a wake has become a dead letter, the next event of the saga schedules another wake, unless the saga's earliest deadline is still the
// one for which the dead letter was sent. In that case only a redrive of the dead letter wakes the saga.
func (p *pass) end(ctx context.Context) (wake []Change, err error) {
	changes := make([]Change, 0, len(p.sagas))
	for _, id := range sortedKeys(p.sagas) {
		l := p.sagas[id]
		at := l.wakeAt
		next, ok := nextDeadline(l.state)
		switch {
		case l.state.Ended() || l.state.Version == 0:
			at = time.Time{}
		case p.wake[id]:
			at = p.now
		case ok && (at.IsZero() || next.At.Before(at) || !at.After(p.now)): // a wake whose time has passed may have become a dead letter
			at = next.At
		}
		c := Change{Was: l.was, State: l.state, Entries: l.entries, WakeAt: at, Associations: l.fresh, Former: l.former}
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
