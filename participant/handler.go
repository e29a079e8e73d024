package participant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/topics"
)

// A Command is a message that asks this hop to act, with its body decoded.
type Command[T any] struct {
	Body T
	// Message is the received message, with its attributes. If it had no ce_id, ID is made of its topic id, partition, offset and a hash of its
	// record.
	Message envelope.Message
	// Attempt is the number of this run, counted from 1. Runs that were lost with a process are not counted.
	Attempt int
}

// An Event is a received event, with its body decoded.
type Event[T any] struct {
	Body    T
	Message envelope.Message // as in Command
	Attempt int              // as in Command
}

// An Outcome is a handler's answer to a command. The zero value is no outcome, and a handler that returns it has failed.
type Outcome struct {
	kind envelope.Outcome
	body any
	done bool
}

// Succeed answers with a success event.
func Succeed(body any) Outcome { return Outcome{kind: envelope.Success, body: body} }

// Refuse answers with a failure event: the business refuses, and the orchestrator or the next hop compensates. It is no error
// and is not retried.
func Refuse(body any) Outcome { return Outcome{kind: envelope.Failure, body: body} }

// Done is the outcome of a reaction that succeeds without an event of this hop: no other hop needs one, or the handler has written commands for
// others with Outbox. It is an error for a command, which is always answered.
func Done() Outcome { return Outcome{done: true} }

// Body returns the body of the answer; nil for Done and for no outcome. A service that takes part in several flows can use it to write a further
// event in one of them.
func (o Outcome) Body() any { return o.body }

// Handle registers fn as the handler of commands of type T on the hop's own commands topic. T is a type that the codec knows, or a pointer to such a
// struct, as code generated from Protobuf needs it: the pointer is never nil. Call Handle before Run, which returns an error for each mistake.
//
// fn does its work in tx, which it may use until it returns. It returns an outcome, or an error, which discards the outcome and the work. It runs
// again after an error, a crash or a lost race, so nothing but tx may carry effects. It must return when ctx ends. Several runs may be active at
// once, for messages of different keys. ctx carries the message as the cause of the entries that outbox.Write adds.
func Handle[T any](p *Participant, fn func(ctx context.Context, tx pgx.Tx, c Command[T]) (Outcome, error), opts ...HandlerOption) {
	h := newHandler[T](p, p.cfg.Hop.Commands(), opts)
	h.answers = true
	h.bind = func(body any, m *message) run {
		return func(ctx context.Context, tx pgx.Tx) (Outcome, error) {
			return fn(ctx, tx, Command[T]{Body: bodyOf[T](body), Message: m.forHandler(), Attempt: m.attempts() + 1})
		}
	}
	p.register(h)
}

// On registers fn as the handler of events of type T of the hop from. The participant emits no answer for such an event; fn may write its own
// messages with Outbox. Everything else is as for Handle. Events of a type without a handler are skipped.
//
// On[Exhausted] receives the events that report a hop's dead letters. On[Nothing] receives the answers to saga commands whose handlers did not run,
// because the other call of the step came first.
func On[T any](p *Participant, from topics.Hop, fn func(ctx context.Context, tx pgx.Tx, e Event[T]) error, opts ...HandlerOption) {
	h := newHandler[T](p, from.Events(), opts)
	if from.IsZero() {
		h.mistake = errors.Join(h.mistake, errors.New("events of no hop"))
	}
	h.bind = func(body any, m *message) run {
		return func(ctx context.Context, tx pgx.Tx) (Outcome, error) {
			return Outcome{}, fn(ctx, tx, Event[T]{Body: bodyOf[T](body), Message: m.forHandler(), Attempt: m.attempts() + 1})
		}
	}
	p.register(h)
}

// React registers fn as the handler of events of type T of another hop, as On does, and emits its outcome as an event of this hop, as Handle does:
// with the key of the handled event, so that the next hop can react to it in turn. A reaction that ends without an outcome has failed; Done is the
// outcome that emits nothing.
//
// If a command was repeated upstream, an event of the same hop and type comes again, under another ce_id and with an idempotency key that was
// answered. It gets the stored answer, and fn does not run. The answer has the event's idempotency key followed by this hop's name.
func React[T any](p *Participant, from topics.Hop, fn func(ctx context.Context, tx pgx.Tx, e Event[T]) (Outcome, error), opts ...HandlerOption) {
	h := newHandler[T](p, from.Events(), opts)
	if from.IsZero() {
		h.mistake = errors.Join(h.mistake, errors.New("events of no hop"))
	}
	h.answers, h.reacts = true, true
	h.bind = func(body any, m *message) run {
		return func(ctx context.Context, tx pgx.Tx) (Outcome, error) {
			return fn(ctx, tx, Event[T]{Body: bodyOf[T](body), Message: m.forHandler(), Attempt: m.attempts() + 1})
		}
	}
	p.register(h)
}

// Alone gives each of a handler's messages a transaction of its own, whatever Config.Batch is. It is for handlers that call
// another service by other means than tx: when one message of a batch fails, the handlers of the others run again. A run whose
// transaction does not commit may have taken effect in that service: therefore a compensation in doubt of a saga's step runs
// after it, as after a Call.
func Alone() HandlerOption { return func(h *handler) { h.alone = true } }

// run calls a handler with the message for which the run was made.
type run func(ctx context.Context, tx pgx.Tx) (Outcome, error)

