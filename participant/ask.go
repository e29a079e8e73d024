package participant

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
)

// Ask makes two functions the handler of commands of a type that only its name is known of, for what somebody else does by
// other means than tx: ask asks him, and take makes an outcome of what he said, in the transaction. The body is left as it
// came. All else is as for Handle.
//
// The messages of a batch ask at once, before any of their handlers runs, but for those behind another of their key, or of
// their saga's step, in the same batch: they ask when it is their turn. So no command asks that would not run, and those of
// a key ask in their order. At most Concurrency times Batch asks are under way.
//
// What ask brought is kept while the message is in this process: when a batch is rolled back, since one of it failed or
// the commit did, nobody is asked again who has answered, and an error of ask counts once. After a crash, a time-out, an
// error and a move of the partition he is asked again: it is he who must know the command by its idempotency key or id.
//
// Each ask has the message's time-out to itself. It must return when ctx ends. take must be quick.
func Ask[A any](
	p *Participant, typ string,
	ask func(ctx context.Context, c Command[[]byte]) (A, error),
	take func(ctx context.Context, tx pgx.Tx, c Command[[]byte], said A) (Outcome, error),
	opts ...HandlerOption,
) {
	h := &handler{topic: p.cfg.Hop.Commands(), typ: typ, name: p.cfg.Group + "/" + typ, answers: true}
	if typ == "" {
		h.mistake = errors.New("commands of no type")
	}
	for _, o := range opts {
		o(h)
	}
	command := func(m *message) Command[[]byte] {
		return Command[[]byte]{Body: m.Payload, Message: m.Message, Attempt: m.attempts() + 1}
	}
	h.ask = func(ctx context.Context, m *message) (any, error) {
		said, err := ask(ctx, command(m))
		if errors.Is(err, envelope.ErrPayload) {
			err = classified{Poison, err}
		}
		return said, err
	}
	h.bind = func(_ any, m *message) run {
		return func(ctx context.Context, tx pgx.Tx) (Outcome, error) {
			said, err := m.ask(ctx)
			if err != nil {
				return Outcome{}, err
			}
			return take(ctx, tx, command(m), said.(A))
		}
	}
	p.register(h)
}

// said is what an ask brought.
type said struct {
	what any
	err  error
}

// ask is what was said before, or is now. An error is good for one run that counts, which is one alone.
func (m *message) ask(ctx context.Context) (any, error) {
	s := m.said
	if s == nil {
		s = m.handler.hear(ctx, m)
	}
	m.said = s
	if s.err != nil && m.alone {
		m.said = nil
	}
	return s.what, s.err
}

func (h *handler) hear(ctx context.Context, m *message) (s *said) {
	s = new(said)
	defer recovered(&s.err)
	s.what, s.err = h.ask(ctx, m)
	return s
}

// stale says that what was said is of no use to another run: he was away.
func (s *said) stale() bool {
	var away unavailable
	return s != nil && (errors.As(s.err, &away) || errors.Is(s.err, context.Canceled))
}

// ask lets the messages of a batch ask, those that may at once, and waits for all.
func (u *unit) ask() {
	for _, m := range u.first {
		m.alone = len(u.first) == 1
	}
	if len(u.first) < 2 {
		return // its handler does it
	}
	var asks sync.WaitGroup
	before := make(map[string]bool, len(u.first))
	for _, m := range u.first {
		waits := false
		if m.said.stale() {
			m.said = nil
		}
		for _, place := range m.places() {
			waits = waits || before[place]
			before[place] = true
		}
		if m.handler.ask == nil || m.said != nil || waits {
			continue
		}
		if m.answered() {
			if v, _, _ := u.judge(m); v != runs || u.unmarked(m) {
				continue
			}
		}
		asks.Go(func() { m.said = u.w.asked(u.ctx, m) })
	}
	asks.Wait()
}

// places are what m keeps an order in: its key, and its step of a saga.
func (m *message) places() (all []string) {
	if m.Key != nil {
		all = append(all, "key "+string(m.Key))
	}
	if m.answered() {
		k := m.answerKey()
		if m.ofSaga() {
			k = m.stepKey(forward)
		}
		all = append(all, "answer "+k.typ+" "+k.key)
	}
	return all
}

// asked is the ask of a message beside others, within its time-out.
func (w *runner) asked(ctx context.Context, m *message) *said {
	limit := w.p.timeout(m)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	w.clocks.start(m)
	defer w.clocks.stop(m)
	s := m.handler.hear(ctx, m)
	if s.err != nil && w.ctx.Err() == nil && ctx.Err() != nil {
		s.err = tooLong(ctx, limit, s.err)
	}
	return s
}
