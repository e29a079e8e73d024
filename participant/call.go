package participant

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
)

// Call registers two functions as the handler of commands of type T whose work is done by another service by other means than tx
// (HTTP, RPC): call calls the service, outside the transaction, and decide makes an outcome of its answer, in the transaction. All
// else is as for Handle.
//
// While call runs, the message has no transaction and no connection of Pool. There are two exceptions, since other members must see
// that the call is under way: the commands of a saga's step, and local work.
//
// The messages of a batch run call concurrently, before any of their handlers runs, except those behind another message of
// their key, or of their saga's step, in the same batch: they run it in their turn. So no command runs call that would not
// be handled, and the commands of a key run it in their order. At most Concurrency times Batch calls are active; ConcurrencyLimit
// and RateLimit set lower limits.
//
// The answer is kept while the message is in this process: when a batch is rolled back, since another message or the
// commit failed, a call that has returned is not repeated, and an error of call counts once. After a crash, a time-out, an error
// and a move of the partition the call is repeated: send Message.IdempotencyKey with it, by which the service recognises the
// request.
//
// Each call has the message's time-out to itself. It must return when ctx ends. decide must be quick.
func Call[T, A any](
	p *Participant,
	call func(ctx context.Context, c Command[T]) (A, error),
	decide func(ctx context.Context, tx pgx.Tx, c Command[T], answer A) (Outcome, error),
	opts ...HandlerOption,
) {
	type called struct {
		body   T
		answer A
	}
	command := func(m *message, body T) Command[T] {
		return Command[T]{Body: body, Message: m.forHandler(), Attempt: m.attempts() + 1}
	}
	h := newHandler[T](p, p.cfg.Hop.Commands(), opts)
	h.answers = true
	h.ask = func(ctx context.Context, m *message) (any, error) {
		decoded := h.body()
		if err := h.decode(m, decoded); err != nil {
			return nil, err
		}
		body := bodyOf[T](decoded)
		m.called = true
		answer, err := call(ctx, command(m, body))
		return called{body, answer}, err
	}
	h.bind = func(_ any, m *message) run {
		return func(ctx context.Context, tx pgx.Tx) (Outcome, error) {
			said, err := m.ask(ctx)
			if err != nil {
				return Outcome{}, err
			}
			made := said.(called)
			return decide(ctx, tx, command(m, made.body), made.answer)
		}
	}
	p.register(h)
}

// callUndecoded is Call for a type of which only the name is known.
func (p *Participant) callUndecoded(
	typ string,
	call func(ctx context.Context, m envelope.Message, attempt int) (any, error),
	decide func(ctx context.Context, tx pgx.Tx, m envelope.Message, attempt int, answer any) (Outcome, error),
	opts ...HandlerOption,
) {
	h := &handler{topic: p.cfg.Hop.Commands(), typ: typ, name: p.cfg.Group + "/" + typ, answers: true}
	if typ == "" {
		h.mistake = errors.New("commands of no type")
	}
	for _, o := range opts {
		o(h)
	}
	h.ask = func(ctx context.Context, m *message) (any, error) {
		m.called = true
		answer, err := call(ctx, m.forHandler(), m.attempts()+1)
		if errors.Is(err, envelope.ErrPayload) {
			err = classified{Poison, err}
		}
		return answer, err
	}
	h.bind = func(_ any, m *message) run {
		return func(ctx context.Context, tx pgx.Tx) (Outcome, error) {
			answer, err := m.ask(ctx)
			if err != nil {
				return Outcome{}, err
			}
			return decide(ctx, tx, m.forHandler(), m.attempts()+1, answer)
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
	u.askAll()
}

func (u *unit) askAll() {
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
	ctx, cancel := context.WithTimeout(envelope.WithCause(ctx, m.cause(w.p.cfg.Group)), limit)
	defer cancel()
	w.clocks.start(m)
	defer w.clocks.stop(m)
	s := m.handler.hear(ctx, m)
	if s.err != nil && w.ctx.Err() == nil && ctx.Err() != nil {
		s.err = tooLong(ctx, limit, s.err)
	}
	return s
}

// callFirst runs the calls of messages before their transaction begins, so that none is open meanwhile: a first transaction, which is
// rolled back, finds the messages that are to be handled. A single message's error ends its run.
//
// It does nothing if the members of the group must see that a call is under way: they see it by the locks of the transaction.
func (w *runner) callFirst(ms []*message) error {
	open := func(m *message) bool { return m.entry != nil || w.p.needsMark(m) }
	calls := func(m *message) bool {
		return m.handler != nil && m.handler.ask != nil && (m.said == nil || m.said.stale())
	}
	if !slices.ContainsFunc(ms, calls) || slices.ContainsFunc(ms, open) {
		return nil
	}
	began := time.Now()
	u, err := w.start(ms, nil)
	if err != nil {
		return err
	}
	u.tx.rollback(w.ctx)
	for _, m := range u.first {
		m.began, m.alone = began, len(u.first) == 1
	}
	u.askAll()
	if len(ms) == 1 && len(u.first) == 1 && u.first[0].said != nil && u.first[0].said.err != nil {
		m := u.first[0]
		said := m.said
		m.said = nil
		return failedIn{m, said.err}
	}
	return nil
}
