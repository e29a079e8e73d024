package participant

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
)

// Ask registers two functions as the handler of commands of a type, of which only the name is known, whose work is done by
// another service by other means than tx (HTTP, RPC): ask calls the service, outside the transaction, and take makes an outcome
// of its result, in the transaction. The body is passed undecoded. All else is as for Handle.
//
// The messages of a batch call ask concurrently, before any of their handlers runs, except those behind another message of
// their key, or of their saga's step, in the same batch: they call it in their turn. So no command calls ask that would not
// run, and the commands of a key call it in their order. At most Concurrency times Batch calls are active.
//
// The result of ask is kept while the message is in this process: when a batch is rolled back, since another message or the
// commit failed, a call that has returned is not repeated, and an error of ask counts once. After a crash, a time-out, an error
// and a move of the partition the call is repeated: the service must recognise the command by its idempotency key or id.
//
// Each call has the message's time-out to itself. It must return when ctx ends. take must be quick.
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
		return Command[[]byte]{Body: m.Payload, Message: m.forHandler(), Attempt: m.attempts() + 1}
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

// said is the result of a call of ask.
type said struct {
	what any
	err  error
}

// ask returns the kept result, or calls. A kept error is used for one run that counts, which is one alone.
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
	m.called = true
	defer recovered(&s.err)
	s.what, s.err = h.ask(ctx, m)
	return s
}

// stale reports whether the call must be repeated for another run: the service was away, or the call was cancelled.
func (s *said) stale() bool {
	var away unavailable
	return s != nil && (errors.As(s.err, &away) || errors.Is(s.err, context.Canceled))
}

// ask calls ask concurrently for the messages of a batch that need not wait for an earlier one, and waits for all calls.
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

// places returns the orders that m takes part in: its key, and its step of a saga.
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

// asked calls ask for a message, concurrently with others, within its time-out.
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
