package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

// TestTwoStartsOfOneKeyAreOneSaga starts each order by calls and by events at the same time.
func TestTwoStartsOfOneKeyAreOneSaga(t *testing.T) {
	t.Parallel()
	s := newCrew(t, awaiting(t, time.Hour)) // nothing times out
	s.serve(hops...)
	const orders, callers = 30, 3
	keys := make([]string, orders)
	var starting sync.WaitGroup
	for i := range keys {
		keys[i] = fmt.Sprint("o-", i)
	}
	errs := make(chan error, 2*callers*orders)
	for caller := range callers {
		starting.Go(func() {
			for i, key := range keys {
				o := OrderPlaced{OrderID: key, Customer: key, Reference: "ref " + key}
				if (i+caller)%callers == 0 {
					errs <- s.tryEmit(s.entry("shop", key, o), s.entry("desk", key, OrderApproved{}),
						s.entry("desk", "r/"+key, OrderCleared{o.Reference}))
				}
				errs <- s.tryCall(o)
			}
		})
	}
	starting.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	s.settle(orders, func(saga.State) bool { return false })
	require.Equal(t, verdict{saga.Completed: orders}, s.judge(keys))
}

// TestAnEventAndTheStartOfItsSagaMeet: each of the two is written but not committed when the other comes.
func TestAnEventAndTheStartOfItsSagaMeet(t *testing.T) {
	t.Parallel()
	for name, variable := range map[string]string{"by its key": "approval", "by a variable": "clearance"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newCrew(t, visit(t))
			held := make(chan struct{})    // the event's transaction is written
			release := make(chan struct{}) // it may commit
			var hold atomic.Value          // the key of that event
			hold.Store("")
			s.serveWith(participant.Hooks{BeforeCommit: func(d participant.Delivery) {
				if key := hold.Load().(string); key != "" && strings.HasSuffix(string(d.Message.Key), key) {
					held <- struct{}{}
					<-release
				}
			}}, "order")
			const rounds = 8
			var keys []string
			event := func(key string) outbox.Entry {
				if variable == "approval" {
					return s.entry("desk", key, OrderApproved{})
				}
				return s.entry("desk", "r/"+key, OrderCleared{"ref " + key})
			}
			other := func(key string) outbox.Entry {
				if variable == "approval" {
					return s.entry("desk", "r/"+key, OrderCleared{"ref " + key})
				}
				return s.entry("desk", key, OrderApproved{})
			}
			order := func(key string) OrderPlaced {
				keys = append(keys, key)
				return OrderPlaced{OrderID: key, Customer: key, Reference: "ref " + key}
			}
			for i := range rounds {
				// The start is written, and the event comes: it waits until the start commits.
				o := order(fmt.Sprint("start-", i))
				commits := i%2 == 0
				tx, err := s.pools["order"].Begin(t.Context())
				require.NoError(t, err)
				_, err = s.c.Start(t.Context(), tx, "order", map[string]any{"order_id": o.OrderID, "reference": o.Reference})
				require.NoError(t, err)
				s.emit(event(o.OrderID))
				s.awaitGuard()
				if commits {
					require.NoError(t, tx.Commit(t.Context()))
				} else {
					require.NoError(t, tx.Rollback(t.Context()))
					s.call(o)
				}
				s.emit(other(o.OrderID))

				// The event is stashed, not committed, and the start comes: it waits until the event's transaction commits.
				o = order(fmt.Sprint("event-", i))
				hold.Store(o.OrderID)
				s.emit(event(o.OrderID))
				<-held
				hold.Store("")
				called := make(chan error, 1)
				go func() { called <- s.tryCall(o) }()
				s.awaitGuard()
				release <- struct{}{}
				require.NoError(t, <-called)
				s.emit(other(o.OrderID))
			}
			s.settle(len(keys), func(saga.State) bool { return false })
			for _, st := range s.states() {
				require.Equal(t, saga.Completed, st.Status, "%s: %v", st.Key, st.Steps)
			}
			s.judgeLogs()
			s.judgeRest()
		})
	}
}

