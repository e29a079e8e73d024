package participant

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/troupe-go/troupe/internal/keyed"
)

// A handler with a rate limit or a concurrency limit gets a message only when the message has a permit of each of these limits. Until then the message
// waits in its partition's lane (keyed.Lane), with the later messages of its key. It has no transaction and no goroutine, and does not count towards
// Config.Concurrency. Other keys of the partition continue until the partition's backlog is full; then the partition fetches no more.

// RateLimit limits how many runs of a handler begin in any time of length per, over all members of the group, by the clock of the
// service's database. n is at least 1, per from 1 second to 24 hours. The runs are evenly spaced: n of them do not begin
// together. A permit may be used late, so the spacing is wider than per/n: the highest rate is 5/6 of n if per is a second, and 60/61 of n if
// it is a minute or more (computed). So prefer a longer per to a shorter one.
//
// A message that waits for the limit counts no attempt. Each run needs a permit of its own, with two exceptions. A run of a Call whose answer
// is kept needs none. A handler that is no Call and lost a race runs again with the same permit. If the handler is
// no Call, it gets its messages one by one, as with Alone.
//
// The state is a row of troupe.rate_limits, by group and handler. If the database is set back (a failover to a standby that lagged, a
// restore, a change of its clock), runs that the row does not have are not counted: once, up to 2n may begin in a time of length per. While
// the database is away, no run begins. Local work has no limits.
func RateLimit(n int, per time.Duration) HandlerOption {
	return func(h *handler) {
		switch {
		case n < 1:
			h.mistake = errors.Join(h.mistake, fmt.Errorf("rate limit of %d: want at least 1", n))
			return
		case per < time.Second || per > 24*time.Hour:
			h.mistake = errors.Join(h.mistake, fmt.Errorf("rate limit per %s: want 1s to 24h", per))
			return
		}
		h.limits.rate = newRate(min(n, math.MaxInt32), per) // more is no limit, and its column has no more
	}
}

// ConcurrencyLimit limits how many runs are active at once in this process, over all handlers of the participant that name the same
// dependency, such as a service or a printer. If they state different limits, the lowest one applies. A message that waits for it is not
// an attempt. Each member has its own limit, so the limits of several members add up: a process counts its own calls without the database,
// and a member that crashes leaves no count behind.
func ConcurrencyLimit(dependency string, n int) HandlerOption {
	return func(h *handler) {
		if n < 1 || dependency == "" {
			h.mistake = errors.Join(h.mistake, fmt.Errorf("concurrency limit %d of dependency %q: want at least 1 and a name", n, dependency))
			return
		}
		h.limits.dependency, h.limits.most = dependency, n
	}
}

// limits are the limits of one handler. The zero value has none.
type limits struct {
	rate       *rate
	dependency string
	most       int
	slots      *callSlots // of dependency; set when Run begins
	calls      bool       // the handler is a Call; set when Run begins
	alone      bool       // the handler is never in a batch; set when Run begins
}

func (l *limits) any() bool { return l != nil && (l.rate != nil || l.dependency != "") }

// limited reports whether m's handler has a limit.
func (m *message) limited() bool { return m.handler != nil && m.handler.limits.any() }

// applyLimits sets the fields of the handlers' limits that are known when Run begins, and lists the rates and slots of the participant. It returns an
// error if a limit cannot apply.
func (p *Participant) applyLimits() error {
	all := make(map[string]*callSlots)
	for _, ofTopic := range p.registered() {
		for _, h := range ofTopic {
			if h == nil || !h.limits.any() {
				continue
			}
			if p.cfg.Local {
				return fmt.Errorf("handler %s has a rate or concurrency limit, which local work has not", h.name)
			}
			p.limited, h.limits.calls, h.limits.alone = true, h.ask != nil, h.alone
			if r := h.limits.rate; r != nil {
				r.handler = h.name
				p.rates = append(p.rates, r)
			}
			if name := h.limits.dependency; name != "" {
				s := all[name]
				if s == nil {
					s = &callSlots{free: h.limits.most, most: h.limits.most}
					all[name] = s
					p.slots = append(p.slots, s)
				}
				s.free, s.most = min(s.free, h.limits.most), min(s.most, h.limits.most)
				h.limits.slots = s
			}
		}
	}
	return nil
}

// A permit allows one run of a message whose handler has limits. The message has it while it is in a batch.
type permit struct {
	of      *message  // the message, or turn, that got it
	expires time.Time // when the permit of the rate limit expires
	spent   bool      // the handler has begun to run
}

// mostTardy limits how often in a row a message waits for another permit because its permit had expired when its run began. After that the run begins
// with an expired permit: if starting a run takes longer than a permit can be used, the message would otherwise wait for ever.
const mostTardy = 5

// errNoPermit lets a message, or the batch that it is in, wait in its lane until there are permits for it. It counts no attempt.
var errNoPermit = errors.New("the message has no permit of its handler's limits")

// takePermits gives m its permits. wait is the limit that m waits for, or nil. last reports whether m is the last message of its batch. No message
// keeps a permit while it waits for another one of its batch: the calls of a batch run at once, one for each key, and every other message runs alone.
// The lane calls takePermits while it holds the lock of its pool.
func (w *worker) takePermits(m *message, place keyed.Place) (wait any, last bool) {
	l := m.limits
	switch {
	case l == nil:
		return nil, false
	case m.result != nil && !m.result.mustRepeat(), // its call has returned
		!m.due && (w.holds.has(m) || w.lease.seen.has(m.topicID, m.offset, m.epoch)): // it does not run
		if m.waited {
			m.waited = false
			go l.slots.next()
		}
		return nil, false
	}
	alone := m.due || !l.calls || l.alone || w.inQuarantine(m)
	if place == keyed.Behind || alone && place != keyed.First {
		return keyed.NextRun, false
	}
	if m.waited = l.slots != nil && !l.slots.take(w); m.waited {
		return l.slots, false
	}
	got := &permit{of: m}
	if l.rate != nil {
		var ok bool
		if got.expires, ok = l.rate.take(w); !ok {
			if l.slots != nil && l.slots.put() { // this key does not use the slot: offer it to the next one
				go l.slots.next()
			}
			return l.rate, false
		}
	}
	m.permit = got
	return nil, alone
}

