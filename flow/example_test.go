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

	"github.com/troupe-go/troupe/devstack"
	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/flow/reactions"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// The hops of the examples, and what they say.
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
)

// serveShipping is a whole service: it ships when an order is paid and reserved, in whatever order it hears of that.
func serveShipping(ctx context.Context, pool *pgxpool.Pool) error {
	p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("order", "shipping"), Local: true})
	if err != nil {
		return err
	}
	s, err := flow.New(flow.Config{Participant: p, Declared: reactions.Service{
		Hop: "order.shipping",
		Joins: []reactions.Join{{
			Name: "ready",
			Await: []reactions.Message{
				{Topic: "order.payment.events", Type: "PaymentCharged"},
				{Topic: "order.inventory.events", Type: "StockReserved"},
			},
			Within:  "15m",
			Success: []reactions.Message{{Topic: "order.shipping.events", Type: "OrderShipped", Last: true}},
			Expired: []reactions.Message{{Topic: "order.shipping.events", Type: "NotShipped"}},
			Broken:  []reactions.Message{{Topic: "order.payment.events", Type: "PaymentDeclined"}},
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

// What a join has, and what it waits for, is a row.
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

// Handlers and declaration that differ are an error before anything is consumed.
func ExampleNew() {
	example(func(ctx context.Context, pool *pgxpool.Pool) error {
		s, err := greeter(pool, reactions.Reaction{On: reactions.Message{Topic: "order.customer.events", Type: "CustomerChanged"}})
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

// A service that takes back what it has done when another one cannot do its part.
func ExampleOn() {
	example(func(ctx context.Context, pool *pgxpool.Pool) error {
		p, err := participant.New(participant.Config{Pool: pool, Hop: payment, Local: true})
		if err != nil {
			return err
		}
		s, err := flow.New(flow.Config{Participant: p, Declared: reactions.Service{
			Hop: "order.payment",
			Reactions: []reactions.Reaction{{
				On:      reactions.Message{Topic: "order.inventory.events", Type: "OutOfStock"},
				Success: []reactions.Message{{Topic: "order.payment.events", Type: "PaymentRefunded", Last: true}},
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

// Nobody says that an order was not shipped; whoever cares notices.
func ExampleOnMissed() {
	example(func(ctx context.Context, pool *pgxpool.Pool) error {
		p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("order", "order"), Local: true})
		if err != nil {
			return err
		}
		s, err := flow.New(flow.Config{Participant: p, Declared: reactions.Service{
			Hop: "order.order",
			Expectations: []reactions.Expectation{{
				Name:   "shipped",
				After:  reactions.Message{Topic: "order.payment.events", Type: "PaymentCharged"},
				Expect: []reactions.Message{{Topic: "order.shipping.events", Type: "OrderShipped"}},
				Within: "200ms",
				Raise:  reactions.Message{Topic: "order.order.events", Type: "NotShipped"},
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

// The three ways in which a service that keeps nothing learns what it needs. Here it greets the customer of an order, and
// the events about orders have no names in them.
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

// greeter is a service that reacts to OrderPlaced, and says Greeted.
func greeter(pool *pgxpool.Pool, more ...reactions.Reaction) (*flow.Service, error) {
	p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("order", "greeter"), Local: true})
	if err != nil {
		return nil, err
	}
	return flow.New(flow.Config{Participant: p, Declared: reactions.Service{
		Hop: "order.greeter",
		Reactions: append(more, reactions.Reaction{
			On:      reactions.Message{Topic: "order.order.events", Type: "OrderPlaced"},
			Success: []reactions.Message{{Topic: "order.greeter.events", Type: "Greeted", Last: true}},
		}),
	}})
}

var order, customer = topics.MustHop("order", "order"), topics.MustHop("order", "customer")

// In the event: who says it adds what others need. Nothing else has to be there, nothing can be stale that was not when it
// was said; the event grows, and its writer knows what its readers want.
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

// Ask the source: always the newest, and nothing is kept; but the source must be there, and takes a request for each event.
// While it is away the key waits as after any error, and others go on. Alone keeps a slow answer from holding up a batch.
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
			return "", err // transient: it is tried again
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

// A local model: the service keeps what it needs of the source's events, the newest of each, in whatever order they come.
// It needs nobody when an order comes; what it knows may be a little old, or not be there yet: then the order waits for its
// next try.
func ExampleOn_localModel() { // D21
	const keepNewest = `INSERT INTO customers AS c (id, version, name) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET version = excluded.version, name = excluded.name WHERE excluded.version > c.version`
	example(func(ctx context.Context, pool *pgxpool.Pool) error {
		s, err := greeter(pool, reactions.Reaction{On: reactions.Message{Topic: "order.customer.events", Type: "CustomerChanged"}})
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

// example runs a service in a database of its own, and then what is asked of it. Events come by the database alone: over
// Kafka the participants have Brokers instead of Local, and a relay runs beside each database.
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

// emit says something in another hop's name, once somebody here listens.
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

// firstSaid prints the first message that a hop says.
func firstSaid(ctx context.Context, pool *pgxpool.Pool, topic string) error {
	const sql = "SELECT concat_ws(' ', headers->>'ce_outcome', key, type, convert_from(payload, 'UTF8')) FROM troupe.outbox WHERE topic = $1"
	return first(ctx, pool, sql, topic)
}

// first prints a query's first row, once there is one.
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

// pause is between two looks.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
}
