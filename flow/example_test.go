package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// These are the hops of the examples, and their messages.
var (
	payment   = topics.MustHop("order", "payment")
	inventory = topics.MustHop("order", "inventory")
)

type (
	PaymentCharged struct {
		Cents int `json:"cents"`
	}
	StockReserved struct {
		Titles []string `json:"titles"`
	}
	OrderShipped struct {
		Cents  int      `json:"cents"`
		Titles []string `json:"titles"`
	}
	PaymentRefunded struct {
		Cents int `json:"cents"`
	}
	NotShipped struct {
		OrderID string `json:"order_id"`
	}
	ShippedLate struct {
		OrderID string `json:"order_id"`
	}
)

// serveShipping is a whole service: it ships when an order is paid and reserved, in whatever order it hears of that.
func serveShipping(ctx context.Context, pool *pgxpool.Pool) error {
	p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("order", "shipping"), Local: true})
	if err != nil {
		return err
	}
	s, err := flow.New(flow.Config{Participant: p, Declared: flow.Declaration{
		Hop: "order.shipping",
		Joins: []flow.Join{{
			Name: "ready",
			Await: []flow.Message{
				{Topic: "order.payment.events", Type: "PaymentCharged"},
				{Topic: "order.inventory.events", Type: "StockReserved"},
			},
			Within:  "15m",
			Success: []flow.Message{{Topic: "order.shipping.events", Type: "OrderShipped", Last: true}},
			Expired: []flow.Message{{Topic: "order.shipping.events", Type: "NotShipped"}},
			Broken:  []flow.Message{{Topic: "order.payment.events", Type: "PaymentDeclined"}},
		}},
	}})
	if err != nil {
		return err
	}
	flow.OnJoin(s, "ready", flow.Ends{
		Complete: func(_ context.Context, _ pgx.Tx, j flow.Joined) (participant.Outcome, error) {
			charged, err := flow.Read[PaymentCharged](j)
			if err != nil {
				return participant.Outcome{}, err
			}
			reserved, err := flow.Read[StockReserved](j)
			return participant.Succeed(OrderShipped{Cents: charged.Cents, Titles: reserved.Titles}), err
		},
		Expired: func(_ context.Context, _ pgx.Tx, j flow.Joined) (participant.Outcome, error) {
			return participant.Refuse(NotShipped{OrderID: j.Key}), nil
		},
	})
	return p.Run(ctx)
}

func Example() {
	example(serveShipping, func(ctx context.Context, pool *pgxpool.Pool) error {
		return errors.Join(
			emit(ctx, pool, inventory.Events(), "o-1", "StockReserved", `{"titles": ["The Go Programming Language"]}`),
			emit(ctx, pool, payment.Events(), "o-1", "PaymentCharged", `{"cents": 2933}`),
			firstSaid(ctx, pool, "order.shipping.events"))
	})
	// Output:
	// success o-1 OrderShipped {"cents":2933,"titles":["The Go Programming Language"]}
}

// ExampleOnJoin shows the row of a join: the arrived messages, and how it ended.
func ExampleOnJoin() {
	example(serveShipping, func(ctx context.Context, pool *pgxpool.Pool) error {
		look := func(key, status string) error {
			const sql = "SELECT concat_ws(' ', name, key, status, nullif(array_to_string(arrived, ', '), ''), 'broken by ' || broken_by) FROM troupe.joins WHERE key = $1 AND status = $2"
			return first(ctx, pool, sql, key, status)
		}
		return errors.Join(
			emit(ctx, pool, inventory.Events(), "o-1", "StockReserved", `{"titles": ["Faust"]}`), look("o-1", "open"),
			emit(ctx, pool, payment.Events(), "o-1", "PaymentCharged", `{"cents": 700}`), look("o-1", "complete"),
			emit(ctx, pool, payment.Events(), "o-2", "PaymentDeclined", `{}`), look("o-2", "broken"))
	})
	// Output:
	// ready o-1 open order.inventory.events StockReserved
	// ready o-1 complete order.inventory.events StockReserved, order.payment.events PaymentCharged
	// ready o-2 broken broken by order.payment.events PaymentDeclined
}

// ExampleNew shows that a difference between handlers and declaration is an error before anything is consumed.
func ExampleNew() {
	example(func(ctx context.Context, pool *pgxpool.Pool) error {
		s, err := greeter(pool, flow.Reaction{On: flow.Message{Topic: "order.customer.events", Type: "CustomerChanged"}})
		if err != nil {
			return err
		}
		flow.On(s, payment, func(context.Context, pgx.Tx, participant.Event[PaymentCharged]) (participant.Outcome, error) {
			return participant.Done(), nil
		})
		return s.Participant().Run(ctx)
	}, func(context.Context, *pgxpool.Pool) error { return nil })
	// Output:
	// participant order.greeter: handlers and declaration of order.greeter differ: a reaction to order.customer.events CustomerChanged is declared and has no handler: register one, or strike it out of the declaration
	// a reaction to order.order.events OrderPlaced is declared and has no handler: register one, or strike it out of the declaration
	// a handler of order.payment.events PaymentCharged is registered and not declared: add a reaction to the declaration, or take the handler out
}

