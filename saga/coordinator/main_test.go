package coordinator_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(childEnv); task != "" {
		beChild(task)
		return
	}
	short.Only(
		"ExampleNew", "ExampleCoordinator_Wait", "TestMemoryRunsASaga", "TestSagasComplete", "TestARefusedShipmentUndoesTheRest",
		"TestAnExhaustedStepParksAndIsTriedAgain", "TestTwoStartsOfOneKeyAreOneSaga",
	)
	testkit.Main(m)
}

// The order flow's messages, as JSON.
type (
	ChargePayment struct {
		OrderID string `json:"order_id"`
	}
	PaymentCharged struct {
		PaymentID string `json:"payment_id"`
	}
	PaymentRefused struct {
		Reason string `json:"reason"`
	}
	RefundPayment struct {
		PaymentID string `json:"payment_id"`
	}
	PaymentRefunded struct{}
	ReserveStock    struct {
		OrderID string `json:"order_id"`
	}
	StockReserved struct {
		ReservationID string `json:"reservation_id"`
	}
	StockRefused struct {
		Reason string `json:"reason"`
	}
	ReleaseStock struct {
		ReservationID string `json:"reservation_id"`
	}
	StockReleased struct{}
	ShipOrder     struct {
		OrderID string `json:"order_id"`
	}
	OrderShipped struct {
		ShipmentID string `json:"shipment_id"`
	}
	ShippingRefused struct {
		Reason string `json:"reason"`
	}
)

// flow is the order flow under test: a coordinator and three hops, each with a database and a relay of its own, or all in one
// database without Kafka.
type flow struct {
	t     testing.TB
	name  string
	local bool
	pool  *pgxpool.Pool // the coordinator's
	c     *coordinator.Coordinator
	pools map[string]*pgxpool.Pool // by hop

	timeout time.Duration // of handlers; 0: the default
	brokers []string      // nil: the tests' own

	// refuse and fail set the outcome of a hop's command, by key and hop/operation.
	mu     sync.Mutex
	refuse map[string]string
	fail   map[string]error
}

const effects = `CREATE TABLE IF NOT EXISTS effects (hop text, operation text, key text, at bigint GENERATED ALWAYS AS IDENTITY)`

func newFlow(t testing.TB, local bool, defs ...*saga.Definition) *flow {
	f := newHops(t, local)
	if len(defs) == 0 {
		defs = []*saga.Definition{order(t)}
	}
	f.c = f.coordinator(defs...)
	return f
}

// newHops returns the flow without a coordinator.
func newHops(t testing.TB, local bool) *flow {
	f := &flow{
		t: t, name: testkit.Flow(t), local: local, pools: make(map[string]*pgxpool.Pool),
		refuse: make(map[string]string), fail: make(map[string]error),
	}
	f.pool = testkit.Database(t)
	for _, hop := range []string{"payment", "inventory", "shipping"} {
		f.pools[hop] = f.pool
		if !local {
			f.pools[hop] = testkit.Database(t)
		}
		_, err := f.pools[hop].Exec(t.Context(), effects)
		require.NoError(t, err)
		p := f.participant(hop, f.pools[hop])
		switch hop {
		case "payment":
			participant.Handle(p, does[ChargePayment](f, hop, PaymentCharged{"p-1"}, func(r string) any { return PaymentRefused{r} }))
			participant.Handle(p, does[RefundPayment](f, hop, PaymentRefunded{}, func(r string) any { return PaymentRefused{r} }))
		case "inventory":
			participant.Handle(p, does[ReserveStock](f, hop, StockReserved{"r-1"}, func(r string) any { return StockRefused{r} }))
			participant.Handle(p, does[ReleaseStock](f, hop, StockReleased{}, func(r string) any { return StockRefused{r} }))
		case "shipping":
			participant.Handle(p, does[ShipOrder](f, hop, OrderShipped{"s-1"}, func(r string) any { return ShippingRefused{r} }))
		}
		f.run(p, f.pools[hop])
	}
	return f
}

// coordinator starts another process of the service.
func (f *flow) coordinator(defs ...*saga.Definition) *coordinator.Coordinator {
	f.t.Helper()
	p := f.participant("order", f.pool)
	c, err := coordinator.New(f.t.Context(), coordinator.Config{
		Participant: p, Pool: f.pool, Definitions: defs, Log: testkit.Logger(f.t),
	})
	require.NoError(f.t, err)
	f.run(p, f.pool)
	return c
}

func (f *flow) participant(hop string, pool *pgxpool.Pool) *participant.Participant {
	f.t.Helper()
	cfg := participant.Config{
		Pool: pool, Hop: topics.MustHop(f.name, hop), Local: f.local, Batch: 20, Concurrency: 2, Immediate: -1,
		Retry: retry.Policy{Initial: time.Millisecond, Cap: 10 * time.Millisecond, Attempts: 3}, Log: testkit.Logger(f.t),
		Partitions: 2, Timeout: f.timeout,
	}
	if !f.local {
		cfg.Brokers = f.kafka()
	}
	p, err := participant.New(cfg)
	require.NoError(f.t, err)
	return p
}

