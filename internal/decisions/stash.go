package decisions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
)

// stash stashes the event of t, whose association is guarded.
func (p *pass) stash(ctx context.Context, t target) error {
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

// mostStashed limits the bytes of the events that are stashed for one association: the start of the saga reads all of them into memory.
const mostStashed = 8 << 20

// noRoom returns the reason why an event cannot be stashed, or an empty text if it can. The first event of an association is always
// stashed.
func (p *pass) noRoom(ctx context.Context, e Stashed) (why string, err error) {
	bytes, err := p.store.StashBytes(ctx, e.Association)
	if err != nil || bytes == 0 {
		return "", err
	}
	text, err := json.Marshal(e.Event)
	if err == nil && bytes+int64(len(text)) > mostStashed {
		why = fmt.Sprintf("%s of %s waits for a saga that has not started, like other events with %d bytes: at most %d bytes are kept",
			e.Event.Type, e.Event.Hop, bytes, mostStashed)
	}
	return why, err
}

// unkept handles an event that cannot be stashed, for the reason why. If the message has no other target, the error makes it a dead
// letter. Otherwise the reason is logged.
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

// unstash applies to a saga the events that were stashed for its new associations. Such an event may set a variable and so add another
// association. unstash ends when no association is new.
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
			break
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
			if p.used(id, e.Event) {
				continue
			}
			if l.state.Ended() && e.Variable != "" {
				l.left = append(l.left, e)
				continue
			}
			e.Event.Single, e.Event.Ahead = true, l.granted
			if fx := p.decide(message, id, e.Event); fx.Refused != "" {
				p.retryLater(target{message: message, id: id, event: e.Event})
			}
		}
	}
	return p.leave(ctx, message, id)
}

// used reports whether the pass has decided on e for saga id before. An event that finds a saga by two variables comes twice.
func (p *pass) used(id string, e saga.Event) bool {
	return e.Message != "" && slices.ContainsFunc(p.decided, func(d Decided) bool {
		return d.ID == id && d.Event.Kind == saga.Observed && d.Event.Message == e.Message && d.Event.Hop == e.Hop && d.Event.Type == e.Type
	})
}
