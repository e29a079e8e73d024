package participant

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/extension"
	"github.com/troupe-go/troupe/outbox"
)

// obey sets the contract, which checkContract and mayEmit apply. A call after the start of Run ends Run with an error.
func (p *Participant) obey(c extension.Contract) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		p.endRun(mistake{errLate})
		return
	}
	p.contract = c
}

// checkContract returns an error if the contract refuses the registered handlers.
func (p *Participant) checkContract() error {
	if p.contract.Handlers == nil {
		return nil
	}
	var all []extension.Registered
	for topic, byRoute := range p.registered() {
		for _, h := range byRoute {
			if h.wants != nil {
				continue
			}
			r := extension.Registered{Topic: topic, Type: h.typ, Deadline: h.deadline, Answers: h.answers, Handled: h.bind != nil || h.all != nil}
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b extension.Registered) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Deadline, b.Deadline))
	})
	return p.contract.Handlers(all)
}

// mayEmit is called for each entry that the service itself writes. It returns an error if the contract refuses the entry, and calls the observers of
// the hop's own events. It also sets overtook if a handler wrote an event for a key whose answer is not sent yet.
func (p *Participant) mayEmit(ctx context.Context, m *envelope.Message, along *pgx.Batch) error {
	if u, _ := ctx.Value(unitKey{}).(*unit); u != nil && m.Key != nil && m.Topic == p.cfg.Hop.Events() && u.answersAtCommit[string(m.Key)] {
		u.overtook = true
	}
	if p.contract.Emits != nil {
		if err := p.contract.Emits(ctx, *m); err != nil {
			return err
		}
	}
	return p.observeSelf(ctx, m, along)
}

// answer writes an outcome as an event of the hop, for Extension.Answer.
func (p *Participant) answer(ctx context.Context, tx pgx.Tx, o Outcome) error {
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