func (f *flow) kafka() []string {
	if f.brokers != nil {
		return f.brokers
	}
	return testkit.Kafka(f.t)
}

// run runs p until the test ends, with a relay if the test uses Kafka.
func (f *flow) run(p *participant.Participant, pool *pgxpool.Pool) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { require.NoError(f.t, p.Run(ctx)) })
	if !f.local {
		r, err := relay.New(relay.Config{Source: relay.Poll, Pool: pool, Brokers: f.kafka(), Service: p.Hop().Name(), Log: testkit.Logger(f.t)})
		require.NoError(f.t, err)
		running.Go(func() { require.NoError(f.t, r.Run(ctx)) })
	}
	f.t.Cleanup(func() { stop(); running.Wait() })
}

// does returns a handler that writes a row for each effect.
func does[T any](f *flow, hop string, done any, refused func(string) any) func(context.Context, pgx.Tx, participant.Command[T]) (participant.Outcome, error) {
	return func(ctx context.Context, tx pgx.Tx, c participant.Command[T]) (participant.Outcome, error) {
		key := string(c.Message.Key)
		what := key + " " + hop + "/" + c.Message.SagaOperation
		f.mu.Lock()
		reason, err := f.refuse[what], f.fail[what]
		f.mu.Unlock()
		if err != nil {
			return participant.Outcome{}, err
		}
		if reason != "" {
			return participant.Refuse(refused(reason)), nil
		}
		const note = "INSERT INTO effects (hop, operation, key) VALUES ($1, $2, $3)"
		_, err = tx.Exec(ctx, note, hop, c.Message.SagaOperation, key)
		return participant.Succeed(done), err
	}
}

func (f *flow) set(m map[string]string, what, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m[what] = reason
}

func (f *flow) setFail(what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail[what] = err
}

func (f *flow) start(key string) string {
	f.t.Helper()
	var id string
	err := pgx.BeginFunc(f.t.Context(), f.pool, func(tx pgx.Tx) (err error) {
		is, err := f.c.Start(f.t.Context(), tx, "order", map[string]any{
			"order_id": key, "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 1,
		})
		id = is.ID
		return err
	})
	require.NoError(f.t, err)
	return id
}

func (f *flow) act(id string, e saga.Event) (saga.Effects, error) {
	var fx saga.Effects
	e.Actor, e.Reason = "somebody", "a test"
	err := pgx.BeginFunc(f.t.Context(), f.pool, func(tx pgx.Tx) (err error) {
		fx, err = f.c.Act(f.t.Context(), tx, id, e)
		return err
	})
	return fx, err
}

// state returns the stored state of a saga.
func (f *flow) state(id string) (s saga.State) {
	f.t.Helper()
	var text []byte
	err := f.pool.QueryRow(f.t.Context(), "SELECT state FROM troupe.sagas WHERE id = $1", id).Scan(&text)
	require.NoError(f.t, err)
	s, err = order(f.t).ReadState(text)
	require.NoError(f.t, err)
	return s
}

func (f *flow) await(id string, want saga.Status) saga.State {
	f.t.Helper()
	testkit.Wait(f.t, fmt.Sprintf("saga %s to be %s", id, want), func() (bool, error) {
		s := f.state(id)
		if s.Status != want {
			return false, fmt.Errorf("it is %s: %v %s", s.Status, s.Steps, s.Reason)
		}
		return true, nil
	})
	return f.state(id)
}

// effects returns the effects of hops for a key, as hop/operation, in order per hop.
func (f *flow) effects(key string) (all []string) {
	f.t.Helper()
	for _, hop := range []string{"payment", "inventory", "shipping"} {
		rows, err := f.pools[hop].Query(f.t.Context(), "SELECT hop || '/' || operation FROM effects WHERE key = $1 AND hop = $2 ORDER BY at", key, hop)
		require.NoError(f.t, err)
		some, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(f.t, err)
		all = append(all, some...)
	}
	return all
}

// replayed checks that the log folds to the row.
func (f *flow) replayed(id string) {
	f.t.Helper()
	rows, err := f.pool.Query(f.t.Context(), "SELECT version, at, event FROM troupe.saga_events WHERE saga_id = $1 ORDER BY version", id)
	require.NoError(f.t, err)
	log, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e decisions.Entry, err error) {
		var text []byte
		if err := row.Scan(&e.Version, &e.At, &text); err != nil {
			return e, err
		}
		e.Event, err = saga.ReadEvent(text)
		return e, err
	})
	require.NoError(f.t, err)
	require.Equal(f.t, f.state(id), fold(f.t, order(f.t), log))
}
