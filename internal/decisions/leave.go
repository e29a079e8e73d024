package decisions

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// leave passes on the events that saga id has kept and cannot use any more and, when the saga has ended, its lock.
func (p *pass) leave(ctx context.Context, message int, id string) error {
	l := p.sagas[id]
	left, locked := l.left, l.unlock
	l.left, l.unlock = nil, false
	var granted []string
	if locked { // before the associations are guarded, as a start does: in another order the two could deadlock
		var err error
		if granted, err = p.store.Unlock(ctx, id); err != nil {
			return err
		}
	}
	for _, e := range left {
		if err := p.store.Guard(ctx, []Association{e.Association}); err != nil {
			return err
		}
		var err error
		if e.Expires.IsZero() {
			t := target{message: message, event: e.Event, by: e.Association, stash: p.stashTime(l.d, e)}
			t.event.Ahead = true
			err = p.passOn(ctx, t, id, granted)
		} else { // it was stashed for this saga, which has ended by one of the other stashed events
			err = p.store.Stash(ctx, []Stashed{e})
		}
		if err != nil {
			return err
		}
	}
	for _, id := range granted {
		if err := p.grant(ctx, message, id); err != nil {
			return err
		}
	}
	return nil
}

// passOn gives the event of t, which the saga from has left, to the other sagas of its value that run and do not ignore it. If there is none,
// it stashes the event for the next saga. It also stashes the event if one of them is in granted: grant gives it to that saga next. If one of
// them cannot be read, the event is tried again for each of them by itself, since the saga that has left it does not depend on them.
func (p *pass) passOn(ctx context.Context, t target, from string, granted []string) error {
	found, err := p.store.Associated(ctx, []Association{t.by})
	if err != nil {
		return err
	}
	candidates := slices.DeleteFunc(slices.Clone(found[t.by]), func(id string) bool {
		l := p.sagas[id]
		return id == from || l != nil && l.state.Version > 0 && (l.state.Ended() || !slices.Contains(associations(l), t.by))
	})
	if slices.ContainsFunc(candidates, func(id string) bool { return slices.Contains(granted, id) }) {
		return p.stash(ctx, t)
	}
	ids, err := p.observers(ctx, t)
	if errors.As(err, new(unreadable)) {
		t.event.Single = len(candidates) == 1
		for _, t.id = range candidates {
			p.retryLater(t)
		}
		return nil
	}
	if err != nil {
		return err
	}
	ids = p.takers(slices.DeleteFunc(ids, func(id string) bool { return id == from }), t.event)
	if len(ids) == 0 {
		return p.stash(ctx, t)
	}
	return p.give(ctx, t, ids)
}

// stashTime returns the time for which e, which a saga of d has left, is stashed: the longest time of all versions that await it.
func (p *pass) stashTime(d *saga.Definition, e Stashed) time.Duration {
	longest := cmp.Or(time.Duration(d.Spec().Stash), defaultStash)
	p.awaiting(func(name string, awaited []saga.Answer, stash time.Duration) {
		m := Message{Hop: e.Event.Hop, Type: e.Event.Type, Fields: e.Event.Fields}
		if name == e.Saga && slices.Contains(associationsOf(name, awaited, m), e.Association) {
			longest = max(longest, stash)
		}
	})
	return longest
}

// grant wakes saga id, which has been granted its lock, and gives it the stashed events that it awaits: an earlier saga of its value has left
// them.
func (p *pass) grant(ctx context.Context, message int, id string) error {
	err := p.load(ctx, []string{id})
	if errors.As(err, new(unreadable)) { // the saga that ends does not depend on it
		p.unread = append(p.unread, id)
		return nil
	}
	if err != nil {
		return err
	}
	p.wake[id] = true
	l := p.sagas[id]
	l.known, l.granted = nil, true
	return p.unstash(ctx, message, id)
}

// leftBy returns e, an event that l has not used, once for each association in before that has a variable and whose value e has.
func leftBy(l *loaded, before []Association, e saga.Event) (left []Stashed) {
	for _, by := range associationsOf(l.state.Saga, l.d.Awaited(), Message{Hop: e.Hop, Type: e.Type, Fields: e.Fields}) {
		if by.Variable != "" && slices.Contains(before, by) {
			left = append(left, Stashed{Association: by, Event: e})
		}
	}
	return left
}
