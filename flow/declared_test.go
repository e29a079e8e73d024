package flow_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func done[T any](context.Context, pgx.Tx, participant.Event[T]) (participant.Outcome, error) {
	return participant.Done(), nil
}

// idle returns a participant whose servers do not exist. Its tests end before it would connect.
func idle(t *testing.T) *participant.Participant {
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	p, err := participant.New(participant.Config{Pool: pool, Brokers: []string{"127.0.0.1:1"}, Hop: topics.MustHop("order", "shipping")})
	require.NoError(t, err)
	return p
}

// TestHandlersAndDeclarationAreOne checks that Run does not begin, and that its error names each missing handler and declaration.
func TestHandlersAndDeclarationAreOne(t *testing.T) {
	t.Parallel()
	declared := shipping("order")
	declared.Reactions = []flow.Reaction{
		{On: events("order", "inventory", "Refused"), Success: []flow.Message{events("order", "shipping", "Shipped")}},
		{On: events("order", "payment", "Exhausted")},
		{On: commands("order", "shipping", "Ship")},
	}
	declared.Expectations = []flow.Expectation{{
		Name: "paid", After: events("order", "inventory", "Reserved"), Expect: []flow.Message{events("order", "payment", "Paid")},
		Within: "30s", Raise: events("order", "shipping", "TimedOut"),
	}}
	p := idle(t)
	s := bind(t, p, declared)
	participant.On(p, topics.MustHop("order", "inventory"), func(context.Context, pgx.Tx, participant.Event[Refused]) error { return nil })
	flow.On(s, topics.MustHop("order", "order"), done[Notify])
	flow.OnJoin(s, "set", flow.Ends{Complete: ship})
	flow.OnMissed(s, "never", nil)
	err := p.Run(t.Context())
	for _, want := range []string{
		"handlers and declaration of order.shipping differ",
		"the handler of order.inventory.events Refused may end without an outcome: register it with flow.On",
		"a reaction to order.payment.events Exhausted is declared and has no handler",
		"a reaction to order.shipping.commands Ship is declared and has no handler",
		"a handler of order.order.events Notify is registered and not declared",
		`join "set": a handler is registered and no such join is declared`,
		`join "ready" is declared and has no handler`,
		`expectation "never": a handler is registered and no such expectation is declared`,
		`expectation "paid" is declared and no handler raises order.shipping.events TimedOut`,
	} {
		require.ErrorContains(t, err, want)
	}

	p = idle(t)
	flow.OnJoin(bind(t, p, shipping("order")), "ready", flow.Ends{Complete: ship})
	require.ErrorContains(t, p.Run(t.Context()), `join "ready" is declared to send order.shipping.events TimedOut when its time is over, and no handler does`)
}

func TestADeclarationThatCannotBeKeptIsRefused(t *testing.T) {
	t.Parallel()
	p := idle(t)
	_, err := flow.New(flow.Config{})
	require.ErrorContains(t, err, "without a participant")
	for want, change := range map[string]func(*flow.Declaration){
		`is of hop "order.payment"`:              func(d *flow.Declaration) { d.Hop = "order.payment" },
		`join "ready": awaits 0 messages`:        func(d *flow.Declaration) { d.Joins[0].Await = nil },
		`within "soon"`:                          func(d *flow.Declaration) { d.Joins[0].Within = "soon" },
		"has something to send when its time is": func(d *flow.Declaration) { d.Joins[0].Within = "" },
		`join "ready": declared twice`:           func(d *flow.Declaration) { d.Joins = append(d.Joins, d.Joins[0]) },
		"want a name of 1 to 80":                 func(d *flow.Declaration) { d.Joins[0].Name = "a b" },
		`topic "payments"`:                       func(d *flow.Declaration) { d.Joins[0].Await[0].Topic = "payments" },
		"two reactions to order.a.events A": func(d *flow.Declaration) {
			d.Reactions = []flow.Reaction{{On: events("order", "a", "A")}, {On: events("order", "a", "A")}}
		},
		`expectation "e": expects 0`: func(d *flow.Declaration) { d.Expectations = []flow.Expectation{{Name: "e"}} },
	} {
		d := shipping("order")
		change(&d)
		_, err := flow.New(flow.Config{Participant: p, Declared: d})
		require.ErrorContains(t, err, want)
	}
}