// handler is one registered function without its type parameter.
type handler struct {
	topic    string
	typ      string
	deadline string                      // the name, for handlers of deadlines
	name     string                      // group/type, group/deadline.name or group/all
	all      *taker                      // set for OnAll; then it has no codec and no body
	wants    func(envelope.Message) bool // set for the events of ObserveEvents without a handler; then it has no codec and no body either
	optional bool                        // set by OnAllOptional: gives way to other handlers of the topic, and the participant runs without the topic
	answers  bool                        // must end with an outcome
	reacts   bool                        // registered with React: it answers events
	observed []observe                   // called before the handler
	events   *eventObserver              // the function of ObserveEvents, called after observed; nil: none
	delays   []time.Duration             // of its retry topics; nil: its keys are held
	alone    bool                        // never in a batch
	limits   limits
	sets     atomic.Bool                                        // its SQL has changed settings of a transaction: it runs alone, too
	ask      func(ctx context.Context, m *message) (any, error) // calls another service, if registered with Call; then prepare decodes nothing
	codec    envelope.Codec
	body     func() any                     // a new *T, or, if T is a pointer to a struct, a new T
	bind     func(body any, m *message) run // nil if only observers get its messages
	mistake  error
	// overtakes is set once the handler has written an event for the key of another message of its batch. From then on the answers to earlier
	// messages are queued before it runs.
	overtakes atomic.Bool
}

func newHandler[T any](p *Participant, topic string, opts []HandlerOption) *handler {
	var zero T
	h := &handler{topic: topic, codec: p.cfg.Codec, body: func() any { return new(T) }}
	if _, plain := any(zero).(envelope.Plain); plain {
		h.codec = envelope.JSONCodec{} // whatever codec the flow uses
	}
	switch t := reflect.TypeFor[T](); {
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
		h.body = func() any { return reflect.New(t.Elem()).Interface() }
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface:
		h.mistake = fmt.Errorf("type %s: want a type that is no interface and no pointer, except a pointer to a struct", t)
		return h
	}
	h.typ, h.mistake = h.codec.TypeOf(h.body())
	h.name = p.cfg.Group + "/" + h.typ
	for _, o := range opts {
		o(h)
	}
	return h
}

// bodyOf returns, as a T, a value that handler.body made and the codec filled.
func bodyOf[T any](body any) T {
	if b, ok := body.(*T); ok {
		return *b
	}
	return body.(T) // a pointer to a struct
}

// prepare decodes m's body and returns the run of the handler. Its error has the class Poison if the bytes can never be decoded.
func (h *handler) prepare(m *message) (run, error) {
	if h.bind == nil {
		return h.behind(m, func(context.Context, pgx.Tx) (Outcome, error) { return Outcome{}, nil }), nil
	}
	if h.ask != nil || h.wants != nil {
		return h.behind(m, h.bind(nil, m)), nil
	}
	body := h.body()
	if err := h.decode(m, body); err != nil {
		return nil, err
	}
	return h.behind(m, h.bind(body, m)), nil
}

func (h *handler) decode(m *message, body any) error {
	err := h.codec.Decode(m.Message, body)
	if errors.Is(err, envelope.ErrPayload) {
		err = classified{Poison, err}
	}
	if err != nil {
		return fmt.Errorf("decode %s: %w", h.typ, err)
	}
	return nil
}

// handlers holds all registered handlers, by topic and route. A retry topic has an entry without handlers.
type handlers map[string]map[route]*handler

func (hs handlers) add(h *handler) error {
	if h.mistake != nil {
		return fmt.Errorf("handler on %s: %w", h.topic, h.mistake)
	}
	if hs[h.topic] == nil {
		hs[h.topic] = make(map[route]*handler)
	}
	to := route{typ: h.typ, deadline: h.deadline, all: h.all != nil, unhandled: h.wants != nil}
	if h.deadline != "" {
		to.typ = ""
	}
	for other, registered := range hs[h.topic] {
		switch {
		case other != to && !other.all && !to.all:
		case h.optional && !registered.optional:
			return nil
		case registered.optional && !h.optional:
			delete(hs[h.topic], other)
		default:
			return fmt.Errorf("two handlers for %s on %s", narrower(to, other), h.topic)
		}
	}
	hs[h.topic][to] = h
	return nil
}

// narrower returns, for an error text, the one of two colliding routes that has fewer messages.
func narrower(a, b route) route {
	if a.all {
		return b
	}
	return a
}

// types returns the types that have handlers.
func (hs handlers) types() []string {
	all := make([]string, 0, len(hs))
	for _, ofTopic := range hs {
		for _, h := range ofTopic {
			all = append(all, h.typ)
		}
	}
	return all
}

// haveCalls reports whether a handler was registered with Call.
func (hs handlers) haveCalls() bool {
	for _, ofTopic := range hs {
		for _, h := range ofTopic {
			if h.ask != nil {
				return true
			}
		}
	}
	return false
}

// withRetryTopics adds the retry topics of hop that handlers use.
func (hs handlers) withRetryTopics(hop topics.Hop) {
	for _, byType := range maps.Clone(hs) {
		for _, h := range byType {
			for _, d := range h.delays {
				hs[hop.Retry(d)] = nil
			}
		}
	}
}

// delayed returns a handler with retry topics, or nil.
func (hs handlers) delayed() *handler {
	for _, ofTopic := range hs {
		for _, h := range ofTopic {
			if h.delays != nil {
				return h
			}
		}
	}
	return nil
}
