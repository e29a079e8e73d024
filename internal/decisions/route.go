package decisions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
)

// target is an event, with the saga that it is for, or with the association that finds its sagas.
type target struct {
	message int
	event   saga.Event
	id      string           // the saga, if it is known
	by      Association      // how it is found, if it is not known
	d       *saga.Definition // of the saga that it starts
	stash   time.Duration    // how long the event is kept if no saga is found: the longest time among the versions that await it; 0: not at all
	lock    string           // the name that the saga which it starts locks
	start   saga.Event       // the start with the message's fields, where event has the saga's variables
	// alone is true if the message has no other target.
	alone bool
	// unreadable is the Message's, set for its answer only.
	unreadable error
	// tries counts how often the event came before its saga or its step.
	tries int
	// answered is the saga that gets the event as an answer, and so does not get it as an awaited event too.
	answered string
}

// targets returns the sagas that m is for: the one that it answers and, since an answer is also an event, the sagas that it
// starts and the others that await it. A start that cannot be evaluated does not affect the others.
func (p *pass) targets(ctx context.Context, i int, m Message) (ts []target, err error) {
	answered := ""
	if m.SagaID != "" && m.SagaStep != "" {
		answered = m.SagaID
		// The type does not matter: a saga of a type that this process does not have, no longer or not yet, is ours if it is
		// stored as ours.
		ts = append(ts, target{message: i, id: m.SagaID, unreadable: m.Unreadable, event: saga.Event{
			Kind: saga.Answered, Step: m.SagaStep, Operation: m.SagaOperation, Epoch: m.Epoch, Outcome: m.Outcome,
			Hop: m.Hop, Type: m.Type, Fields: m.Fields, Reason: m.Reason, Message: m.ID,
		}})
	}
	var failed []target
	var failure error
	for _, name := range p.names {
		t, starts, err := startedBy(p.current[name], i, m, func() (time.Time, error) { return p.clock(ctx) })
		switch {
		case err != nil:
			failure, failed = err, append(failed, t)
		case starts:
			ts = append(ts, t)
		}
	}
	var all []Association
	var unfound error
	p.awaiting(func(name string, awaited []saga.Answer, stash time.Duration) { // also older ones, whose instances still run
		for _, by := range associationsOf(name, awaited, m) {
			if by.Value == "" {
				if stash > 0 {
					unfound = noValue(by, m)
				}
				continue
			}
			if by.Variable == "" && by.Saga+"/"+by.Value == answered {
				continue
			}
			if slices.Contains(all, by) {
				same := slices.IndexFunc(ts, func(t target) bool { return t.by == by })
				ts[same].stash = max(ts[same].stash, stash)
				continue
			}
			all = append(all, by)
			ts = append(ts, target{message: i, by: by, stash: stash, answered: answered, event: saga.Event{
				Kind: saga.Observed, Hop: m.Hop, Type: m.Type, Key: keyOf(m), Fields: m.Fields, Message: m.ID, Answers: answered,
			}})
		}
	})
	if len(ts)+len(failed) == 0 {
		return nil, unfound
	}
	if len(ts)+len(failed) == 1 {
		for k := range ts {
			ts[k].alone = true
		}
		return ts, failure
	}
	for _, t := range failed {
		p.setApart(t)
	}
	return ts, nil
}

// startedBy returns the start of a saga of d by m, and whether m starts one.
func startedBy(d *saga.Definition, i int, m Message, now func() (time.Time, error)) (t target, starts bool, err error) {
	t = target{message: i, d: d, start: saga.Event{
		Kind: saga.Started, Hop: m.Hop, Type: m.Type, Fields: m.Fields, Message: m.ID, Correlation: m.Correlation,
	}}
	data, starts, err := d.StartedBy(m.Hop, m.Type, m.Fields, now)
	if err != nil {
		return t, false, fmt.Errorf("start of saga %s by %s: %w", d.Spec().Saga, m.Type, err)
	}
	if !starts {
		return t, false, nil
	}
	is, err := started(d, saga.Event{Hop: m.Hop, Type: m.Type, Fields: data, Message: m.ID, Correlation: m.Correlation})
	if err != nil {
		return t, false, fmt.Errorf("start by %s: %w", m.Type, err)
	}
	is.message, is.start = i, t.start
	return is, true, nil
}

// noValue returns the error for an event that no saga can get, since it lacks the value that finds them.
func noValue(by Association, m Message) error {
	lacks := "it has no key, or one that is not UTF-8"
	if by.Variable != "" {
		lacks = "its field for the variable " + by.Variable + " is null, empty or missing"
	}
	return fmt.Errorf("saga %s awaits %s of %s and cannot be found: %s; redrive the event with a value, or discard it", by.Saga, m.Type, m.Hop, lacks)
}