// ExampleOn shows a service that undoes its part when another service cannot do its own.
func ExampleOn() {
	example(func(ctx context.Context, pool *pgxpool.Pool) error {
		p, err := participant.New(participant.Config{Pool: pool, Hop: payment, Local: true})
		if err != nil {
			return err
		}
		s, err := flow.New(flow.Config{Participant: p, Declared: flow.Declaration{
			Hop: "order.payment",
			Reactions: []flow.Reaction{{
				On:      flow.Message{Topic: "order.inventory.events", Type: "OutOfStock"},
				Success: []flow.Message{{Topic: "order.payment.events", Type: "PaymentRefunded", Last: true}},
				Undoes:  []string{"PaymentCharged"},
			}},
		}})
		if err != nil {
			return err
		}
		type OutOfStock struct{}
		flow.On(s, inventory, func(ctx context.Context, tx pgx.Tx, e participant.Event[OutOfStock]) (participant.Outcome, error) {
			var refunded PaymentRefunded
			err := tx.QueryRow(ctx, "UPDATE payments SET refunded = true WHERE order_id = $1 RETURNING cents", string(e.Message.Key)).Scan(&refunded.Cents)
			return participant.Succeed(refunded), err
		})
		return p.Run(ctx)
	}, func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, "INSERT INTO payments (order_id, cents) VALUES ('o-1', 2933)")
		return errors.Join(err, emit(ctx, pool, inventory.Events(), "o-1", "OutOfStock", `{}`), firstSaid(ctx, pool, "order.payment.events"))
	})
	// Output:
	// success o-1 PaymentRefunded {"cents":2933}
}

// ExampleOnMissed raises an event when an order is not shipped in time, which no event reports by itself.
func ExampleOnMissed() {
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
		return errors.Join(emit(ctx, pool, payment.Events(), "o-1", "PaymentCharged", `{"cents": 2933}`), firstSaid(ctx, pool, "order.order.events"))
	})
	// Output:
	// failure o-1 NotShipped {"order_id":"o-1"}
}

// The following examples show three ways in which a service gets data that belongs to another service. The
// service greets the customer of an order, and the events about orders contain no names.
type (
	OrderPlaced struct {
		CustomerID string `json:"customer_id"`
		Name       string `json:"name,omitempty"`
	}
	CustomerChanged struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		Version int    `json:"version"`
	}
	Greeted struct {
		Text string `json:"text"`
	}
)

// greeter returns a service that reacts to OrderPlaced, and emits Greeted.
func greeter(pool *pgxpool.Pool, more ...flow.Reaction) (*flow.Service, error) {
	p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("order", "greeter"), Local: true})
	if err != nil {
		return nil, err
	}
	return flow.New(flow.Config{Participant: p, Declared: flow.Declaration{
		Hop: "order.greeter",
		Reactions: append(more, flow.Reaction{
			On:      flow.Message{Topic: "order.order.events", Type: "OrderPlaced"},
			Success: []flow.Message{{Topic: "order.greeter.events", Type: "Greeted", Last: true}},
		}),
	}})
}

var order, customer = topics.MustHop("order", "order"), topics.MustHop("order", "customer")

// ExampleOn_inTheEvent puts the data into the event: its writer adds what readers need. Nothing else must be available, and the
// data is as fresh as the event. But the event grows, and its writer must know the needs of its readers.
func ExampleOn_inTheEvent() { // D21
	example(func(ctx context.Context, pool *pgxpool.Pool) error {
		s, err := greeter(pool)
		if err != nil {
			return err
		}
		flow.On(s, order, func(_ context.Context, _ pgx.Tx, e participant.Event[OrderPlaced]) (participant.Outcome, error) {
			return participant.Succeed(Greeted{"thank you, " + e.Body.Name}), nil
		})
		return s.Participant().Run(ctx)
	}, func(ctx context.Context, pool *pgxpool.Pool) error {
		placed := `{"customer_id": "c-1", "name": "Ada"}`
		return errors.Join(emit(ctx, pool, order.Events(), "o-1", "OrderPlaced", placed), firstSaid(ctx, pool, "order.greeter.events"))
	})
	// Output:
	// success o-1 Greeted {"text":"thank you, Ada"}
}

// ExampleOn_askTheSource queries the source: the data is always fresh, and nothing is stored; but the source must be available,
// and gets a request for each event. While it is not available, the key waits as after any error, and other keys continue. The
// option Alone keeps a slow response from delaying a batch.
func ExampleOn_askTheSource() { // D21
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(CustomerChanged{ID: r.PathValue("id"), Name: "Ada"})
	}))
	defer source.Close()
	nameOf := func(ctx context.Context, id string) (string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, source.URL+"/customers/"+id, nil)
		if err != nil {
			return "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err // transient: the event is retried
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return "", fmt.Errorf("customer %s: %s", id, response.Status)
		}
		var c CustomerChanged
		err = json.NewDecoder(http.MaxBytesReader(nil, response.Body, 1<<20)).Decode(&c)
		return c.Name, err
	}
	example(func(ctx context.Context, pool *pgxpool.Pool) error {
		s, err := greeter(pool)
		if err != nil {
			return err
		}
		flow.On(s, order, func(ctx context.Context, _ pgx.Tx, e participant.Event[OrderPlaced]) (participant.Outcome, error) {
			name, err := nameOf(ctx, e.Body.CustomerID)
			return participant.Succeed(Greeted{"thank you, " + name}), err
		}, participant.Alone())
		return s.Participant().Run(ctx)
	}, func(ctx context.Context, pool *pgxpool.Pool) error {
		return errors.Join(emit(ctx, pool, order.Events(), "o-1", "OrderPlaced", `{"customer_id": "c-1"}`), firstSaid(ctx, pool, "order.greeter.events"))
	})
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// success o-1 Greeted {"text":"thank you, Ada"}
}

