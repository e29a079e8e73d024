package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/topics"
)

const (
	commandRate = 100 // a second
	commandKeys = 50
	sagaRate    = 10 // a second
	firstFails  = 10 // of unruly handlers, the first try of each tenth command of a key fails

	// Connections is the number of connections that services and their relay need.
	Connections = 40
	// EffectsTable creates the table of effects.
	EffectsTable = `CREATE TABLE effects (
		id bigserial PRIMARY KEY, key text NOT NULL, step text NOT NULL, number bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())`
	insertEffect = "INSERT INTO effects (key, step, number) VALUES ($1, $2, $3)"
)

// Services are the participants and the coordinator of a flow, all in one database, and the senders of their load.
type Services struct {
	client      *kgo.Client // reads the events of the ledger and of the coordinator, and sends commands
	ledger      topics.Hop
	order       topics.Hop
	coordinator *coordinator.Coordinator
	all         []*participant.Participant
	gone        float64 // see CountGone

	commands sync.Map // call → sending: the broker has it
	done     sync.Map // call → struct{}: the participant has seen its commit
	failed   sync.Map // call → struct{}: its first try has failed
	sagas    sync.Map // key → time.Time: when its start was requested, which was acknowledged
}

// A sending has the times in which a command was sent and was acknowledged by the broker.
type sending struct{ at, acknowledged time.Time }

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

// newServices makes the participants and the coordinator, and their topics. The caller closes the client, if there is one, also after an
// error. Unruly means that the ledger has two members, and that some of its handlers fail at first, so that their keys are held.
func newServices(ctx context.Context, cfg relay.Config, name string, unruly bool) (s *Services, err error) {
	flow := name + "-" + uuid.NewString()[:8]
	s = &Services{ledger: topics.MustHop(flow, "ledger"), order: topics.MustHop(flow, "order")}
	s.client, err = kafka.NewClient(cfg.Brokers, kgo.ConsumeTopics(s.ledger.Events(), s.order.Events()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
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
	hops := []string{"ledger", "payment", "inventory", "shipping", "order"}
	immediate := 0 // the default
	if unruly {
		hops, immediate = append(hops, "ledger"), -1
	}
	for _, hop := range hops {
		p, err := participant.New(participant.Config{
			Pool: cfg.Pool, Brokers: cfg.Brokers, Hop: topics.MustHop(flow, hop), Partitions: 3, Batch: 20, Concurrency: 4, Immediate: immediate,
			Hooks: participant.Hooks{AfterCommit: s.committed},
		})
		if err != nil {
			return s, err
		}
		s.all = append(s.all, p)
		switch hop {
		case "ledger":
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Record]) (participant.Outcome, error) {
				if unruly && c.Body.Number%firstFails == 0 {
					if _, tried := s.failed.LoadOrStore(call(c.Body), struct{}{}); !tried {
						return participant.Outcome{}, errFirst
					}
				}
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
			s.coordinator, err = coordinator.New(ctx, coordinator.Config{Participant: p, Pool: cfg.Pool, Definitions: []*saga.Definition{d}})
			if err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

var errFirst = errors.New("the first try fails")

// Commands returns the topic of the ledger's commands.
func (s *Services) Commands() string { return s.ledger.Commands() }

// held returns the number of commands whose first try has failed.
func (s *Services) held() (n int) {
	s.failed.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}

// step returns a handler that inserts the effect of a saga's step.
func step[T any](done any) func(context.Context, pgx.Tx, participant.Command[T]) (participant.Outcome, error) {
	return func(ctx context.Context, tx pgx.Tx, c participant.Command[T]) (participant.Outcome, error) {
		err := participant.Queue(ctx, tx, insertEffect, string(c.Message.Key), c.Message.SagaStep, 0)
		return participant.Succeed(done), err
	}
}

// committed notes the commits of the ledger.
func (s *Services) committed(d participant.Delivery) {
	var c call
	if d.Message.Topic == s.ledger.Commands() && json.Unmarshal(d.Message.Payload, &c) == nil {
		s.done.Store(c, struct{}{})
	}
}

// send sends commands until ctx ends. The commands of a key are numbered in their order.
func (s *Services) send(ctx context.Context) {
	every(ctx, time.Second/commandRate, func(n int64) {
		c := call{fmt.Sprint("k-", n%commandKeys), n / commandKeys}
		body, _ := json.Marshal(c) // cannot fail
		id, sent := envelope.NewID(), time.Now()
		s.client.Produce(context.WithoutCancel(ctx), kafka.Record(envelope.Message{
			Topic: s.ledger.Commands(), Key: []byte(c.Key), Payload: body, ID: id, Type: "Record", Source: "bench", ContentType: envelope.JSON, CorrelationID: id,
		}), func(_ *kgo.Record, err error) {
			if err == nil {
				s.commands.Store(c, sending{sent, time.Now()})
			}
		})
	})
}

// start starts sagas until ctx ends.
func (s *Services) start(ctx context.Context) {
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
