package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/topics"
)

const (
	commandRate  = 100 // a second
	commandKeys  = 50
	sagaRate     = 10 // a second
	servicesPool = 40 // connections

	effectsTable = `CREATE TABLE effects (
		id bigserial PRIMARY KEY, key text NOT NULL, step text NOT NULL, number bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())`
	insertEffect = "INSERT INTO effects (key, step, number) VALUES ($1, $2, $3)"
)

// services are the participants and the coordinator of a flow, all in the database of the pair, and the senders of their load.
type services struct {
	flow        string
	pool        *pgxpool.Pool
	brokers     []string
	client      *kgo.Client // reads the events of the ledger and of the coordinator, and sends commands
	ledger      topics.Hop
	order       topics.Hop
	coordinator *coordinator.Coordinator
	all         []*participant.Participant

	commands sync.Map // call → time.Time: when it was sent; the broker has it
	done     sync.Map // call → struct{}: the participant has seen its commit
	sagas    sync.Map // key → time.Time: when its start was requested, which was acknowledged
}

// A call is a command: its key, and its number among the commands of the key. It is also the body of the command and of its answer.
type call struct {
	Key    string `json:"key"`
	Number int64  `json:"number"`
}

// Messages of the ledger, and of the steps of the order's saga.
type (
	Record   call
	Recorded call

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

// newServices makes the participants and the coordinator, and their topics.
func newServices(ctx context.Context, pool *pgxpool.Pool, brokers []string) (s *services, err error) {
	s = &services{flow: "failover-" + uuid.NewString()[:8], pool: pool, brokers: brokers}
	s.ledger, s.order = topics.MustHop(s.flow, "ledger"), topics.MustHop(s.flow, "order")
	s.client, err = kafka.NewClient(brokers, kgo.ConsumeTopics(s.ledger.Events(), s.order.Events()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return s, err
	}
	for _, hop := range []topics.Hop{s.ledger, s.order} {
		for _, name := range []string{hop.Commands(), hop.Events(), hop.DeadLetters()} {
			if err := kafka.Provision(ctx, s.client, kafka.Topic{Name: name, Partitions: 3}); err != nil {
				return s, err
			}
		}
	}
	for _, hop := range []string{"ledger", "payment", "inventory", "shipping", "order"} {
		p, err := participant.New(participant.Config{
			Pool: pool, Brokers: brokers, Hop: topics.MustHop(s.flow, hop), Partitions: 3, Batch: 20, Concurrency: 4,
			Hooks: participant.Hooks{AfterCommit: s.committed},
		})
		if err != nil {
			return s, err
		}
		s.all = append(s.all, p)
		switch hop {
		case "ledger":
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Record]) (participant.Outcome, error) {
				err := participant.Queue(ctx, tx, insertEffect, c.Body.Key, "ledger", c.Body.Number)
				return participant.Succeed(Recorded(c.Body)), err
			})
		case "payment":
			participant.Handle(p, step[ChargePayment](PaymentCharged{"p-1"}))
		case "inventory":
			participant.Handle(p, step[ReserveStock](StockReserved{"r-1"}))
		case "shipping":
			participant.Handle(p, step[ShipOrder](OrderShipped{"s-1"}))
		case "order":
			d, err := saga.Parse(harness.OrderSaga)
			if err != nil {
				return s, err
			}
			s.coordinator, err = coordinator.New(ctx, coordinator.Config{Participant: p, Pool: pool, Definitions: []*saga.Definition{d}})
			if err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// step returns a handler that inserts the effect of a saga's step.
func step[T any](done any) func(context.Context, pgx.Tx, participant.Command[T]) (participant.Outcome, error) {
	return func(ctx context.Context, tx pgx.Tx, c participant.Command[T]) (participant.Outcome, error) {
		err := participant.Queue(ctx, tx, insertEffect, string(c.Message.Key), c.Message.SagaStep, 0)
		return participant.Succeed(done), err
	}
}

// committed notes the commits of the ledger.
func (s *services) committed(d participant.Delivery) {
	var c call
	if d.Message.Topic == s.ledger.Commands() && json.Unmarshal(d.Message.Payload, &c) == nil {
		s.done.Store(c, struct{}{})
	}
}

// send sends commands until ctx ends. The commands of a key are numbered in their order.
func (s *services) send(ctx context.Context) {
	every(ctx, time.Second/commandRate, func(n int64) {
		c := call{fmt.Sprint("k-", n%commandKeys), n / commandKeys}
		body, _ := json.Marshal(c) // cannot fail
		id, sent := envelope.NewID(), time.Now()
		s.client.Produce(context.WithoutCancel(ctx), kafka.Record(envelope.Message{
			Topic: s.ledger.Commands(), Key: []byte(c.Key), Payload: body, ID: id, Type: "Record", Source: "bench", ContentType: envelope.JSON, CorrelationID: id,
		}), func(_ *kgo.Record, err error) {
			if err == nil {
				s.commands.Store(c, sent)
			}
		})
	})
}

// start starts sagas until ctx ends.
func (s *services) start(ctx context.Context) {
	var starts sync.WaitGroup
	defer starts.Wait()
	every(ctx, time.Second/sagaRate, func(n int64) {
		key, began := fmt.Sprint("o-", n), time.Now()
		starts.Go(func() {
			limited, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, err := s.coordinator.Submit(limited, "order", map[string]any{
				"order_id": key, "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 1,
			}, nil)
			if err == nil {
				s.sagas.Store(key, began)
			}
		})
	})
}

// every calls do at an interval until ctx ends.
func every(ctx context.Context, interval time.Duration, do func(n int64)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := int64(0); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do(n)
		}
	}
}