// tellerStage returns a service that reacts to Paid as the message instructs it. It may send Notify to the customer and emit
// Shipped or Refused.
func tellerStage(t testing.TB) testkit.StageConfig {
	return testkit.StageConfig{
		Hop: "teller", Participant: participant.Config{Retry: quick}, SQL: shipments,
		Handlers: func(s *testkit.Stage, p *participant.Participant) {
			name := s.Hop.Flow()
			service := bind(t, p, flow.Declaration{
				Hop:    name + ".teller",
				Starts: []flow.Message{commands(name, "customer", "Notify")},
				Reactions: []flow.Reaction{{
					On:      events(name, "payment", "Refused"),
					Success: []flow.Message{events(name, "teller", "Shipped"), commands(name, "customer", "Notify")},
					Failure: []flow.Message{events(name, "teller", "Refused")},
				}},
			})
			flow.On(service, topics.MustHop(name, "payment"), func(ctx context.Context, tx pgx.Tx, e participant.Event[Refused]) (participant.Outcome, error) {
				if _, err := tx.Exec(ctx, "INSERT INTO shipments VALUES ($1)", string(e.Message.Key)); err != nil {
					return participant.Outcome{}, err
				}
				write := func(topic string, body any) error {
					return p.Outbox().Write(ctx, tx, outbox.Entry{Topic: topic, Key: string(e.Message.Key), Body: body})
				}
				customer := topics.MustHop(name, "customer").Commands()
				switch e.Body.Reason {
				case "succeed":
					return participant.Succeed(Shipped{}), nil
				case "refuse":
					return participant.Refuse(Refused{}), nil
				case "command":
					return participant.Done(), write(customer, Notify{})
				case "nothing":
					return participant.Outcome{}, nil
				case "done":
					return participant.Done(), nil
				case "succeed with a failure":
					return participant.Succeed(Refused{}), nil
				case "undeclared event":
					return participant.Succeed(Undeclared{}), nil
				case "undeclared topic":
					return participant.Succeed(Shipped{}), write(topics.MustHop(name, "other").Commands(), Notify{})
				}
				return participant.Done(), write(customer, Undeclared{})
			})
		},
	}
}

// TestAReactionSaysWhatItDeclares checks that an undeclared message is refused before it is written, and that a run
// without any message is an error.
func TestAReactionSaysWhatItDeclares(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, tellerStage(t))
	for reason, want := range map[string]string{
		"nothing":                "without an outcome",
		"done":                   "ended without an outcome: it is declared to send",
		"succeed with a failure": "as the success of a reaction to",
		"undeclared event":       "teller.events Undeclared",
		"undeclared topic":       "other.commands Notify",
		"undeclared command":     "customer.commands Undeclared",
	} {
		m := failure(s, "payment", reason, Refused{reason})
		s.Send(m)
		letter := s.AwaitDeadLetter(m)
		require.Equal(t, participant.Permanent, letter.Class, reason)
		require.Contains(t, letter.Error, want)
		require.Equal(t, 1, letter.Attempts)
	}
	require.Zero(t, count(t, s, "SELECT count(*) FROM shipments"))
	require.Zero(t, count(t, s, "SELECT count(*) FROM troupe.outbox WHERE type IN ('Undeclared', 'Notify', 'Shipped')"))

	succeeds, refuses := failure(s, "payment", "a", Refused{"succeed"}), failure(s, "payment", "b", Refused{"refuse"})
	commands := failure(s, "payment", "c", Refused{"command"})
	s.Send(succeeds, refuses, commands)
	shipped := testkit.Await[Shipped](s, succeeds).Message
	require.Equal(t, envelope.Success, shipped.Outcome)
	require.Equal(t, succeeds.IdempotencyKey+"/teller", shipped.IdempotencyKey)
	require.Equal(t, envelope.Failure, testkit.Await[Refused](s, refuses).Message.Outcome)
	s.Settle()
	require.Len(t, s.Entries(topics.MustHop(s.Hop.Flow(), "customer").Commands()), 1)

	// the same events under other ids, with their idempotency keys, get the same answers
	for _, m := range []*envelope.Message{&succeeds, &commands} {
		m.ID = envelope.NewID()
		s.Send(*m)
	}
	testkit.Await[Shipped](s, succeeds)
	s.Settle()
	require.Equal(t, 3, count(t, s, "SELECT count(*) FROM shipments"), "the handler has not run again")
	require.Len(t, s.Entries(topics.MustHop(s.Hop.Flow(), "customer").Commands()), 1)
}

// TestAServiceStartsWhatItDeclares emits messages outside a handler.
func TestAServiceStartsWhatItDeclares(t *testing.T) {
	t.Parallel()
	cfg := tellerStage(t)
	var out *outbox.Outbox
	handlers := cfg.Handlers
	cfg.Handlers = func(s *testkit.Stage, p *participant.Participant) {
		handlers(s, p)
		out = p.Outbox()
	}
	s := testkit.NewStage(t, cfg)
	write := func(body any) error {
		return pgx.BeginFunc(t.Context(), s.Pool, func(tx pgx.Tx) error {
			return out.Write(t.Context(), tx, outbox.Entry{Topic: s.Hop.Flow() + ".customer.commands", Key: "o-1", Body: body})
		})
	}
	require.NoError(t, write(Notify{}))
	require.ErrorContains(t, write(Undeclared{}), "customer.commands Undeclared: add it to the starts")
}
