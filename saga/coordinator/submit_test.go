package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

// desk is a service that takes orders, with a row for each.
type desk struct {
	*flow
	t testing.TB

	mu    sync.Mutex
	told  []coordinator.Decided // by the coordinator
	early []string              // of those, before their commit
}

func newDesk(t testing.TB) *desk {
	s := &desk{flow: newHops(t, true), t: t}
	_, err := s.pool.Exec(t.Context(), "CREATE TABLE orders (id text PRIMARY KEY, customer text NOT NULL)")
	require.NoError(t, err)
	s.c, err = coordinator.New(t.Context(), coordinator.Config{
		Participant: s.participant("order", s.pool), Pool: s.pool, Definitions: []*saga.Definition{order(t)}, Decided: s.decided,
	})
	require.NoError(t, err)
	return s
}

func (s *desk) decided(d coordinator.Decided) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, d)
	var n int
	require.NoError(s.t, s.pool.QueryRow(context.Background(), "SELECT count(*) FROM troupe.sagas WHERE id = $1", d.ID).Scan(&n))
	if n == 0 {
		s.early = append(s.early, d.ID)
	}
}

func orderOf(key, customer string) map[string]any {
	return map[string]any{"order_id": key, "customer_id": customer, "amount_cents": 500, "title": 7, "quantity": 1}
}

func (s *desk) submit(ctx context.Context, key, customer string) (string, error) {
	is, err := s.submitted(ctx, key, customer)
	return is.ID, err
}

func (s *desk) submitted(ctx context.Context, key, customer string) (coordinator.StartResult, error) {
	own := &pgx.Batch{}
	own.Queue("INSERT INTO orders (id, customer) VALUES ($1, $2)", key, customer)
	return s.c.Submit(ctx, "order", orderOf(key, customer), own)
}

// closed blocks the writes of orders until open is called.
func (s *desk) closed() (open func()) {
	tx, err := s.pool.Begin(s.t.Context())
	require.NoError(s.t, err)
	_, err = tx.Exec(s.t.Context(), "LOCK TABLE orders IN EXCLUSIVE MODE")
	require.NoError(s.t, err)
	return func() { require.NoError(s.t, tx.Rollback(s.t.Context())) }
}

func (s *desk) awaitSubmissions(n int) {
	s.t.Helper()
	testkit.Wait(s.t, fmt.Sprint(n, " callers of Submit"), func() (bool, error) {
		if has := s.c.Submissions(); has != n {
			return false, fmt.Errorf("there are %d", has)
		}
		return true, nil
	})
}

func (s *desk) number(query string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), "SELECT count(*) FROM ("+query+") AS r", args...).Scan(&n))
	return n
}

const everyCommand = `
SELECT key, headers, xmin FROM troupe.local_work WHERE topic LIKE '%.commands'
UNION ALL
SELECT key, headers, xmin FROM troupe.outbox WHERE topic LIKE '%.commands'`

// TestConcurrentSubmissionsShareACommit: of each order the first submission starts it, with its own row.
func TestConcurrentSubmissionsShareACommit(t *testing.T) {
	t.Parallel()
	s := newDesk(t)
	open := s.closed()
	const orders = 30
	var calling sync.WaitGroup
	for i := range 2 * orders {
		calling.Go(func() {
			key := fmt.Sprint("o-", i%orders)
			id, err := s.submit(t.Context(), key, fmt.Sprint("c-", i))
			require.NoError(t, err)
			require.Equal(t, "order/"+key, id)
		})
	}
	s.awaitSubmissions(2 * orders)
	open()
	calling.Wait()
	require.Equal(t, orders, s.number("SELECT FROM troupe.sagas AS s JOIN orders AS o ON o.id = s.key AND o.xmin = s.xmin AND o.customer = s.state -> 'data' ->> 'customer_id'"))
	require.Equal(t, orders, s.number("SELECT FROM orders"))
	require.Equal(t, orders, s.number("SELECT DISTINCT key FROM ("+everyCommand+") AS c"))
	require.Equal(t, orders, s.number(everyCommand))
	require.LessOrEqual(t, s.number("SELECT DISTINCT xmin::text FROM orders"), 5, "four at once, and one for all that waited")
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := 0
	for _, d := range s.told {
		require.Equal(t, -1, d.Message)
		if d.Effects.Ignored == "" {
			begun++
		}
	}
	require.Equal(t, []int{orders, 2 * orders}, []int{begun, len(s.told)})
	require.Empty(t, s.early)
}

