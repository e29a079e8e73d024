package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// The commands and answers of the order flow's hops.
type (
	RefundPayment   struct{}
	PaymentRefunded struct{}
	ReserveStock    struct{}
	StockReserved   struct {
		ReservationID string `json:"reservation_id"`
	}
	ReleaseStock  struct{}
	StockReleased struct{}
	ReleaseFailed struct {
		Reason string `json:"reason"`
	}
	ShipOrder    struct{}
	OrderShipped struct {
		ShipmentID string `json:"shipment_id"`
	}
	ShippingRefused struct {
		Reason string `json:"reason"`
	}
	Charge  struct{}
	Charged struct {
		PaymentID string `json:"payment_id"`
	}
)

func (Charge) MessageType() string  { return "ChargePayment" }
func (Charged) MessageType() string { return "PaymentCharged" }

// decider is the order flow in one database, with hops that behave as does says.
type decider struct {
	*payments
	flow string
	c    *coordinator.Coordinator
	gate chan struct{} // closing it lets hanging handlers continue

	mu   sync.Mutex
	does map[string]string // by key and command: fail, refuse, hang
}

func newDecider(t *testing.T) *decider {
	s := &decider{
		payments: &payments{t: t, pool: testkit.Database(t), record: new(strings.Builder)}, flow: testkit.Flow(t),
		gate: make(chan struct{}), does: make(map[string]string),
	}
	payment, inventory, shipping := s.local("payment"), s.local("inventory"), s.local("shipping")
	participant.Handle(payment, handles[Charge](s, Charged{"p-1"}, nil))
	participant.Handle(payment, handles[RefundPayment](s, PaymentRefunded{}, nil))
	participant.Handle(inventory, handles[ReserveStock](s, StockReserved{"r-1"}, nil))
	participant.Handle(inventory, handles[ReleaseStock](s, StockReleased{}, ReleaseFailed{"the pallet is in use"}))
	participant.Handle(shipping, handles[ShipOrder](s, OrderShipped{"s-1"}, ShippingRefused{"no carrier"}))
	order := s.local("order")
	var err error
	s.c, err = coordinator.New(t.Context(), coordinator.Config{
		Participant: order, Pool: s.pool, Definitions: []*saga.Definition{s.definition(nil), s.express()}, Log: testkit.Logger(t),
	})
	require.NoError(t, err)
	for _, p := range []*participant.Participant{payment, inventory, shipping, order} {
		s.run(p.Run)
	}
	t.Cleanup(s.open) // before they end
	return s
}

func (s *decider) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.gate:
	default:
		close(s.gate)
	}
}

func (s *decider) local(hop string) *participant.Participant {
	p, err := participant.New(participant.Config{
		Pool: s.pool, Hop: topics.MustHop(s.flow, hop), Local: true, Immediate: -1, Log: testkit.Logger(s.t),
		Retry: retry.Policy{Initial: time.Millisecond, Cap: time.Millisecond, Attempts: 3},
	})
	require.NoError(s.t, err)
	return p
}

func handles[T any](s *decider, done, refused any) func(context.Context, pgx.Tx, participant.Command[T]) (participant.Outcome, error) {
	return func(ctx context.Context, _ pgx.Tx, c participant.Command[T]) (participant.Outcome, error) {
		s.mu.Lock()
		what := s.does[string(c.Message.Key)+" "+c.Message.Type]
		s.mu.Unlock()
		switch what {
		case "fail":
			return participant.Outcome{}, errors.New("the warehouse answers 503")
		case "refuse":
			return participant.Refuse(refused), nil
		case "hang":
			select {
			case <-s.gate:
			case <-ctx.Done():
			}
		}
		return participant.Succeed(done), nil
	}
}

func (s *decider) tell(what, does string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.does[what] = does
}

const orderFile = "../../saga/testdata/order.saga.json"

// definition returns the order's definition after change.
func (s *decider) definition(change func(*saga.Spec)) *saga.Definition {
	text, err := os.ReadFile(orderFile)
	require.NoError(s.t, err)
	d, err := saga.Parse(text)
	require.NoError(s.t, err)
	if change == nil {
		return d
	}
	spec := d.Spec()
	spec.Steps = append([]saga.Step{}, spec.Steps...)
	change(&spec)
	d, err = saga.Define(spec)
	require.NoError(s.t, err)
	return d
}

// express returns a definition that waits a second for its shipment.
func (s *decider) express() *saga.Definition {
	return s.definition(func(spec *saga.Spec) {
		spec.Saga, spec.Steps[2].Timeout = "express", saga.Duration(time.Second)
	})
}

func (s *decider) begin(name, key string, want saga.Status) (id string) {
	s.t.Helper()
	require.NoError(s.t, pgx.BeginFunc(s.t.Context(), s.pool, func(tx pgx.Tx) (err error) {
		is, err := s.c.Start(s.t.Context(), tx, name, map[string]any{
			"order_id": key, "customer_id": "c-7", "amount_cents": 1999, "title": 7, "quantity": 1,
		})
		id = is.ID
		return err
	}))
	s.await(id, want)
	return id
}

func (s *decider) count(sql string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), sql).Scan(&n))
	return n
}

func (s *decider) await(id string, want saga.Status) {
	s.t.Helper()
	testkit.Wait(s.t, id+" to be "+string(want), func() (bool, error) {
		var status string
		err := s.pool.QueryRow(s.t.Context(), "SELECT status FROM troupe.sagas WHERE id = $1", id).Scan(&status)
		return status == string(want), err
	})
}
