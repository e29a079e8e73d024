package decisions

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/troupe-go/troupe/internal/pgtext"
	"github.com/troupe-go/troupe/saga"
)

// leave does nothing unless saga id has ended. Then it releases the saga's lock, and leaves the events that were kept for it, and that another
// saga may use, to the first other saga of their value that awaits them. Save deletes the others.
func (p *pass) leave(ctx context.Context, id string) error {
	l := p.sagas[id]
	if !l.state.Ended() || l.left {
		return nil
	}
	l.left = true
	if l.unlock { // before the associations are guarded, as a start does: in another order the two could deadlock
		granted, err := p.store.Unlock(ctx, id)
		if err != nil {
			return err
		}
		for _, id := range granted {
			if err := p.grant(ctx, id); err != nil {
				return err
			}
		}
	}
	if !p.awaits(l.state.Saga) {
		return nil
	}
	left, err := p.store.LeftBy(ctx, id)
	if err != nil || len(left) == 0 {
		return err
	}
	return p.leaveEvents(ctx, id, nil, left)
}

// leaveEvents makes events that are kept for saga id, or all of them if events is nil, events for the next saga of the values in left. After this
// transaction, the other running sagas of these values search the stash.
func (p *pass) leaveEvents(ctx context.Context, id string, events []saga.Event, left []Association) error {
	if err := p.store.Guard(ctx, left); err != nil {
		return err
	}
	if err := p.store.OpenStashed(ctx, id, events, p.stashTime(p.sagas[id].d)); err != nil {
		return err
	}
	found, _, err := p.store.Associated(ctx, left)
	if err != nil {
		return err
	}
	for _, a := range left {
		sagas := found[a]
		for other, l := range p.sagas { // associations of this pass, which are not saved yet
			if slices.ContainsFunc(l.known, func(k Association) bool { return stored(k) == stored(a) }) {
				sagas = append(sagas, other)
			}
		}
		if slices.ContainsFunc(sagas, func(other string) bool { return other != id && p.mayRun(other) }) {
			p.searchLater(search{by: stored(a)})
		}
	}
	return nil
}

// stored returns a as it is stored: LeftBy returns stored values.
func stored(a Association) Association {
	a.Value = pgtext.Indexable(a.Value)
	return a
}

// mayRun reports whether saga id of this coordinator has not ended, as far as the pass knows.
func (p *pass) mayRun(id string) bool {
	l := p.sagas[id]
	return l == nil || l.owner == "" && !l.state.Ended()
}

// leaveFormer leaves the stashed events that saga id cannot use any more, since a variable has another value or the saga was moved to another
// definition.
func (p *pass) leaveFormer(ctx context.Context, id string) error {
	l := p.sagas[id]
	now := associations(l)
	is := func(a Association) bool { return slices.Contains(now, a) }
	if !l.moved && !slices.ContainsFunc(l.known, func(a Association) bool { return !is(a) }) {
		return nil
	}
	for _, a := range l.known {
		if !is(a) && a.Variable != "" {
			l.former = append(l.former, a)
		}
	}
	l.fresh = slices.DeleteFunc(l.fresh, func(a Association) bool { return !is(a) })
	l.known, l.moved = slices.DeleteFunc(l.known, func(a Association) bool { return !is(a) }), false
	kept, err := p.store.FindStashed(ctx, id, nil, StashQuery{})
	if err != nil {
		return err
	}
	var left []Association
	var events []saga.Event
	for _, e := range kept {
		if e.Shared || e.Variable == "" || slices.ContainsFunc(l.d.Awaited(), func(a saga.Answer) bool { return wantOf(l, "", a).finds(e.Event) }) {
			continue
		}
		events = append(events, e.Event)
		if !slices.Contains(left, e.Association) {
			left = append(left, e.Association)
		}
	}
	if len(events) == 0 {
		return nil
	}
	return p.leaveEvents(ctx, id, events, left)
}

