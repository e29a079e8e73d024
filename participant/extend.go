package participant

import (
	"context"
	"errors"
	"maps"
)

// errMoreTopics ends a membership, since handlers were added for topics that it does not consume.
var errMoreTopics = errors.New("topics were added")

// registered returns the handlers.
func (p *Participant) registered() handlers { return *p.handlers.Load() }

// runAlongside registers fn, which Run starts in a goroutine of its own.
func (p *Participant) runAlongside(fn func(ctx context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		p.endRun(mistake{errLate})
		return
	}
	p.alongside = append(p.alongside, fn)
}

// fireAfterBacklog makes deadlines of a name wait for the backlog (backlog.go). Call it before Run.
func (p *Participant) fireAfterBacklog(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		p.endRun(mistake{errLate})
		return
	}
	if p.afterBacklog == nil {
		p.afterBacklog = make(map[string]bool)
	}
	p.afterBacklog[name] = true
}

// extend adds handlers if Run runs, and reports whether it runs. The handlers are stored before their topics are consumed, so that each message finds
// its handler.
func (p *Participant) extend(hs []*handler) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return false
	}
	before, next := p.registered(), maps.Clone(p.registered())
	more := false
	for _, h := range hs {
		next[h.topic] = maps.Clone(next[h.topic]) // other goroutines read the present handlers
		p.observeEventsOf(h)
		if err := next.add(h); err != nil {
			p.endRun(mistake{err})
			return true
		}
		// An optional topic that is not local may be made local now. awaitLeftOut does the same with Kafka.
		more = more || before[h.topic] == nil || p.cfg.Local && before.optional(h.topic) && !next.optional(h.topic)
	}
	p.handlers.Store(&next)
	if !more { // each of them gave way to another handler, or took the place of an optional one whose topic is consumed
		return true
	}
	select {
	case p.more <- struct{}{}:
	default:
	}
	return true
}

// awaitMore waits until topics were added, and then calls do once. It does nothing if ctx ends before.
func (p *Participant) awaitMore(ctx context.Context, do func()) {
	select {
	case <-p.more:
		do()
	case <-ctx.Done():
	}
}

// addLocal makes topics local that are added while Run runs, until ctx ends. It calls added after each addition.
func (p *Participant) addLocal(ctx context.Context, added func()) {
	for ctx.Err() == nil {
		p.awaitMore(ctx, func() {
			if err := p.makeLocal(ctx); err != nil && ctx.Err() == nil {
				p.cfg.Log.Error().Err(err).Msg("a topic that was added is not consumed")
			}
			added()
		})
	}
}
