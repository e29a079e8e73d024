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

// callUndecoded is Call for commands of the type typ, with undecoded bodies and a result of any type. Extension.Call uses it.
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

// callOnce returns the result of m's call. It makes the call if no result is kept. It keeps the result for later runs, with one exception: an error
// of a run of m alone is not kept, since such a run counts as an attempt and the next attempt makes the call again.
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

// callRecovered makes the call of m. If the call panics or ends its goroutine, r gets an error.
func (h *handler) callRecovered(ctx context.Context, m *message, r *callResult) {
	r.err = panicked{value: errGoexit}
	defer recovered(&r.err)
	r.answer, r.err = h.ask(ctx, m)
	readText(r.err)
}

// mustRepeat reports whether another run must make the call again: the service was away, the call was cancelled, or the call was not made because m
// had no permit.
func (r *callResult) mustRepeat() bool {
	return r != nil && (isAway(r.err) || errors.Is(r.err, context.Canceled) || errors.Is(r.err, errNoPermit))
}

// callsAgain reports whether m's call is made again now. A cancelled call that has used its permit of a rate limit is not made again: it counts as
// failed.
func (m *message) callsAgain() bool {
	return m.result.mustRepeat() && (m.permit == nil || !m.permit.spent || m.handler.limits.rate == nil)
}

// callBatch makes the calls of a batch concurrently. A single message makes its call in its handler instead.
func (u *unit) callBatch() {
	for _, m := range u.toRun {
		m.alone = len(u.toRun) == 1
	}
	if len(u.toRun) > 1 {
		u.callAll()
	}
}

// callAll makes the calls of u.toRun concurrently and waits for them. It leaves out a message that follows another one of the same sequence (see
// orders): that message makes its call when it is handled.
func (u *unit) callAll() {
	var calls sync.WaitGroup
	before := make(map[string]bool, len(u.toRun))
	for _, m := range u.toRun {
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
			if v, _, _ := u.judge(m); v != runs || u.lacksCallMark(m) {
				continue
			}
		}
		m.result = new(callResult)
		calls.Go(func() { u.w.callInTime(u.ctx, m, m.result) })
	}
	calls.Wait()
}

// orders returns the names of the sequences that m belongs to. The calls of one sequence are made one after the other. m's key is a sequence, and so
// is m's request, or m's step of a saga.
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

// logUnused logs each call whose answer is not used, since its message ended during the call: an operator made the message a dead letter, or another
// delivery of it took effect.
func (w *runner) logUnused(ms, handled []*message) {
	for _, m := range ms {
		if m.result != nil && m.result.err == nil && !slices.Contains(handled, m) {
			w.p.cfg.Log.Warn().Str("place", m.place()).Str("message_id", m.id).Str("handler", m.handlerName(w.p.cfg.Group)).
				Msg("the answer of a call is not used: the message ended meanwhile, as an operator's dead letter, by another delivery, or by an earlier commit whose answer was lost")
			m.result = nil
		}
	}
}

// callInTime makes the call of one message within the message's time-out, and stores its result in r.
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

// callFirst makes the calls of messages before their transaction begins, so that no transaction is open during the calls. First it begins a
// transaction only to find out which messages will be handled, and rolls it back. If there is a single message, an error of its call ends its run.
//
// callFirst does nothing if ms has a message whose call other members must be able to see: local work, or a step of a saga. Then the calls are made
// in the open transaction, whose locks show them.
func (w *runner) callFirst(ms []*message) error {
	open := func(m *message) bool { return m.entry != nil || w.p.needsCallMark(m) }
	calls := func(m *message) bool {
		return m.handler != nil && m.handler.ask != nil && (m.result == nil || m.callsAgain())
	}
	if !slices.ContainsFunc(ms, calls) || slices.ContainsFunc(ms, open) {
		return nil
	}
	began := time.Now()
	u, err := w.beginUnit(ms, nil)
	if err != nil {
		return err
	}
	u.tx.rollback(w.ctx)
	for _, m := range u.toRun {
		m.began, m.alone = began, len(u.toRun) == 1
	}
	u.callAll()
	if len(ms) == 1 && len(u.toRun) == 1 && u.toRun[0].result != nil && u.toRun[0].result.err != nil {
		m := u.toRun[0]
		err := m.result.err
		m.result = nil
		return failedIn{m, err}
	}
	return nil
}