// awaitGuard waits until a transaction waits for the guard of another one.
func (s *crew) awaitGuard() {
	s.t.Helper()
	const waiting = `
		SELECT count(*) FROM pg_locks
		WHERE locktype = 'advisory' AND NOT granted AND classid = x'74727573'::int::oid
		  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	testkit.Wait(s.t, "a transaction to wait for a guard", func() (bool, error) {
		return s.count("order", waiting) > 0, nil
	})
}

// visit returns an order that only awaits events.
func visit(t testing.TB) *saga.Definition {
	t.Helper()
	spec := awaiting(t, time.Minute).Spec()
	spec.Steps = slices.Clone(spec.Steps[3:])
	spec.Completed, spec.Compensated, spec.Lock = nil, nil, ""
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

// TestEventsAndStartsComeInAnyOrder: all events and starts of a saga come at once, many times.
func TestEventsAndStartsComeInAnyOrder(t *testing.T) {
	t.Parallel()
	s := newCrew(t, visit(t))
	var r repeats
	s.serveWith(r.hooks(), "order")
	const orders = 200
	var all sync.WaitGroup
	errs := make(chan error, 3*orders)
	for i := range orders {
		key := fmt.Sprint("o-", i)
		does := []func() error{
			func() error { return s.tryEmit(s.entry("desk", key, OrderApproved{})) },
			func() error { return s.tryEmit(s.entry("desk", "r/"+key, OrderCleared{"ref " + key})) },
			func() error { return s.tryCall(OrderPlaced{OrderID: key, Reference: "ref " + key}) },
		}
		rand.Shuffle(len(does), func(i, j int) { does[i], does[j] = does[j], does[i] })
		var before chan struct{} // some come one after the other, some at once
		for _, do := range does {
			after, waits := make(chan struct{}), before
			all.Go(func() {
				defer close(after)
				if waits != nil {
					<-waits
				}
				errs <- do()
			})
			if before = after; rand.IntN(2) == 0 {
				before = nil
			}
		}
	}
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	s.settle(orders, func(saga.State) bool { return false })
	s.judgeLogs()
	s.judgeRest()
	for _, st := range s.states() {
		require.Equal(t, saga.Completed, st.Status, "%s: %v", st.Key, st.Steps)
	}
	t.Log(&r)
}

// TestATimeoutAndALateAnswerMeet: payments take as long as the saga waits for them. The saga completes, or it is
// compensated and the payment is undone or never made.
func TestATimeoutAndALateAnswerMeet(t *testing.T) {
	t.Parallel()
	s := newCrew(t, awaiting(t, 300*time.Millisecond))
	s.task.Batch, s.task.Concurrency, s.task.Slow = 1, 10, s.timeout()
	s.serve(hops...)
	const callers, each = 10, 6
	keys := make([]string, callers*each)
	var calling sync.WaitGroup
	errs := make(chan error, 2*len(keys))
	for i := range keys {
		keys[i] = fmt.Sprintf("%d-late-payment", i)
	}
	for caller := range callers {
		calling.Go(func() {
			for _, key := range keys[caller*each : (caller+1)*each] {
				errs <- s.tryCall(OrderPlaced{OrderID: key, Customer: key, Reference: "ref " + key})
				errs <- s.tryEmit(s.entry("desk", key, OrderApproved{}), s.entry("desk", "r/"+key, OrderCleared{"ref " + key}))
			}
		})
	}
	calling.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	s.settle(len(keys), func(saga.State) bool { return false })
	t.Log(s.judge(keys))
}

// TestTenAnswersMeet: ten events of ten hops come at once for each of many sagas. Transactions wait for each other, and
// fewer than one in a hundred is repeated because of another one.
func TestTenAnswersMeet(t *testing.T) {
	t.Parallel()
	s := newCrew(t, tenWays(t))
	s.task.Batch, s.task.Concurrency = 1, ways
	var r repeats
	s.serveWith(r.hooks(), "order")
	const sagas = 100
	var entries []outbox.Entry
	for i := range sagas {
		key := fmt.Sprint("o-", i)
		s.call(OrderPlaced{OrderID: key})
		for n := range ways {
			entries = append(entries, s.entry(fmt.Sprint("way-", n), key, OrderApproved{}))
		}
	}
	s.emit(entries...)
	s.settle(sagas, func(saga.State) bool { return false })
	s.judgeLogs()
	s.judgeRest()
	t.Log(&r)
	require.Less(t, r.repeated.Load()*100, r.transactions.Load())
}

// repeats counts the transactions, the ones that were rolled back because of a concurrent one and tried again, and the ones
// rolled back for another reason: a machine that stalls for a second loses the group membership, and its running
// transactions.
type repeats struct{ transactions, repeated, others atomic.Int64 }

func (r *repeats) hooks() participant.Hooks {
	return participant.Hooks{Transaction: func(ctx context.Context, _ []participant.Delivery) (context.Context, func(error)) {
		return ctx, func(err error) {
			r.transactions.Add(1)
			switch {
			case err == nil:
			case errors.Is(err, coordinator.ErrConflict), pg.Classify(err) == pg.Conflict:
				r.repeated.Add(1)
			default:
				r.others.Add(1)
			}
		}
	}}
}

func (r *repeats) String() string {
	return fmt.Sprintf("%d of %d transactions were repeated, and %d without another's doing", r.repeated.Load(), r.transactions.Load(),
		r.others.Load())
}

const ways = 10

// tenWays returns a saga that waits for an event of each of ten hops, and then is completed.
func tenWays(t testing.TB) *saga.Definition {
	t.Helper()
	spec := visit(t).Spec()
	spec.Steps = nil
	join := saga.Step{Name: "join"}
	for i := range ways {
		hop := fmt.Sprint("way-", i)
		spec.Steps = append(spec.Steps, saga.Step{Name: hop, Success: []saga.Answer{{Hop: hop, Event: "OrderApproved"}}})
		join.Needs = append(join.Needs, hop)
	}
	spec.Steps = append(spec.Steps, join)
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

// TestTransactionsThatWaitForEachOtherConflict: of two transactions that start the same orders in opposite order, one gets
// ErrConflict.
func TestTransactionsThatWaitForEachOtherConflict(t *testing.T) {
	t.Parallel()
	s := newCrew(t, visit(t))
	begin := func() pgx.Tx {
		tx, err := s.pools["order"].Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx
	}
	start := func(tx pgx.Tx, key string) error {
		_, err := s.c.Start(t.Context(), tx, "order", map[string]any{"order_id": key, "reference": "ref " + key})
		if err != nil {
			_ = tx.Rollback(t.Context())
		}
		return err
	}
	one, other := begin(), begin()
	require.NoError(t, start(one, "a"))
	require.NoError(t, start(other, "b"))
	errs := make(chan error, 2)
	go func() { errs <- start(one, "b") }()
	s.awaitGuard()
	errs <- start(other, "a")
	err := errors.Join(<-errs, <-errs)
	require.ErrorContains(t, err, "deadlock")
	require.ErrorIs(t, err, coordinator.ErrConflict)
}

// A relay that reads the log publishes a command when its transaction is on disk, a moment before other sessions see it: the
// answer may come before the start is visible. The coordinator must not ignore it as one for a saga that does not exist.
func TestAnAnswerBeforeItsStartIsVisible(t *testing.T) {
	t.Parallel()
	s := newCrew(t, order(t))
	s.serve("order")
	for i := range 4 {
		key := fmt.Sprint("o-", i)
		tx, err := s.pools["order"].Begin(t.Context())
		require.NoError(t, err)
		_, err = s.c.Start(t.Context(), tx, "order", map[string]any{
			"order_id": key, "customer_id": key, "amount_cents": 500, "title": 7, "quantity": 1,
		})
		require.NoError(t, err)
		type PaymentCharged struct {
			PaymentID string `json:"payment_id"`
		}
		answer := s.entry("payment", key, PaymentCharged{"p-1"})
		answer.Outcome = envelope.Success
		answer.SagaID, answer.SagaStep, answer.SagaOperation = "order/"+key, "payment", "forward"
		s.emit(answer)
		s.awaitGuard()
		require.NoError(t, tx.Commit(t.Context()))
		testkit.Wait(t, "the answer to count", func() (bool, error) {
			return s.count("order", `SELECT count(*) FROM troupe.saga_events WHERE saga_id = 'order/' || $1 AND version = 2`, key) == 1, nil
		})
	}
}
