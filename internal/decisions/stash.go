package decisions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
)

// stash stores the event of t for the next saga of its association. If there is no room, the event is tried again by itself, unless t is the only
// target of its message. The caller has guarded the association.
func (p *pass) stash(ctx context.Context, t target) error {
	full, err := p.stashFor(ctx, t, []string{""})
	why := full[""]
	if err != nil || why == "" {
		return err
	}
	if t.alone {
		return at(t.message, retry.Permanent(fmt.Errorf("saga %s: %w: %s", t.by.Saga, ErrRefused, why)))
	}
	if t.id == "" {
		t.id = t.by.Saga + "/"
	}
	t.why = why
	p.retryLater(t)
	return nil
}

// stashFor stashes the event of t for each saga of ids. An empty id stands for the next saga. It returns the reason for each id for which there is
// no room: the first event is always stashed.
func (p *pass) stashFor(ctx context.Context, t target, ids []string) (full map[string]string, err error) {
	now, err := p.clock(ctx)
	if err != nil {
		return nil, err
	}
	bytes, err := p.store.StashBytes(ctx, t.by, ids, t.event)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(t.event)
	if err != nil {
		return nil, err
	}
	full = make(map[string]string)
	kept := make([]Stashed, 0, len(ids))
	for _, id := range ids {
		if n := bytes[id]; n > 0 && n+int64(len(text)) > mostStashed {
			full[id] = fmt.Sprintf("%s of %s is not kept for its saga: events with %d bytes are kept already, and the limit is %d bytes; redrive it when the saga has used some",
				t.event.Type, t.event.Hop, n, mostStashed)
			continue
		}
		kept = append(kept, Stashed{Association: t.by, Event: t.event, For: id, Shared: t.shared && id != "", Expires: now.Add(t.stash)})
	}
	p.size += len(kept) * len(text)
	if err := p.checkSize(t.message, len(kept) > 1); err != nil {
		return nil, err
	}
	p.stashed = append(p.stashed, kept...)
	for part := range slices.Chunk(kept, 1+mostStashed/len(text)) { // each statement has a limit of bytes
		if err := p.store.Stash(ctx, part); err != nil {
			return nil, err
		}
	}
	return full, nil
}

// mostStashed limits the bytes of the events of one association that are stashed for one saga: a decision of the saga reads all of them into
// memory.
const mostStashed = 8 << 20

// A want is a type of event that a step of a saga awaits now, by an association. For an event that cancels the saga, step is empty. field is the
// event's field for the variable, or empty if the event finds the saga by its key.
type want struct {
	Association
	step, hop, event, field string
}

// finds reports whether e is of the type of w and has its value.
func (w want) finds(e saga.Event) bool {
	if w.hop != e.Hop || w.event != e.Type {
		return false
	}
	if w.Variable == "" {
		return e.Key != nil && *e.Key == w.Value
	}
	return w.Value != "" && expr.Text(e.Fields[w.field]) == w.Value
}

// wantsOf returns what l awaits now.
func wantsOf(l *loaded) (all []want) {
	if l.state.Version == 0 {
		return nil
	}
	awaited := l.d.AwaitedNow(l.state)
	for _, step := range sortedKeys(awaited) {
		for _, a := range awaited[step] {
			if w := wantOf(l, step, a); w.Value != "" {
				all = append(all, w)
			}
		}
	}
	return all
}

// wantOf returns the want of step for the events of a.
func wantOf(l *loaded, step string, a saga.Answer) want {
	w := want{Association: associationBy(l, a), step: step, hop: a.Hop, event: a.Event}
	if a.By != nil {
		w.field = a.By.Field
	}
	return w
}

// associations returns the associations by which events find the saga now.
func associations(l *loaded) (all []Association) {
	for _, a := range l.d.Awaited() {
		if by := associationBy(l, a); by.Value != "" && !slices.Contains(all, by) {
			all = append(all, by)
		}
	}
	return all
}

// associationBy returns the association by which events of a find the saga now. Its value is empty if they do not find it.
func associationBy(l *loaded, a saga.Answer) Association {
	if a.By == nil {
		return Association{Saga: l.state.Saga, Value: l.state.Key}
	}
	return Association{Saga: l.state.Saga, Variable: a.By.Variable, Value: expr.Text(l.state.Data[a.By.Variable])}
}