// ExampleOn_localModel keeps a local model: the service stores the data it needs from the source's events, the latest of each, in
// whatever order they arrive. It needs no other service when an order arrives. Its data may be a little old, or not be there yet:
// then the order waits for its next attempt.
func ExampleOn_localModel() { // D21
	const keepNewest = `INSERT INTO customers AS c (id, version, name) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET version = excluded.version, name = excluded.name WHERE excluded.version > c.version`
	example(func(ctx context.Context, pool *pgxpool.Pool) error {
		s, err := greeter(pool, flow.Reaction{On: flow.Message{Topic: "order.customer.events", Type: "CustomerChanged"}})
		if err != nil {
			return err
		}
		flow.On(s, customer, func(ctx context.Context, tx pgx.Tx, e participant.Event[CustomerChanged]) (participant.Outcome, error) {
			_, err := tx.Exec(ctx, keepNewest, e.Body.ID, e.Body.Version, e.Body.Name)
			return participant.Done(), err
		})
		flow.On(s, order, func(ctx context.Context, tx pgx.Tx, e participant.Event[OrderPlaced]) (participant.Outcome, error) {
			var name string
			err := tx.QueryRow(ctx, "SELECT name FROM customers WHERE id = $1", e.Body.CustomerID).Scan(&name)
			return participant.Succeed(Greeted{"thank you, " + name}), err
		})
		return s.Participant().Run(ctx)
	}, func(ctx context.Context, pool *pgxpool.Pool) error {
		return errors.Join(
			emit(ctx, pool, customer.Events(), "c-1", "CustomerChanged", `{"id": "c-1", "version": 2, "name": "Ada"}`),
			emit(ctx, pool, customer.Events(), "c-1", "CustomerChanged", `{"id": "c-1", "version": 1, "name": "Augusta"}`),
			emit(ctx, pool, order.Events(), "o-1", "OrderPlaced", `{"customer_id": "c-1"}`),
			firstSaid(ctx, pool, "order.greeter.events"))
	})
	// Output:
	// success o-1 Greeted {"text":"thank you, Ada"}
}

// example runs a service in a database of its own, and then the rest of the example. Events are delivered inside the database:
// with Kafka, set Brokers instead of Local, and run a relay for each database.
func example(serve, ask func(ctx context.Context, pool *pgxpool.Pool) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := inPlayground(ctx, serve, ask); err != nil {
		fmt.Println(err)
	}
}

func inPlayground(ctx context.Context, serve, ask func(ctx context.Context, pool *pgxpool.Pool) error) error {
	db, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{Settings: map[string]string{"fsync": "off"}})
	if err != nil {
		return err
	}
	defer db.Close()
	url, err := db.CreateDatabase(ctx, "service", "")
	if err == nil {
		err = migrations.Up(ctx, url)
	}
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, `
		CREATE TABLE payments (order_id text PRIMARY KEY, cents int NOT NULL, refunded boolean NOT NULL DEFAULT false);
		CREATE TABLE customers (id text PRIMARY KEY, version int NOT NULL, name text NOT NULL)`)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- serve(running, pool) }()
	err = ask(ctx, pool)
	stop()
	return errors.Join(err, <-ended)
}

// emit emits an event in the name of another hop, as soon as a participant in this database consumes its topic.
func emit(ctx context.Context, pool *pgxpool.Pool, topic, key, typ, payload string) error {
	for local := false; !local; {
		if err := pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM troupe.local_topics WHERE topic = $1)", topic).Scan(&local); err != nil {
			return err
		}
		pause(ctx)
	}
	_, err := pool.Exec(ctx, "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, $3, $4)", topic, key, typ, payload)
	return err
}

// firstSaid prints the first message that a hop emits.
func firstSaid(ctx context.Context, pool *pgxpool.Pool, topic string) error {
	const sql = "SELECT concat_ws(' ', headers->>'ce_outcome', key, type, convert_from(payload, 'UTF8')) FROM troupe.outbox WHERE topic = $1"
	return first(ctx, pool, sql, topic)
}

// first prints a query's first row, as soon as there is one.
func first(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) error {
	for {
		var line string
		err := pool.QueryRow(ctx, sql, args...).Scan(&line)
		if err == nil {
			fmt.Println(line)
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		pause(ctx)
	}
}

// pause waits between two polls.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
}
