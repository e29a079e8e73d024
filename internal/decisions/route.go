package decisions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/saga"
)

// target is an event for one saga, or for all sagas that have an association.
type target struct {
	message int
	event   saga.Event
	id      string           // the id of the saga, if it is known
	by      Association      // finds the sagas, if no id is known
	d       *saga.Definition // for a start: the definition of the new saga
	stash   time.Duration    // how long the event is kept if there is no saga: the longest time of all versions that await it; 0: it is not kept
	lock    string           // for a start: the name of the lock that the new saga takes
	start   saga.Event       // for a start by a message: event with the fields of the message, not yet the variables of the saga
	alone   bool             // the message has no other target
	// unreadable is Message.Unreadable. It is set only for the target that the message answers.
	unreadable error
	// tries counts how often the event, an answer, came before its saga or before the command that it answers.
	tries int
	// answered is the id of the saga that gets the message as an answer. That saga does not get it as an awaited event too.
	answered string
	// shared reports that another saga has used the event, or has it too: see Stashed.
	shared bool
	// why is the reason for which the event is tried again, if it is.
	why string
}

// targets returns the targets of m: the saga that m answers, the sagas that m starts, and the sagas that await m. An answer may be all
// three, since it is also an event. A start that cannot be evaluated is tried again by itself, so that it does not fail
// the other targets.
func (p *pass) targets(ctx context.Context, i int, m Message) (ts []target, err error) {
	answered := ""
	if m.SagaID != "" && m.SagaStep != "" {
		answered = m.SagaID
		// The type of the saga is not checked here: if the saga is stored for this coordinator, it gets the answer, even if this
		// process does not know a definition of the type.
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
			t.why = err.Error()
			failure, failed = err, append(failed, t)
		case starts:
			ts = append(ts, t)
		}
	}
	var all []Association
	var unfound error
	p.awaiting(func(name string, awaited []saga.Answer, stash time.Duration) { // also for older definitions, whose sagas still run
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
		p.retryLater(t)
	}
	return ts, nil
}

// startedBy returns the target by which m starts a saga of d, and reports whether m starts one.
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

// noValue returns the error about an event that lacks the value by which it would find its sagas. No saga can get it.
func noValue(by Association, m Message) error {
	lacks := "it has no key, or one that is not UTF-8"
	if by.Variable != "" {
		lacks = "its field for the variable " + by.Variable + " is null, empty or missing"
	}
	return fmt.Errorf("saga %s awaits %s of %s and cannot be found: %s; redrive the event with a value, or discard it", by.Saga, m.Type, m.Hop, lacks)
}

// associationsOf returns the associations by which m finds sagas of the type name, whose definition awaits the events in awaited. An
// association with an empty value finds no saga.
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

// keyOf returns the key of m. It returns an empty text for a key that the log of a saga cannot hold; no saga has such a key.
func keyOf(m Message) *string {
	if !pgtext.Fits(m.Key) {
		return new(string)
	}
	return &m.Key
}

// find loads all sagas of the targets at once. It sets the id of each target that finds its saga by the key. A target that finds its
// sagas by a variable may be for several sagas, so its id stays empty: observe finds these sagas again.
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
		found, _, err := p.store.Associated(ctx, by)
		if err != nil {
			return err
		}
		for _, a := range by {
			ids = append(ids, found[a]...)
		}
	}
	return p.load(ctx, ids)
}

