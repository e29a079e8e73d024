package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// ExampleOnMissed_alert posts to a webhook that an order was not shipped in time, and that it was shipped after all.
func ExampleOnMissed_alert() {
	texts := make(chan string, 10)
	chat := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var alert struct{ Text string }
		if err := json.NewDecoder(r.Body).Decode(&alert); err != nil {
			alert.Text = err.Error()
		}
		texts <- alert.Text
	}))
	defer chat.Close()
	example(func(ctx context.Context, pool *pgxpool.Pool) error {
		p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("order", "order"), Local: true})
		if err != nil {
			return err
		}
		s, err := flow.New(flow.Config{Participant: p, AlertURL: chat.URL, Declared: flow.Declaration{
			Hop: "order.order",
			Expectations: []flow.Expectation{{
				Name:   "shipped",
				After:  flow.Message{Topic: "order.payment.events", Type: "PaymentCharged"},
				Expect: []flow.Message{{Topic: "order.shipping.events", Type: "OrderShipped"}},
				Within: "200ms",
				Raise:  flow.Message{Topic: "order.order.events", Type: "NotShipped"},
			}},
		}})
		if err != nil {
			return err
		}
		flow.OnMissed(s, "shipped", func(_ context.Context, _ pgx.Tx, m flow.Missed) (participant.Outcome, error) {
			return participant.Refuse(NotShipped{OrderID: m.Key}), nil
		})
		return p.Run(ctx)
	}, func(ctx context.Context, pool *pgxpool.Pool) error {
		next := func() error {
			select {
			case text := <-texts:
				fmt.Println(text)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return errors.Join(
			emit(ctx, pool, payment.Events(), "o-1", "PaymentCharged", `{"cents": 2933}`), next(),
			emit(ctx, pool, "order.shipping.events", "o-1", "OrderShipped", `{}`), next())
	})
	// Output:
	// order.order: expectation shipped: 1 missing: o-1
	// order.order: expectation shipped: 1 late: o-1
}

// ExampleOnLate reports to other services that an order was shipped after all, which the service had reported as not shipped.
func ExampleOnLate() {
	example(func(ctx context.Context, pool *pgxpool.Pool) error {
		p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("order", "order"), Local: true})
		if err != nil {
			return err
		}
		s, err := flow.New(flow.Config{Participant: p, Declared: flow.Declaration{
			Hop: "order.order",
			Expectations: []flow.Expectation{{
				Name:   "shipped",
				After:  flow.Message{Topic: "order.payment.events", Type: "PaymentCharged"},
				Expect: []flow.Message{{Topic: "order.shipping.events", Type: "OrderShipped"}},
				Within: "200ms",
				Raise:  flow.Message{Topic: "order.order.events", Type: "NotShipped"},
				Late:   []flow.Message{{Topic: "order.order.events", Type: "ShippedLate"}},
			}},
		}})
		if err != nil {
			return err
		}
		flow.OnMissed(s, "shipped", func(_ context.Context, _ pgx.Tx, m flow.Missed) (participant.Outcome, error) {
			return participant.Refuse(NotShipped{OrderID: m.Key}), nil
		})
		flow.OnLate(s, "shipped", func(_ context.Context, _ pgx.Tx, l flow.Late) (participant.Outcome, error) {
			return participant.Succeed(ShippedLate{OrderID: l.Key}), nil
		})
		return p.Run(ctx)
	}, func(ctx context.Context, pool *pgxpool.Pool) error {
		return errors.Join(
			emit(ctx, pool, payment.Events(), "o-1", "PaymentCharged", `{"cents": 2933}`), firstSaid(ctx, pool, "order.order.events"),
			emit(ctx, pool, "order.shipping.events", "o-1", "OrderShipped", `{}`),
			first(ctx, pool, `SELECT concat_ws(' ', headers->>'ce_outcome', key, type, convert_from(payload, 'UTF8')) FROM troupe.outbox
				WHERE type = 'ShippedLate'`))
	})
	// Output:
	// failure o-1 NotShipped {"order_id":"o-1"}
	// success o-1 ShippedLate {"order_id":"o-1"}
}
