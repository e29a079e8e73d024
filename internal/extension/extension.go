// Package extension has the interface of a participant for the packages of this module that build on one: a flow without an
// orchestrator, and the coordinator of sagas.
package extension

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/topics"
)

// Participant extends a participant.Participant. Its functions are called before Run, except Answer and Deadlines; mistakes are
// Run's error.
type Participant interface {
	// Obey makes Run and Outbox check with c. Called again it replaces the contract.
	Obey(c Contract)

	// Observe calls fn for each message of a type on a topic, in the run and the transaction of its handler and before it; if
	// there is no handler, on its own. There may be several for one type: they are called in the order in which they were
	// registered. The topic is the hop's own commands or any hop's events. An error counts as a handler's.
	//
	// fn is not called for a message that gets the stored answer of an earlier one, nor for one that cannot be decoded for its
	// handler.
	Observe(topic, typ string, fn func(ctx context.Context, tx pgx.Tx, m envelope.Message) error)

	// ObserveSelf calls o.OnWrite for the hop's own events as they are written, so that they need not be handled for it.
	ObserveSelf(o SelfObserver)

	// ObserveEvents calls fn for the events of the hop itself, and of each hop whose events have handlers, for which wants returns true: as Observe
	// does, or, if there is no handler for their type, as their handler. The events of an OnAll are observed too, unless it is optional. wants must
	// be fast. An event without a handler for which it returns false is skipped.
	ObserveEvents(wants func(m envelope.Message) bool, fn func(ctx context.Context, tx pgx.Tx, m envelope.Message) error)

	// OnAllOptional registers a function as participant.OnAll does, whose type it has. It gives way to other handlers of a hop's events: then fn gets
	// no event of that hop, and the function of ObserveEvents does. The participant also runs without a hop's topic while the topic does not exist, or
	// may not be read. It may also be called while Run runs.
	OnAllOptional(from []topics.Hop, fn any)

	// Alongside registers fn, which Run starts in a goroutine of its own. fn returns when ctx ends, and Run waits for that.
	Alongside(fn func(ctx context.Context))

	// FireAfterBacklog makes the deadlines of that name wait for messages that came before them. It is for deadlines that report
	// missing messages. When a member has started, joined the group again or reached its database again, it fires them after the
	// group has handled the messages that its topics had at that time.
	FireAfterBacklog(name string)

	// NotRebuilt makes rebuilds of the group's handlers fail with this reason.
	NotRebuilt(reason string)

	// Call registers c as the handler of the hop's commands of the named type, like participant.Call, but with undecoded bodies.
	Call(typ string, c Call)

	// Answer writes a participant.Outcome as an event of the hop with the key of the message being handled, for handlers that emit
	// no answer by themselves: those registered with On, OnDeadline and Observe. It returns an error for no outcome; Done writes
	// nothing.
	Answer(ctx context.Context, tx pgx.Tx, outcome any) error

	// Deadlines returns an empty set of deadlines.
	Deadlines() Deadlines

	// Codec returns Config.Codec.
	Codec() envelope.Codec

	// Pool returns Config.Pool.
	Pool() *pgxpool.Pool
}

// A Call handles commands with undecoded bodies by calling another service.
type Call struct {
	// Call calls the service, outside the transaction; attempt counts from 1.
	Call func(ctx context.Context, m envelope.Message, attempt int) (answer any, err error)
	// Decide returns a participant.Outcome, in the transaction.
	Decide func(ctx context.Context, tx pgx.Tx, m envelope.Message, answer any) (outcome any, err error)
}

// A Contract checks a participant against its service's declaration. Either function may be nil.
type Contract struct {
	// Handlers is called once, when Run begins, with all registrations, in order of topic and type. Its error is Run's.
	Handlers func([]Registered) error
	// Emits is called before a message of the service is written: outcomes, and entries of Outbox, in a handler's context or,
	// if a flow begins, any other. Its error refuses the entry. It is not called for messages of the library itself: exhausted
	// events, deadlines, copies of dead letters, repeated answers.
	Emits func(ctx context.Context, m envelope.Message) error
}

// Registered is a message that a participant consumes: by its type on a topic, or by the name of a deadline.
type Registered struct {
	Topic    string
	Type     string // "" for OnAll: all types
	Deadline string // "" unless it is one of OnDeadline
	Answers  bool   // Handle or React: its result is an event of this hop
	Handled  bool   // false if only observers get it
}

// A SelfObserver reacts to the events that the service itself emits.
type SelfObserver struct {
	// Type is the type of the events, on the hop's own events topic.
	Type string
	// Name distinguishes it from others of that type.
	Name string
	// OnWrite adds to b the statements to run in the transaction that writes m: an outcome, or an entry of Outbox. ctx has m as
	// its cause. They are sent after the entry's statement; only b's own functions read their results.
	OnWrite func(ctx context.Context, b *pgx.Batch, m envelope.Message) error
	// OnConsume is called as a function of Observe is, for events that were written in another way, by SQL or by a version of
	// the service without this SelfObserver: they are read from the topic like any other event. It is also called for an event
	// for which OnWrite or OnConsume has run, if the event was in the partition before the member took the partition over: the
	// database may have lost the effect. If the effect is still stored, OnConsume must do nothing.
	OnConsume func(ctx context.Context, tx pgx.Tx, m envelope.Message) error
}

// Deadlines collects the deadlines that one transaction schedules and cancels, for transactions that do so for many scopes at
// once. For a name and scope the last call counts. It must not be used concurrently.
type Deadlines interface {
	// Schedule adds the deadline that the participant's Schedule would write. It refuses the same deadlines, and then adds
	// nothing.
	Schedule(ctx context.Context, d Deadline) error
	// Cancel adds the deadline that the participant's Cancel would remove.
	Cancel(ctx context.Context, name, scope string) error
	// Queue adds the statements to b: one for all that are cancelled, one for all that are scheduled, and one for each with Keep.
	// Then the set is empty.
	Queue(b *pgx.Batch)
}

// A Deadline has the fields of a participant.Deadline.
type Deadline struct {
	Name  string
	Scope string
	Key   string
	After time.Duration
	At    time.Time
	Body  any
	Keep  bool
}
