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

// Call registers two functions as the handler of commands of type T whose work another service does, over HTTP or RPC. call calls the
// service, outside the transaction. decide returns an outcome for the service's answer, in the transaction. Everything else is as for
// Handle.
//
// While call runs, the message has no transaction and no connection of Pool. There are two exceptions, since other members must see
// that the call is in progress: the commands of a saga's step, and local work.
//
// The calls of a batch run concurrently, before any of its handlers runs. Only a message behind another one of its key, or of its
// saga's step, in the same batch makes its call later, when it is handled. So the calls of a key are made in the order of its commands,
// and a command that will not be handled makes no call. At most Concurrency times Batch calls are active; ConcurrencyLimit and RateLimit
// set lower limits.
//
// The answer is kept while the message is in this process: if a batch is rolled back, because another message or the commit
// failed, a call that has returned is not repeated, and an error of call counts once. The call is repeated after a crash, a
// time-out or an error, and when the partition moves. So send Message.IdempotencyKey with it: by this key the service recognises a
// repeated request.
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
		if err := m.spend(); err != nil {
			return nil, err
		}
		body := bodyOf[T](decoded)
		m.called = true
		answer, err := call(ctx, command(m, body))
		return called{body, answer}, err
	}
	h.bind = func(_ any, m *message) run {
		return func(ctx context.Context, tx pgx.Tx) (Outcome, error) {
			answer, err := m.callOnce(ctx)
			if err != nil {
				return Outcome{}, err
			}
			made := answer.(called)
			return decide(ctx, tx, command(m, made.body), made.answer)
		}
	}
	p.register(h)
}

// callUndecoded is Call for commands of the named type, whose bodies stay undecoded.
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
		if err := m.spend(); err != nil {
			return nil, err
		}
		m.called = true
		answer, err := call(ctx, m.forHandler(), m.attempts()+1)
		if errors.Is(err, envelope.ErrPayload) {
			err = classified{Poison, err}
		}
		return answer, err
	}
	h.bind = func(_ any, m *message) run {
		return func(ctx context.Context, tx pgx.Tx) (Outcome, error) {
			answer, err := m.callOnce(ctx)
			if err != nil {
				return Outcome{}, err
			}
			return decide(ctx, tx, m.forHandler(), m.attempts()+1, answer)
		}
	}
	p.register(h)
}

// callResult is the result of the call of one message.
type callResult struct {
	answer any
	err    error
}

// callOnce returns the kept result of m's call, or makes the call. A kept error is dropped after a run of m alone, since only such a run
// counts as an attempt.
func (m *message) callOnce(ctx context.Context) (any, error) {
	r := m.result
	if r == nil {
		r = new(callResult)
		m.handler.callRecovered(ctx, m, r)
	}
	m.result = r
	if r.err != nil && m.alone {
		m.result = nil
	}
	return r.answer, r.err
}

// callRecovered makes the call of m. A panic becomes the error of r, and so does the end of the goroutine.
func (h *handler) callRecovered(ctx context.Context, m *message, r *callResult) {
	r.err = panicked{value: errGoexit}
	defer recovered(&r.err)
	r.answer, r.err = h.ask(ctx, m)
}

// mustRepeat reports whether the call must be repeated for another run: the service was away, the call was cancelled, or it was not made.
func (r *callResult) mustRepeat() bool {
	return r != nil && (isAway(r.err) || errors.Is(r.err, context.Canceled) || errors.Is(r.err, errNoPermit))
}

// callsAgain reports whether m's call must be repeated now. One that was cancelled counts as failed if it has used up m's permit.
func (m *message) callsAgain() bool {
	return m.result.mustRepeat() && (m.permit == nil || !m.permit.spent || m.handler.limits.rate == nil)
}

// callBatch makes the calls of a batch concurrently. The handler of a single message makes its own call.
func (u *unit) callBatch() {
	for _, m := range u.first {
		m.alone = len(u.first) == 1
	}
	if len(u.first) > 1 {
		u.callAll()
	}
}

// callAll makes the calls of all messages that need not wait for an earlier one, concurrently, and waits for them.
func (u *unit) callAll() {
	var calls sync.WaitGroup
	before := make(map[string]bool, len(u.first))
	for _, m := range u.first {
		waits := false
		if m.callsAgain() {
			m.result = nil
		}
		for _, order := range m.orders() {
			waits = waits || before[order]
			before[order] = true
		}
		if m.handler.ask == nil || m.result != nil || waits {
			continue
		}
		if m.answered() {
			if v, _, _ := u.judge(m); v != runs || u.unmarked(m) {
				continue
			}
		}
		m.result = new(callResult)
		calls.Go(func() { u.w.callInTime(u.ctx, m, m.result) })
	}
	calls.Wait()
}

// orders returns names of the sequences that m belongs to, in which calls are made one after the other: its key, and its step of a saga.
func (m *message) orders() (all []string) {
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

// logUnused logs each finished call among ms whose message ended during the call, and so is not handled: an operator made it a dead letter,
// or another delivery of it took effect.
func (w *runner) logUnused(ms, handled []*message) {
	for _, m := range ms {
		if m.result != nil && m.result.err == nil && !slices.Contains(handled, m) {
			w.p.cfg.Log.Warn().Str("place", m.place()).Str("message_id", m.id).Str("handler", m.handlerName(w.p.cfg.Group)).
				Msg("the answer of a call is not used: the message ended meanwhile, as an operator's dead letter, by another delivery, or by an earlier commit whose answer was lost")
			m.result = nil
		}
	}
}

// callInTime makes the call of one message of a batch within the message's time-out.
func (w *runner) callInTime(ctx context.Context, m *message, r *callResult) {
	limit := w.p.timeout(m)
	ctx, cancel := context.WithTimeout(envelope.WithCause(ctx, m.cause(w.p.cfg.Group)), limit)
	defer cancel()
	w.clocks.start(m)
	defer w.clocks.stop(m)
	m.handler.callRecovered(ctx, m, r)
	if r.err != nil && w.ctx.Err() == nil && ctx.Err() != nil {
		r.err = tooLong(ctx, limit, r.err)
	}
}

// callFirst makes the calls of messages before their transaction begins. First it begins a transaction only to find out which messages will
// be handled, and rolls it back, so that none is open during the calls. If there is a single message, an error of its call ends its run.
//
// It does nothing if other members must see that a call is in progress. Then the calls are made in the open transaction, whose locks show it.
func (w *runner) callFirst(ms []*message) error {
	open := func(m *message) bool { return m.entry != nil || w.p.needsMark(m) }
	calls := func(m *message) bool {
		return m.handler != nil && m.handler.ask != nil && (m.result == nil || m.callsAgain())
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
	u.callAll()
	if len(ms) == 1 && len(u.first) == 1 && u.first[0].result != nil && u.first[0].result.err != nil {
		m := u.first[0]
		err := m.result.err
		m.result = nil
		return failedIn{m, err}
	}
	return nil
}