// spend uses m's permit when its call or handler begins. It returns errNoPermit if m must wait for another permit. A handler that is no Call runs
// again with the same permit after a lost race.
func (m *message) spend() error {
	l, had := &m.handler.limits, m.permit
	switch {
	case !l.any():
		return nil
	case had == nil, had.spent && l.calls && l.rate != nil:
		return errNoPermit
	case l.rate != nil && !had.spent && !time.Now().Before(had.expires) && had.of.tardy < mostTardy:
		had.of.tardy++
		return errNoPermit
	}
	had.spent, had.of.tardy = true, 0
	return nil
}

// needsPermit reports whether another run of m, while it is in the present batch, needs a permit that it does not have.
func (m *message) needsPermit() bool {
	return m.handler.limits.rate != nil && (m.handler.ask == nil || m.result == nil || m.result.mustRepeat())
}

// dismiss releases the permits of messages whose run has ended. A permit of a rate limit is given back only if neither a call nor a handler began
// with it.
func (w *worker) dismiss(ms []*message) {
	for _, m := range ms {
		had := m.permit
		if had == nil {
			continue
		}
		m.permit = nil
		if m.limits.rate != nil && !had.spent {
			m.limits.rate.giveBack(had.expires)
		}
		if s := m.limits.slots; s != nil {
			s.put()
			s.next()
		}
	}
}

// offerSlots offers free slots to waiting keys of any partition. It is called when a partition begins to wait, or moves: that partition may have been
// offered slots that it does not use.
func (p *Participant) offerSlots() {
	for _, s := range p.slots {
		s.next()
	}
}

// limitsOf returns the limits of the handler that m will get. It returns nil if that handler has no limits, and for a message that no handler gets: a
// control record, an unreadable message, or one that a rebuild passes over. m itself is read when its turn comes, so limitsOf reads a copy.
func (w *worker) limitsOf(m *message) *limits {
	if !w.p.limited || m.record.Attrs.IsControl() {
		return nil
	}
	probe := *m
	probe.read(w.p, w.later.delay > 0)
	if w.lease.rebuilds.excludes(&probe, w.p.cfg.Group) {
		return nil
	}
	if probe.unreadable == nil && probe.limited() {
		return &probe.handler.limits
	}
	return nil
}

// waiters is a queue of the workers with messages that wait for a permit.
type waiters []*worker

func (ws *waiters) add(w *worker) {
	if !slices.Contains(*ws, w) {
		*ws = append(*ws, w)
	}
}

func (ws *waiters) remove(w *worker) {
	if i := slices.Index(*ws, w); i >= 0 {
		*ws = slices.Delete(*ws, i, i+1)
	}
}

// rouseOne lets one key run that waits for of (a rate or callSlots), and reports whether there was one. It begins with another worker each time.
// withLock calls its function while it holds the lock of the waiters. The lane is called without that lock: takePermits takes the lock while the
// lane's own lock is held.
func rouseOne(of any, withLock func(func(*waiters))) bool {
	for {
		var w *worker
		withLock(func(ws *waiters) {
			if len(*ws) > 0 {
				w = (*ws)[0]
				*ws = append((*ws)[1:], w)
			}
		})
		if w == nil {
			return false
		}
		if w.lane.Unpark(of, 1) > 0 {
			return true
		}
		// Another message may begin to wait meanwhile: remove the worker first, and then count its waiting keys.
		withLock(func(ws *waiters) { ws.remove(w) })
		if w.lane.Parked(of) > 0 {
			withLock(func(ws *waiters) { ws.add(w) })
		}
	}
}

// callSlots are the permits of a concurrency limit.
type callSlots struct {
	mu         sync.Mutex
	free, most int
	waiting    waiters
}

func (s *callSlots) take(w *worker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		s.waiting.add(w)
		return false
	}
	s.free--
	return true
}

// put gives a slot back, and reports whether a worker may wait for it.
func (s *callSlots) put() (wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	return len(s.waiting) > 0
}

// next lets as many waiting keys run as there are free slots. Such a key may not run after all: it lacks another permit, or its partition waits or
// moves. Then next must be called again, or the slot stays free although other keys wait for it.
func (s *callSlots) next() {
	s.mu.Lock()
	free := s.free
	s.mu.Unlock()
	for range free {
		if !rouseOne(s, func(do func(*waiters)) {
			s.mu.Lock()
			defer s.mu.Unlock()
			do(&s.waiting)
		}) {
			return
		}
	}
}

// runRates claims permits for all rate limits until ctx ends.
func (p *Participant) runRates(ctx context.Context) {
	var all sync.WaitGroup
	for _, r := range p.rates {
		all.Go(func() { r.run(ctx, p) })
	}
	all.Wait()
}

// lacksPermit reports whether the turn of a held key has no permit for the key's first message. Then the key's next turn waits for a permit.
func (w *worker) lacksPermit(turn, first *message) bool {
	if !first.limited() {
		w.holds.limit(turn.turn, nil)
		return false
	}
	if turn.permit != nil && turn.limits == &first.handler.limits {
		first.permit = turn.permit
		return false
	}
	w.holds.limit(turn.turn, &first.handler.limits)
	return true
}
