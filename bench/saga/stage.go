package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/topics"
)

// A stage holds the servers.
type stage struct {
	sizes
	harness.Servers
	peers []string
}

// fill makes the files of the log exist, as on a server that has run for a while: a new file is filled with zeros and flushed
// during the measurement.
const fill = "SELECT count(pg_logical_emit_message(false, 'fill', repeat(' ', 1000000))) FROM generate_series(1, $1)"

const (
	template = "troupe_bench_saga"
	effects  = "CREATE TABLE effects (key text, step text, PRIMARY KEY (key, step))"
)

func (s *stage) open(ctx context.Context) error {
	if err := s.Open(ctx, map[string]string{"min_wal_size": "2GB", "max_connections": "400"}); err != nil {
		return err
	}
	if err := s.Template(ctx, template, effects); err != nil {
		return err
	}
	url := s.Postgres.URL(template)
	if _, err := harness.Query[int](ctx, url, fill, s.fill); err != nil {
		return err
	}
	return harness.Execute(ctx, url, "CHECKPOINT")
}

// A system is the running order flow.
type system struct {
	*harness.System
	stage       *stage
	local       bool
	swift       bool // see task
	brokers     []string
	order       *pgxpool.Pool // the coordinator's
	pools       []*pgxpool.Pool
	coordinator *coordinator.Coordinator

	mu    sync.Mutex
	waits map[string]chan saga.Status // by id
}

// prepare creates the databases of a system: the coordinator's, and one for each hop unless all is local.
func (s *stage) prepare(ctx context.Context, kind string) (y *system, err error) {
	y = &system{
		System: s.NewSystem(ctx), stage: s, local: kind == "local", brokers: s.Kafka.Addrs(), waits: make(map[string]chan saga.Status),
	}
	databases := 4
	if y.local {
		databases = 1
	}
	for n := range databases {
		url, err := y.Database(ctx, fmt.Sprint("_", n))
		if err != nil {
			return y, err
		}
		if err := y.connect(ctx, url); err != nil {
			return y, err
		}
	}
	return y, nil
}

// connect opens a pool of the next database. The first database is the coordinator's.
func (y *system) connect(ctx context.Context, url string) error {
	pool, err := y.Pool(ctx, url, 24)
	if err == nil {
		y.pools = append(y.pools, pool)
		y.order = y.pools[0]
	}
	return err
}

func (s *stage) start(ctx context.Context, kind string) (*system, error) {
	y, err := s.prepare(ctx, kind)
	if err == nil {
		err = y.run(ctx)
	}
	return y, err
}

// run runs the participants, the coordinator and their relays until Close.
func (y *system) run(ctx context.Context) error {
	for i, hop := range []string{"payment", "inventory", "shipping"} {
		pool := y.pools[min(i+1, len(y.pools)-1)]
		p, err := y.participant(hop, pool)
		if err != nil {
			return err
		}
		switch hop {
		case "payment":
			participant.Handle(p, effect[ChargePayment](PaymentCharged{"p-1"}))
		case "inventory":
			participant.Handle(p, effect[ReserveStock](StockReserved{"r-1"}))
		case "shipping":
			participant.Handle(p, effect[ShipOrder](OrderShipped{"s-1"}))
		}
		if err := y.runHop(p, pool); err != nil {
			return err
		}
	}
	p, err := y.newCoordinator(ctx)
	if err != nil {
		return err
	}
	return y.runHop(p, y.order)
}

// newCoordinator makes the coordinator. It decides when its participant runs.
func (y *system) newCoordinator(ctx context.Context) (*participant.Participant, error) {
	d, err := saga.Parse(harness.OrderSaga)
	if err != nil {
		return nil, err
	}
	p, err := y.participant("order", y.order)
	if err != nil {
		return nil, err
	}
	y.coordinator, err = coordinator.New(ctx, coordinator.Config{
		Participant: p, Pool: y.order, Definitions: []*saga.Definition{d}, Decided: y.decided,
	})
	return p, err
}