// associationsOf returns the associations by which m finds sagas of a type that await these events. An association without a value finds none.
func associationsOf(name string, awaited []saga.Answer, m Message) (all []Association) {
	for _, a := range awaited {
		if a.Hop != m.Hop || a.Event != m.Type {
			continue
		}
		by := Association{Saga: name, Value: *keyOf(m)}
		if a.By != nil {
			by.Variable, by.Value = a.By.Variable, expr.Text(m.Fields[a.By.Field])
		}
		if !slices.Contains(all, by) {
			all = append(all, by)
		}
	}
	return all
}

// keyOf returns the key of m for the log, which cannot hold every key. The key of a saga can be held.
func keyOf(m Message) *string {
	if !pgtext.Fits(m.Key) {
		return new(string)
	}
	return &m.Key
}

// find loads all sagas that targets are for, at once, and sets the ids of targets that are found by the saga's key. A target
// that is found by a variable may be for several sagas; observe finds them.
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

// observe applies an event to the sagas that it is for, or stashes it if there is none.
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
		if fx := p.decide(t.message, id, t.event); fx.Refused != "" {
			one := t
			one.id, one.alone = id, t.alone && len(ids) == 1
			if err := p.failed(one, fx.Refused); err != nil {
				return err
			}
		}
		if err := p.unstash(ctx, t.message, id); err != nil {
			return err
		}
	}
	if len(ids) > 0 || t.stash == 0 {
		return nil
	}
	now, err := p.clock(ctx)
	if err != nil {
		return err
	}
	kept := Stashed{Association: t.by, Event: t.event, Expires: now.Add(t.stash)}
	if why, err := p.noRoom(ctx, kept); why != "" || err != nil {
		return errors.Join(err, p.unkept(t, why))
	}
	p.stashed = append(p.stashed, kept)
	return p.store.Stash(ctx, []Stashed{kept})
}

// mostStashed limits the bytes of the events that are kept for a saga that has not started, since its start reads all of them into memory.
const mostStashed = 8 << 20

// noRoom returns the reason why an event cannot be kept, or an empty text. The first event of an association is always kept.
func (p *pass) noRoom(ctx context.Context, e Stashed) (why string, err error) {
	bytes, err := p.store.StashBytes(ctx, e.Association)
	if err != nil || bytes == 0 {
		return "", err
	}
	text, err := json.Marshal(e.Event)
	if err == nil && bytes+int64(len(text)) > mostStashed {
		why = fmt.Sprintf("%s of %s came before its saga started, like other events with %d bytes: at most %d bytes are kept",
			e.Event.Type, e.Event.Hop, bytes, mostStashed)
	}
	return why, err
}

// unkept handles an event for which there is no room: the message becomes a dead letter, unless another saga has taken it.
func (p *pass) unkept(t target, why string) error {
	if why == "" {
		return nil
	}
	if t.alone {
		return at(t.message, retry.Permanent(fmt.Errorf("saga %s: %w: %s", t.by.Saga, ErrRefused, why)))
	}
	p.notKept = append(p.notKept, why)
	return nil
}

// awaitable reports whether t's saga may still come: it does not exist, rather than having ended.
func (p *pass) awaitable(t target) bool { return t.id == "" || p.sagas[t.id].state.Version == 0 }

// observers returns the sagas that t is for, as far as they exist.
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
			delete(p.sagas, id) // another transaction has started it since it was loaded
		}
	}
	for id, l := range p.sagas { // not saved yet
		if l.state.Version > 0 && slices.Contains(l.known, t.by) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if err := p.load(ctx, slices.Clone(ids)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { // an operator has set the variable since, or the saga has ended in this pass
		l := p.sagas[id]
		took := slices.ContainsFunc(p.decided, func(d Decided) bool { return d.ID == id && d.Message == t.message }) // by another association
		return l.d != nil && !took && (l.state.Ended() || !slices.Contains(associations(l), t.by))
	}), nil
}

// unstash applies to a saga the events that came before they could find it.
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
		for i, e := range events {
			if l.state.Ended() && e.Variable != "" { // as an event that comes when the saga has ended
				if err := p.store.Stash(ctx, events[i:i+1]); err != nil {
					return err
				}
				continue
			}
			if fx := p.decide(message, id, e.Event); fx.Refused != "" {
				p.setApart(target{message: message, id: id, event: e.Event})
			}
		}
	}
	return nil
}

// associations returns all associations by which events find l now.
func associations(l *loaded) (all []Association) {
	for _, a := range l.d.Awaited() {
		by := Association{Saga: l.state.Saga, Value: l.state.Key}
		if a.By != nil {
			by.Variable, by.Value = a.By.Variable, expr.Text(l.state.Data[a.By.Variable])
		}
		if by.Value != "" && !slices.Contains(all, by) {
			all = append(all, by)
		}
	}
	return all
}
