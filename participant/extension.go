package participant

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/extension"
	"github.com/troupe-go/troupe/topics"
)

// Extension is for the packages of this module that build on a participant, such as flow and saga/coordinator. Its types are
// internal, and may change with any version.
func (p *Participant) Extension() extension.Participant { return extended{p} }

type extended struct{ p *Participant }

func (e extended) Obey(c extension.Contract)             { e.p.obey(c) }
func (e extended) Observe(topic, typ string, fn observe) { e.p.observe(topic, typ, fn) }
func (e extended) ObserveSelf(o extension.SelfObserver)  { e.p.addSelfObserver(o) }
func (e extended) ObserveEvents(wants func(envelope.Message) bool, fn observe) {
	e.p.observeEvents(eventObserver{wants, fn})
}
func (e extended) OnAllOptional(from []topics.Hop, fn any) {
	all, ok := fn.(func(ctx context.Context, tx pgx.Tx, ms []Taken) error)
	if !ok {
		panic(fmt.Sprintf("participant %s: OnAllOptional with a %T: want a function as for OnAll", e.p.cfg.Group, fn))
	}
	e.p.onAll(from, &taker{all}, true)
}
func (e extended) Alongside(fn func(ctx context.Context)) { e.p.runAlongside(fn) }
func (e extended) FireAfterBacklog(name string)           { e.p.fireAfterBacklog(name) }
func (e extended) NotRebuilt(reason string)               { e.p.notRebuilt = reason }
func (e extended) Codec() envelope.Codec                  { return e.p.cfg.Codec }
func (e extended) Pool() *pgxpool.Pool                    { return e.p.cfg.Pool }
func (e extended) Deadlines() extension.Deadlines         { return &plannedDeadlines{p: e.p} }

func (e extended) Call(typ string, c extension.Call) {
	e.p.callUndecoded(typ, c.Call, func(ctx context.Context, tx pgx.Tx, m envelope.Message, _ int, answer any) (Outcome, error) {
		outcome, err := c.Decide(ctx, tx, m, answer)
		o, _ := outcome.(Outcome)
		return o, err
	})
}

func (e extended) Answer(ctx context.Context, tx pgx.Tx, outcome any) error {
	o, ok := outcome.(Outcome)
	if !ok {
		return fmt.Errorf("participant %s: answer with a %T: want an Outcome", e.p.cfg.Group, outcome)
	}
	return e.p.answer(ctx, tx, o)
}

// plannedDeadlines collects deadlines in set. p checks each of them.
type plannedDeadlines struct {
	p   *Participant
	set deadlineSet
}

func (d *plannedDeadlines) Schedule(ctx context.Context, one extension.Deadline) error {
	return d.p.plan(ctx, &d.set, Deadline(one))
}

func (d *plannedDeadlines) Cancel(ctx context.Context, name, scope string) error {
	return d.p.planCancel(ctx, &d.set, name, scope)
}

func (d *plannedDeadlines) Queue(b *pgx.Batch) { d.p.queueDeadlines(b, &d.set) }