// runServices measures one scenario with services: load, failover, load; then commands and sagas are counted.
func runServices(ctx context.Context, folder string, c scenario, load time.Duration) (commands, sagas result, err error) {
	p, err := openPair(ctx, folder, c)
	if err != nil {
		return commands, sagas, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	broker, err := devstack.OpenKafka(ctx, devstack.KafkaConfig{})
	if err != nil {
		return commands, sagas, err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	pool, err := p.pool(ctx, servicesPool)
	if err != nil {
		return commands, sagas, err
	}
	defer pool.Close()
	s, err := newServices(ctx, pool, broker.Addrs())
	if s.client != nil {
		defer s.client.Close()
	}
	if err != nil {
		return commands, sagas, err
	}
	r, err := relay.New(relay.Config{
		Pool: pool, Brokers: broker.Addrs(), Service: database, Source: c.source, Delivery: c.delivery, Failover: failoverOf(c), Log: zerolog.Nop(),
	})
	if err != nil {
		return commands, sagas, err
	}
	serving, stop := context.WithCancel(ctx)
	running, serving := errgroup.WithContext(serving)
	running.Go(func() error { return r.Run(serving) })
	for _, p := range s.all {
		running.Go(func() error { return p.Run(serving) })
	}
	defer func() {
		stop()
		err = errors.Join(err, running.Wait())
	}()
	loading, end := context.WithCancel(serving)
	defer end()
	var senders sync.WaitGroup
	senders.Go(func() { s.send(loading) })
	senders.Go(func() { s.start(loading) })
	seen := &answers{}
	senders.Go(func() { seen.read(serving, s) })
	defer senders.Wait()
	defer stop()

	err = harness.Until(serving, limit, "no saga has ended", func(context.Context) (bool, error) { return seen.sagas() > 0, nil })
	if err != nil {
		return commands, sagas, err
	}
	after := load / 2
	if err = p.failUnderLoad(serving, c, load, func(ctx context.Context) (err error) {
		commands.gone, err = s.gone(ctx, p.b.URL(database))
		return err
	}); err != nil {
		return commands, sagas, err
	}
	promoted := time.Now()
	if c.frozen {
		if err = p.comeBack(serving); err != nil {
			return commands, sagas, err
		}
		after = load
	}
	if err = harness.Sleep(serving, after); err != nil {
		return commands, sagas, err
	}
	end()
	err = s.settle(serving, p, seen, promoted, &commands, &sagas)
	commands.version = p.version
	return commands, sagas, err
}
