package participant

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
)

// A Contract holds a participant to what its service has declared; package flow makes one. Either function may be nil.
type Contract struct {
	// Handlers is asked once, when Run begins, about all that is registered, in order of topic and type. Its error is
	// Run's.
	Handlers func([]Registered) error
	// Emits is asked before anything that the service says is written: outcomes, and entries of Outbox, in a handler's
	// context or, where a flow begins, any other. Its error refuses the entry. What the library says by itself is not asked
	// about: exhausted events, deadlines, copies of dead letters, answers that are repeated.
	Emits func(ctx context.Context, m envelope.Message) error
}

// Registered is a message that somebody here wants: by its type on a topic, or by the name of a deadline.
type Registered struct {
	Topic    string
	Type     string // "" for OnAll: all types
	Deadline string // "" unless it is one of OnDeadline
	Answers  bool   // Handle or React: what it returns is an event of this hop
	Handled  bool   // false where nobody but observers wants it
}

// Obey makes Run and Outbox ask c. Called again it replaces the one before. Call it before Run.
func (p *Participant) Obey(c Contract) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		p.late(mistake{errLate})
		return
	}
	p.contract = c
}

// kept asks the contract about the handlers.
func (p *Participant) kept() error {
	if p.contract.Handlers == nil {
		return nil
	}
	var all []Registered
	for topic, byRoute := range p.handlers {
		for _, h := range byRoute {
			r := Registered{Topic: topic, Type: h.typ, Deadline: h.deadline, Answers: h.answers, Handled: h.bind != nil || h.all != nil}
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Registered) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Deadline, b.Deadline))
	})
	return p.contract.Handlers(all)
}

// mayEmit asks the contract about an entry, and notes an event for a key whose answer is not written yet.
func (p *Participant) mayEmit(ctx context.Context, m *envelope.Message, along *pgx.Batch) error {
	if u, _ := ctx.Value(unitKey{}).(*unit); u != nil && m.Key != nil && m.Topic == p.cfg.Hop.Events() && u.unsent[string(m.Key)] {
		u.overtook = true
	}
	if p.contract.Emits != nil {
		if err := p.contract.Emits(ctx, *m); err != nil {
			return err
		}
	}
	return p.observeOwn(ctx, m, along)
}

// Answer writes an outcome as an event of this hop with the key of the message being handled, for handlers that answer
// nothing by themselves: those of On, OnDeadline and Observe. No outcome is an error; Done writes nothing.
func (p *Participant) Answer(ctx context.Context, tx pgx.Tx, o Outcome) error {
	if o.done {
		return nil
	}
	e := outbox.Entry{Topic: p.cfg.Hop.Events()}
	if cause := envelope.CauseOf(ctx); cause != nil {
		setKey(&e, cause.Message.Key)
	}
	e, err := p.event(e, o)
	if err != nil {
		return err
	}
	return p.checked.Write(ctx, tx, e)
}