// unstash applies to a saga the stashed events that it has just begun to await, since a step has begun or a variable was set.
// Such an event may begin another step. unstash ends when the saga awaits nothing new.
func (p *pass) unstash(ctx context.Context, message int, id string) error {
	if err := p.checkSize(message, len(p.decidedFor) > 1); err != nil {
		return err
	}
	l := p.sagas[id]
	for l.state.Version > 0 && !l.state.Ended() {
		if err := p.leaveFormer(ctx, id); err != nil {
			return err
		}
		wants := slices.DeleteFunc(wantsOf(l), func(w want) bool { return slices.Contains(l.searched, w) })
		fresh := slices.DeleteFunc(associations(l), func(a Association) bool { return slices.Contains(l.known, a) })
		if len(wants)+len(fresh) == 0 {
			return nil
		}
		l.searched, l.known = append(l.searched, wants...), append(l.known, fresh...)
		for _, a := range fresh {
			if a.Variable != "" {
				l.fresh = append(l.fresh, a)
				l.former = slices.DeleteFunc(l.former, func(other Association) bool { return other == a })
			}
		}
		if len(fresh) > 0 {
			if err := p.store.Guard(ctx, fresh); err != nil {
				return err
			}
		}
		if err := p.searchStashed(ctx, message, id, fresh, wants); err != nil {
			return err
		}
	}
	return p.leave(ctx, id)
}

// searchStashed applies to a saga the stashed events of wants, as long as it wants more of them. fresh are its new associations. There may be
// megabytes of events for each of any number of sagas, most of which use the first one: so searchStashed reads some at a time.
func (p *pass) searchStashed(ctx context.Context, message int, id string, fresh []Association, wants []want) error {
	q := StashQuery{Wanted: wantedBy(wants), Limit: 8}
	for {
		events, err := p.store.FindStashed(ctx, id, fresh, q)
		if err != nil {
			return err
		}
		if err := p.useStashed(ctx, message, id, events, wants); err != nil {
			return err
		}
		now := wantsOf(p.sagas[id])
		if len(events) < q.Limit || !slices.ContainsFunc(wants, func(w want) bool { return slices.Contains(now, w) }) {
			return nil
		}
		fresh, q.After = nil, events[len(events)-1].Position
		q.Limit = min(2*q.Limit, 512)
	}
}

// wantedBy returns the types of wants and their associations, each once. It is not nil.
func wantedBy(wants []want) []Wanted {
	all := make([]Wanted, 0, len(wants))
	for _, w := range wants {
		if is := (Wanted{w.Association, w.hop, w.event}); !slices.Contains(all, is) {
			all = append(all, is)
		}
	}
	return all
}

// useStashed applies events to a saga, as long as it wants them. An event that was kept for the saga may find it by another association now, since
// the saga was moved to another definition.
func (p *pass) useStashed(ctx context.Context, message int, id string, events []Stashed, wants []want) error {
	l := p.sagas[id]
	for _, e := range events {
		wanted := slices.ContainsFunc(wants, func(w want) bool {
			return w.finds(e.Event) && (e.For == id || w.Association == e.Association) && slices.Contains(wantsOf(l), w)
		})
		// A saga that has ignored the event in this pass may await it now, since a variable was set after that.
		done := p.decisionOn(id, e.Event)
		if !wanted || done != nil && done.Effects.Ignored == "" {
			continue
		}
		as := append(associations(l), e.Association) // before the decision, which may change a variable
		switch fx := p.decide(message, id, e.Event); {
		case fx.Refused != "":
			p.retryLater(target{message: message, id: id, by: e.Association, event: e.Event, why: fx.Refused})
		case fx.Ignored != "":
			continue
		}
		if err := p.store.DropStashed(ctx, id, as, e.Event); err != nil {
			return err
		}
	}
	return nil
}

// grant wakes saga id, which has been granted its lock.
func (p *pass) grant(ctx context.Context, id string) error {
	err := p.load(ctx, []string{id})
	if errors.As(err, new(unreadable)) { // the saga that ends does not depend on it
		p.unread = append(p.unread, id)
		return nil
	}
	if err == nil {
		p.wake[id] = true
	}
	return err
}

// decisionOn returns the decision of the pass on e for saga id, or nil. An event that finds a saga by two variables comes twice.
func (p *pass) decisionOn(id string, e saga.Event) *Decided {
	for _, i := range p.decidedFor[id] {
		d := &p.decided[i]
		if d.Event.Kind == saga.Observed && e.Message != "" && d.Event.Message == e.Message && messageOf(d.Event) == messageOf(e) {
			return d
		}
	}
	return nil
}