// TestASubmissionThatIsRefusedCostsTheOthersNothing: it shares their transaction at first, which then fails.
func TestASubmissionThatIsRefusedCostsTheOthersNothing(t *testing.T) {
	t.Parallel()
	s := newDesk(t)
	_, err := s.pool.Exec(t.Context(), "INSERT INTO orders (id, customer) VALUES ('o-7', 'an earlier customer')")
	require.NoError(t, err)
	open := s.closed()
	const orders = 20
	errs := make([]error, orders)
	soldOut := errors.New("sold out")
	var calling sync.WaitGroup
	for i := range orders {
		calling.Go(func() {
			key, own := fmt.Sprint("o-", i), &pgx.Batch{}
			own.Queue("INSERT INTO orders (id, customer) VALUES ($1, $2)", key, "c-1")
			switch i {
			case 8: // an error of the caller's function
				own.Queue("SELECT").Exec(func(pgconn.CommandTag) error { return soldOut })
			case 9: // an argument that pgx cannot encode
				own.Queue("SELECT $1::integer", struct{}{})
			}
			_, errs[i] = s.c.Submit(t.Context(), "order", orderOf(key, "c-1"), own)
		})
	}
	s.awaitSubmissions(orders)
	open()
	calling.Wait()
	var refused *pgconn.PgError
	for i, err := range errs {
		if i < 7 || i > 9 {
			require.NoError(t, err, i)
		}
	}
	require.ErrorAs(t, errs[7], &refused)
	require.Equal(t, "orders_pkey", refused.ConstraintName)
	require.NotErrorIs(t, errs[7], coordinator.ErrConflict)
	require.ErrorIs(t, errs[8], soldOut)
	require.ErrorContains(t, errs[9], "encode")
	require.Equal(t, orders-3, s.number("SELECT FROM troupe.sagas"))
	require.Equal(t, orders-3, s.number("SELECT FROM orders WHERE customer = 'c-1'"))
	require.Equal(t, orders-3, s.number(everyCommand))
}

func TestAnInvalidStartIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	s := newDesk(t)
	defer s.closed()()
	_, err := s.c.Submit(t.Context(), "odrer", orderOf("o-1", "c-1"), nil)
	require.ErrorContains(t, err, `there is no saga "odrer": there are order`)
	_, err = s.c.Submit(t.Context(), "order", map[string]any{"customer_id": "c-1"}, nil)
	require.ErrorContains(t, err, "order_id")
	_, err = s.c.Submit(t.Context(), "order", map[string]any{"order_id": "o-1", "quantity": "many"}, nil)
	require.ErrorContains(t, err, "quantity")
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.told)
}

func TestASubmissionGivesWayToAStartThatIsUnderWay(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint(commits), func(t *testing.T) {
			t.Parallel()
			s := newDesk(t)
			tx, err := s.pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			_, err = s.c.Start(t.Context(), tx, "order", orderOf("o-1", "the start"))
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() {
				id, err := s.submit(t.Context(), "o-1", "the submission")
				if id != "order/o-1" {
					err = errors.Join(err, fmt.Errorf("id %s", id))
				}
				done <- err
			}()
			s.awaitBlocked(1)
			customer, own := "the submission", 1
			if commits {
				require.NoError(t, tx.Commit(t.Context()))
				customer, own = "the start", 0
			} else {
				require.NoError(t, tx.Rollback(t.Context()))
			}
			require.NoError(t, <-done)
			require.Equal(t, customer, s.state("order/o-1").Data["customer_id"])
			require.Equal(t, own, s.number("SELECT FROM orders"))
		})
	}
}

// awaitBlocked waits until a number of sessions of this database wait for a lock.
func (s *desk) awaitBlocked(n int) {
	s.t.Helper()
	const blocked = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	testkit.Wait(s.t, fmt.Sprint(n, " sessions that wait for a lock"), func() (bool, error) { return s.number(blocked) == n, nil })
}

// TestACancelledSubmissionDoesNotHoldOthersUp: a transaction continues while one of its callers waits for it, and no longer.
func TestACancelledSubmissionDoesNotHoldOthersUp(t *testing.T) {
	t.Parallel()
	s := newDesk(t)
	open := s.closed()
	first, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := s.submit(first, "o-1", "c-1"); done <- err }()
	s.awaitBlocked(1)
	leave()
	require.ErrorIs(t, <-done, context.Canceled)
	s.awaitSubmissions(0)
	s.awaitBlocked(0)

	some, leave := context.WithCancel(t.Context())
	var calling, leaving sync.WaitGroup
	for i := range 10 {
		ctx, wait := t.Context(), &calling
		if i%2 == 0 {
			ctx, wait = some, &leaving
		}
		wait.Go(func() {
			_, err := s.submit(ctx, fmt.Sprint("o-", i), "c-1")
			if i%2 == 0 {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.NoError(t, err)
			}
		})
	}
	s.awaitSubmissions(10)
	leave()
	leaving.Wait()
	open()
	calling.Wait()
	require.Equal(t, 5, s.number("SELECT FROM orders WHERE right(id, 1)::int % 2 = 1"))
}

// TestASubmissionIsOfItsCallersFlow: the callers share the commit and nothing else.
func TestASubmissionIsOfItsCallersFlow(t *testing.T) {
	t.Parallel()
	s := newDesk(t)
	open := s.closed()
	var calling sync.WaitGroup
	for i := range 10 {
		ctx := t.Context()
		if i > 0 { // o-0 begins a flow of its own
			ctx = envelope.WithCause(ctx, &envelope.Cause{
				At: time.Now(), Handler: "web", Message: envelope.Message{ID: fmt.Sprint("request-", i), CorrelationID: fmt.Sprint("flow-", i)},
			})
		}
		calling.Go(func() {
			_, err := s.submit(ctx, fmt.Sprint("o-", i), "c-1")
			require.NoError(t, err)
		})
	}
	s.awaitSubmissions(10)
	open()
	calling.Wait()
	require.Equal(t, 9, s.number(`
SELECT FROM (`+everyCommand+`) AS c
WHERE headers ->> 'ce_correlationid' = 'flow-' || right(key, 1)
  AND headers ->> 'ce_causationid' = 'request-' || right(key, 1)`))
	require.Equal(t, "", s.state("order/o-0").Reason)
	require.NotContains(t, s.state("order/o-0").Correlation, "flow-")
}