func (y *system) participant(hop string, pool *pgxpool.Pool) (*participant.Participant, error) {
	cfg := participant.Config{Pool: pool, Hop: topics.MustHop(y.Flow, hop), Local: y.local, Batch: 100, Concurrency: 1, Partitions: 1}
	if !y.local {
		cfg.Brokers = y.brokers
	}
	if y.swift {
		cfg.Kafka = []kgo.Opt{kgo.InstanceID("member-1")}
	}
	return participant.New(cfg)
}

// runHop runs a participant and its relay.
func (y *system) runHop(p *participant.Participant, pool *pgxpool.Pool) error {
	y.Go(p.Run)
	if y.local {
		return nil
	}
	cfg := relay.Config{Pool: pool, Brokers: y.brokers, Service: p.Hop().Name()}
	if y.swift {
		cfg.Lease = time.Second
	}
	r, err := relay.New(cfg)
	if err != nil {
		return err
	}
	y.Go(r.Run)
	return nil
}

// decided wakes the caller that waits for a saga's end.
func (y *system) decided(d coordinator.Decided) {
	if !d.State.Ended() && d.State.Status != saga.Parked {
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if ch := y.waits[d.ID]; ch != nil {
		delete(y.waits, d.ID)
		ch <- d.State.Status
	}
}

// runSaga starts a saga and waits for its end.
func (y *system) runSaga(ctx context.Context, key string) error {
	ended := make(chan saga.Status, 1)
	y.mu.Lock()
	y.waits["order/"+key] = ended
	y.mu.Unlock()
	if _, err := y.coordinator.Submit(ctx, "order", orderData(key), nil); err != nil {
		return err
	}
	select {
	case status := <-ended:
		if status != saga.Completed {
			return fmt.Errorf("saga %s is %s", key, status)
		}
		return nil
	case <-time.After(time.Minute):
		return fmt.Errorf("saga %s has not ended after a minute", key)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func orderData(key string) map[string]any {
	return map[string]any{"order_id": key, "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 1}
}

// check counts effects: three for each saga that has ended, and no saga that has not.
func (y *system) check(ctx context.Context) error {
	var sagas, done, open int
	const counts = "SELECT count(*) FILTER (WHERE status = 'completed'), count(*) FILTER (WHERE status <> 'completed') FROM troupe.sagas"
	if err := y.order.QueryRow(ctx, counts).Scan(&sagas, &open); err != nil {
		return err
	}
	for _, p := range y.pools {
		var n int
		if err := p.QueryRow(ctx, "SELECT count(*) FROM effects").Scan(&n); err != nil {
			return err
		}
		done += n
	}
	if open > 0 || done != 3*sagas {
		return fmt.Errorf("%d sagas completed, %d not, with %d effects: want three of each", sagas, open, done)
	}
	return nil
}

// The messages.
type (
	ChargePayment struct {
		OrderID string `json:"order_id"`
	}
	PaymentCharged struct {
		PaymentID string `json:"payment_id"`
	}
	ReserveStock struct {
		OrderID string `json:"order_id"`
	}
	StockReserved struct {
		ReservationID string `json:"reservation_id"`
	}
	ShipOrder struct {
		OrderID string `json:"order_id"`
	}
	OrderShipped struct {
		ShipmentID string `json:"shipment_id"`
	}
)

// effect returns a handler that inserts a row and succeeds.
func effect[T any](done any) func(context.Context, pgx.Tx, participant.Command[T]) (participant.Outcome, error) {
	return func(ctx context.Context, tx pgx.Tx, c participant.Command[T]) (participant.Outcome, error) {
		err := participant.Queue(ctx, tx, "INSERT INTO effects (key, step) VALUES ($1, $2)", string(c.Message.Key), c.Message.SagaStep)
		return participant.Succeed(done), err
	}
}
