package decisions

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/troupe-go/troupe/saga"
)

// leave passes on what saga id had and does not need any more: the events that it has not used and, when it has ended, its lock.
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
			err = p.passOn(ctx, t, granted)
		} else { // it was stashed before, and no saga of its value has begun since
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

// passOn gives the event of t, which a saga has left, to the sagas that it finds now. It stashes the event if there is none, or if one of
// them is in granted or all of them wait for their locks: the first of these sagas that is granted its lock takes the event. If one of them
// cannot be read, the event is tried again for each of them by itself, since the saga that has left it does not depend on them.
func (p *pass) passOn(ctx context.Context, t target, granted []string) error {
	found, err := p.store.Associated(ctx, []Association{t.by})
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(found[t.by]), func(id string) bool {
		l := p.sagas[id]
		return l != nil && l.state.Version > 0 && (l.state.Ended() || !slices.Contains(associations(l), t.by))
	})
	if slices.ContainsFunc(others, func(id string) bool { return slices.Contains(granted, id) }) {
		return p.stash(ctx, t)
	}
	ids, err := p.observers(ctx, t)
	if errors.As(err, new(unreadable)) {
		t.event.Single = len(others) == 1
		for _, t.id = range others {
			p.retryLater(t)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(ids, func(id string) bool { return p.sagas[id].state.Status != saga.Waiting }) {
		return p.stash(ctx, t)
	}
	return p.observe(ctx, t)
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

// leftBy returns e, an event that l has not used, once for each of the associations in finds by whose variable e has found l.
func leftBy(l *loaded, finds []Association, e saga.Event) (left []Stashed) {
	for _, by := range associationsOf(l.state.Saga, l.d.Awaited(), Message{Hop: e.Hop, Type: e.Type, Fields: e.Fields}) {
		if by.Variable != "" && slices.Contains(finds, by) {
			left = append(left, Stashed{Association: by, Event: e})
		}
	}
	return left
}