// awaits reports whether sagas of the type name may await events, by any known definition. If it is false, an ended saga leaves no event: either it
// has kept none, or it was moved, and leaveFormer has left them then.
func (p *pass) awaits(name string) (is bool) {
	if len(p.names) == 0 { // an operator's program, which knows only the definitions of the sagas that it has loaded
		return true
	}
	p.awaiting(func(other string, awaited []saga.Answer, _ time.Duration) {
		is = is || other == name && len(awaited) > 0
	})
	return is
}

// search is a search of the stash: by all running sagas of the value by, as it is stored, or by the saga id.
type search struct {
	by Association
	id string
}

// searchLater schedules search-stash for s.
func (p *pass) searchLater(s search) {
	if !slices.Contains(p.search, s) {
		p.search = append(p.search, s)
	}
}

// searchStash applies to the sagas of s the stashed events that they await now.
func (p *pass) searchStash(ctx context.Context, s search) error {
	if s.id == "" {
		return p.searchValue(ctx, s.by)
	}
	if err := p.load(ctx, []string{s.id}); err != nil {
		return err
	}
	p.sagas[s.id].searched = nil
	return p.unstash(ctx, -1, s.id)
}

// searchValue gives the events that are stashed for the next saga of a value to the running sagas that await them now. It loads all sagas of the
// value, as an event does, since only a saga that is locked cannot begin to await an event at the same time. If one of them cannot be read, each
// saga searches by itself after this transaction, so that the others get their events. So does each saga that is left when the decisions exceed
// maxDecided.
func (p *pass) searchValue(ctx context.Context, by Association) error {
	found, stashed, err := p.store.Associated(ctx, []Association{by})
	if err != nil || !stashed[by] {
		return err
	}
	ids := found[by]
	err = p.load(ctx, slices.Clone(ids))
	if errors.As(err, new(unreadable)) {
		for _, id := range ids {
			p.searchLater(search{id: id})
		}
		return nil
	}
	if err != nil {
		return err
	}
	return p.searchFor(ctx, -1, by, ids)
}

// searchFor gives the events that are stashed for the next saga of a value to the sagas of ids that await them now. by is the value as it is stored.
// The events are read once, and not for each saga, and only the ones that a saga awaits now: there may be thousands of sagas, and megabytes of
// events that none of them awaits yet.
func (p *pass) searchFor(ctx context.Context, message int, by Association, ids []string) error {
	var wants []want
	for _, id := range ids {
		for _, w := range wantsOf(p.sagas[id]) {
			if w.Association = stored(w.Association); w.Association == by && !slices.Contains(wants, w) {
				wants = append(wants, w)
			}
		}
	}
	if len(wants) == 0 {
		return nil
	}
	events, err := p.store.FindStashed(ctx, "", nil, StashQuery{Wanted: wantedBy(wants)})
	if err != nil {
		return err
	}
	for _, id := range ids {
		l := p.sagas[id]
		awaits := func(e Stashed) bool {
			return slices.ContainsFunc(wantsOf(l), func(w want) bool { return stored(w.Association) == by && w.finds(e.Event) })
		}
		if !slices.ContainsFunc(events, awaits) {
			continue
		}
		if message < 0 && p.size > maxDecided {
			p.searchLater(search{id: id})
			continue
		}
		l.searched = slices.DeleteFunc(l.searched, func(w want) bool { return stored(w.Association) == by })
		if err := p.unstash(ctx, message, id); err != nil {
			return err
		}
		events = slices.DeleteFunc(events, func(e Stashed) bool {
			done := p.decisionOn(id, e.Event)
			return done != nil && done.Effects.Ignored == ""
		})
	}
	return nil
}

// stashTime returns the time for which an event that an ended saga of d has left is stashed: the longest time of all definitions of its
// type.
func (p *pass) stashTime(d *saga.Definition) time.Duration {
	longest := cmp.Or(time.Duration(d.Spec().Stash), defaultStash)
	p.awaiting(func(other string, _ []saga.Answer, stash time.Duration) {
		if other == d.Spec().Saga {
			longest = max(longest, stash)
		}
	})
	return longest
}
