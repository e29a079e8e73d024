package participant

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
)

// A Contract checks a participant against its service's declaration; package flow makes one. Either function may be nil.
type Contract struct {
	// Handlers is called once, when Run begins, with all registrations, in order of topic and type. Its error is Run's.
	Handlers func([]Registered) error
	// Emits is called before a message of the service is written: outcomes, and entries of Outbox, in a handler's context or,
	// if a flow begins, any other. Its error refuses the entry. It is not called for messages of the library itself: exhausted
	// events, deadlines, copies of dead letters, repeated answers.
	Emits func(ctx context.Context, m envelope.Message) error
}

// Registered is a message that this participant consumes: by its type on a topic, or by the name of a deadline.
type Registered struct {
	Topic    string
	Type     string // "" for OnAll: all types
	Deadline string // "" unless it is one of OnDeadline
	Answers  bool   // Handle or React: its result is an event of this hop
	Handled  bool   // false if only observers get it
}

// Obey makes Run and Outbox check with c. Called again it replaces the contract. Call it before Run.
func (p *Participant) Obey(c Contract) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		p.late(mistake{errLate})
		return
	}
	p.contract = c
}

// kept checks the handlers with the contract.
func (p *Participant) kept() error {
	if p.contract.Handlers == nil {
		return nil
	}
	var all []Registered
	for topic, byRoute := range p.registered() {
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

// mayEmit checks an entry with the contract, and records an event for a key whose answer is not written yet.
func (p *Participant) mayEmit(ctx context.Context, m *envelope.Message, along *pgx.Batch) error {
	if u, _ := ctx.Value(unitKey{}).(*unit); u != nil && m.Key != nil && m.Topic == p.cfg.Hop.Events() && u.unsent[string(m.Key)] {
		u.overtook = true
	}
	if p.contract.Emits != nil {
		if err := p.contract.Emits(ctx, *m); err != nil {
			return err
		}
	}
	return p.observeSelf(ctx, m, along)
}

// Answer writes an outcome as an event of this hop with the key of the message being handled, for handlers that emit no answer
// by themselves: those registered with On, OnDeadline and Observe. It returns an error for no outcome; Done writes nothing.
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