// observe applies an event to each saga that awaits it. If there is no such saga, observe guards the association, which waits until a
// concurrent start has ended, and looks again. If there is still no such saga, observe stashes the event. If events for the next saga of the
// value are stashed, the sagas use these events first: they are older.
func (p *pass) observe(ctx context.Context, t target) error {
	ids, stashed, err := p.observers(ctx, t)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		if err := p.store.Guard(ctx, []Association{t.by}); err != nil {
			return err
		}
		if t.by.Variable == "" {
			delete(p.sagas, t.id)
			if err := p.load(ctx, []string{t.id}); err != nil {
				return err
			}
		}
		if ids, stashed, err = p.observers(ctx, t); err != nil {
			return err
		}
	}
	if stashed && len(ids) > 0 {
		if err := p.searchFor(ctx, t.message, stored(t.by), ids); err != nil {
			return err
		}
		if ids, _, err = p.observers(ctx, t); err != nil {
			return err
		}
	}
	if len(ids) > 0 || t.stash == 0 {
		return p.give(ctx, t, ids)
	}
	return p.stash(ctx, t)
}

// give applies the event of t to the sagas of ids. It stashes the event for each of them that awaits it later. An event that a saga refuses, or
// for which there is no room, is tried again for this saga alone.
func (p *pass) give(ctx context.Context, t target, ids []string) error {
	var early []string
	refused := make(map[string]string)
	claims := 0 // the sagas that use the event, now or later
	for _, id := range ids {
		if id == t.answered {
			continue
		}
		if done := p.decisionOn(id, t.event); done != nil {
			if done.Effects.Ignored == "" && done.Effects.Refused == "" {
				claims++
			}
			continue
		}
		switch fx := p.decide(t.message, id, t.event); {
		case fx.Refused != "":
			refused[id] = fx.Refused
			claims++
		case fx.Early:
			early = append(early, id)
			claims++
			continue
		case fx.Ignored == "":
			claims++
			if err := p.dropCopies(ctx, t, id); err != nil {
				return err
			}
		}
		if err := p.unstash(ctx, t.message, id); err != nil {
			return err
		}
	}
	t.shared = t.shared || claims > 1
	if len(early) > 0 {
		full, err := p.stashFor(ctx, t, early)
		if err != nil {
			return err
		}
		maps.Copy(refused, full)
	}
	t.alone = t.alone && len(ids) == 1
	for _, t.id = range slices.Sorted(maps.Keys(refused)) {
		if err := p.failed(t, refused[t.id]); err != nil {
			return err
		}
	}
	return nil
}

// dropCopies deletes the copies of the event of t that are stashed for saga id, by another association. The saga has used the event. Only this
// pass, or the one that handled the event before it was tried again, may have stashed them.
func (p *pass) dropCopies(ctx context.Context, t target, id string) error {
	stashed := slices.ContainsFunc(p.stashed, func(s Stashed) bool { return s.For == id && s.message() == messageOf(t.event) })
	if !stashed && t.message >= 0 {
		return nil
	}
	return p.store.DropStashed(ctx, id, nil, t.event)
}

// observers returns the ids of the existing sagas that t is for, sorted. stashed reports whether events of their value for the next saga are
// stashed.
func (p *pass) observers(ctx context.Context, t target) (ids []string, stashed bool, err error) {
	if t.id != "" {
		if p.sagas[t.id].state.Version == 0 {
			return nil, false, nil
		}
		return []string{t.id}, false, nil
	}
	found, open, err := p.store.Associated(ctx, []Association{t.by})
	if err != nil {
		return nil, false, err
	}
	ids = found[t.by]
	for _, id := range ids {
		if l := p.sagas[id]; l != nil && l.state.Version == 0 {
			delete(p.sagas, id) // another transaction has started it since: load it again
		}
	}
	for id, l := range p.sagas { // associations of this pass, which are not saved yet
		if l.state.Version > 0 && slices.Contains(l.known, t.by) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if err := p.load(ctx, slices.Clone(ids)); err != nil {
		return nil, false, err
	}
	// Leave out a saga that has ended in this pass, and one whose variable has another value by now.
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		l := p.sagas[id]
		// A saga that took this message by another association, or as an answer, stays in the list, so that the event is not stashed.
		took := id == t.answered || p.decisionOn(id, t.event) != nil
		return l.d != nil && !took && (l.state.Ended() || !slices.Contains(associations(l), t.by))
	}), open[t.by], nil
}
