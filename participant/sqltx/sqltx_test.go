package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/participant/sqltx"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func TestMain(m *testing.M) { testkit.Main(m) }

type Charge struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

type Charged struct {
	OrderID string `json:"order_id"`
}

type Shipped struct {
	OrderID string `json:"order_id"`
}

const tables = `CREATE TABLE payments (order_id text PRIMARY KEY, cents bigint NOT NULL CHECK (cents >= 0))`

type handler = func(context.Context, *sql.Tx, participant.Command[Charge]) (participant.Outcome, error)

// service is a participant with one handler of commands.
func service(fn handler, opts ...participant.HandlerOption) testkit.StageConfig {
	return testkit.StageConfig{
		SQL: tables,
		Participant: participant.Config{
			Immediate: -1, Retry: retry.Policy{Initial: time.Hour, Cap: time.Hour, Attempts: 3, NoJitter: true},
		},
		Handlers: func(_ *testkit.Stage, p *participant.Participant) { sqltx.Handle(p, fn, opts...) },
	}
}

func insert(ctx context.Context, tx *sql.Tx, c participant.Command[Charge]) (participant.Outcome, error) {
	_, err := tx.ExecContext(ctx, "INSERT INTO payments VALUES ($1, $2)", c.Body.OrderID, c.Body.Cents)
	return participant.Succeed(Charged{OrderID: c.Body.OrderID}), err
}

func payments(t *testing.T, s *testkit.Stage) (n int) {
	t.Helper()
	require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT count(*) FROM payments").Scan(&n))
	return n
}

func TestARowAnAnswerAndAnEntryAreOneTransactionWhereverItIsInterrupted(t *testing.T) {
	t.Parallel()
	testkit.CrashAtEveryStep(t, testkit.StageConfig{
		SQL: tables,
		Handlers: func(s *testkit.Stage, p *participant.Participant) {
			out := p.Outbox()
			sqltx.Handle(p, func(ctx context.Context, tx *sql.Tx, c participant.Command[Charge]) (participant.Outcome, error) {
				if err := out.WriteSQL(ctx, tx, outbox.Entry{Topic: s.Hop.Flow() + ".mail", Key: "m", Type: "Mail"}); err != nil {
					return participant.Outcome{}, err
				}
				statement, err := tx.PrepareContext(ctx, "INSERT INTO payments VALUES ($1, $2)")
				if err != nil {
					return participant.Outcome{}, err
				}
				defer statement.Close()
				_, err = statement.ExecContext(ctx, c.Body.OrderID, c.Body.Cents)
				return participant.Succeed(Charged{OrderID: c.Body.OrderID}), err
			})
		},
	}, func(s *testkit.Stage) envelope.Message {
		return s.Command("o-1", Charge{OrderID: "o-1", Cents: 9_99})
	}, testkit.Query("SELECT order_id, cents FROM payments"))
}

// TestEachKindOfHandlerGetsASQLTransaction sends a message to each.
func TestEachKindOfHandlerGetsASQLTransaction(t *testing.T) {
	t.Parallel()
	hop := func(s *testkit.Stage, name string) topics.Hop { return topics.MustHop(s.Hop.Flow(), name) }
	note := func(ctx context.Context, tx *sql.Tx, order string) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO payments VALUES ($1, 1)", order)
		return err
	}
	s := testkit.NewStage(t, testkit.StageConfig{
		SQL: tables,
		Handlers: func(s *testkit.Stage, p *participant.Participant) {
			sqltx.Handle(p, func(ctx context.Context, tx *sql.Tx, c participant.Command[Charge]) (participant.Outcome, error) {
				under, err := sqltx.Pgx(tx)
				if err != nil {
					return participant.Outcome{}, err
				}
				if err := p.Schedule(ctx, under, participant.Deadline{Name: "late", Body: c.Body, After: time.Hour}); err != nil {
					return participant.Outcome{}, err
				}
				return insert(ctx, tx, c)
			})
			sqltx.React(p, hop(s, "react"), func(ctx context.Context, tx *sql.Tx, e participant.Event[Charged]) (participant.Outcome, error) {
				return participant.Succeed(Shipped(e.Body)), note(ctx, tx, e.Body.OrderID)
			})
			sqltx.On(p, hop(s, "on"), func(ctx context.Context, tx *sql.Tx, e participant.Event[Charged]) error {
				return note(ctx, tx, e.Body.OrderID)
			})
			sqltx.OnAll(p, []topics.Hop{hop(s, "all")}, func(ctx context.Context, tx *sql.Tx, ms []participant.Taken) error {
				return note(ctx, tx, string(ms[0].Message.Key))
			})
			sqltx.OnDeadline(p, "late", func(ctx context.Context, tx *sql.Tx, d participant.Due[Charge]) error {
				return note(ctx, tx, "late "+d.Body.OrderID)
			})
		},
	})
	command := s.Command("handled", Charge{OrderID: "handled"})
	reacted := s.Event(hop(s, "react"), "reacted", Charged{OrderID: "reacted"})
	s.Send(command, reacted, s.Event(hop(s, "on"), "on", Charged{OrderID: "on"}), s.Event(hop(s, "all"), "all", Charged{}))
	testkit.Await[Charged](s, command)
	testkit.Await[Shipped](s, reacted)
	s.Settle()
	require.Len(t, s.Deadlines(), 1)
	s.Advance(2 * time.Hour)
	s.Settle()
	var got []string
	require.NoError(t, s.Pool.QueryRow(t.Context(), "SELECT array_agg(order_id ORDER BY order_id) FROM payments").Scan(&got))
	require.Equal(t, []string{"all", "handled", "late handled", "on", "reacted"}, got)
}

// A handler that ends its transaction becomes a dead letter at its first run, whatever it returns.
func TestAHandlerThatEndsItsTransactionIsADeadLetter(t *testing.T) {
	t.Parallel()
	ended := func(end func(*sql.Tx) error, keeps bool) handler {
		return func(ctx context.Context, tx *sql.Tx, c participant.Command[Charge]) (participant.Outcome, error) {
			o, err := insert(ctx, tx, c)
			if end := end(tx); end != nil && keeps {
				err = end
			}
			return o, err
		}
	}
	exec := func(statement string) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			_, err := tx.Exec(statement)
			return err
		}
	}
	for name, c := range map[string]struct {
		fn   handler
		want string
	}{
		"Commit":                  {ended((*sql.Tx).Commit, true), "remove the call of Commit"},
		"Commit, error dropped":   {ended((*sql.Tx).Commit, false), "remove the call of Commit"},
		"Rollback, error dropped": {ended((*sql.Tx).Rollback, false), "remove the call of Rollback"},
		"COMMIT":                  {ended(exec("COMMIT"), true), "the participant commits"},
		"COMMIT, error dropped":   {ended(exec("-- done\nCOMMIT"), false), "the participant commits"},
		"BEGIN, prepared": {ended(func(tx *sql.Tx) error {
			statement, err := tx.Prepare("BEGIN")
			if err == nil {
				_, err = statement.Exec()
			}
			return err
		}, false), "the participant commits"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testkit.NewStage(t, service(c.fn))
			m := s.Command("o-1", Charge{OrderID: "o-1"})
			s.Send(m)
			dead := s.AwaitDeadLetter(m)
			require.Equal(t, participant.Permanent, dead.Class)
			require.Contains(t, dead.Error, c.want)
			require.Equal(t, 0, payments(t, s))
		})
	}
}

// Other failures have the same effect as in a handler with pgx: the run is rolled back, and the message is held and tried again.
func TestAFailedRunIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail func(context.Context, *sql.Tx) error
		want string
	}{
		"an error": {func(context.Context, *sql.Tx) error { return errors.New("its own") }, "its own"},
		"a statement of Postgres, error dropped": {func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "SELECT 1/0")
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) {
				return errors.New("no error of pgx")
			}
			return nil
		}, "aborted the transaction"},
		"rows left open": {func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.QueryContext(ctx, "SELECT n FROM generate_series(1, 100000) AS n")
			return err
		}, "rows were left open"},
		"its time is over": {func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "SELECT pg_sleep(600)")
			return err
		}, "ran longer than"},
		"its time is over, and database/sql says only that the transaction has ended": {func(ctx context.Context, tx *sql.Tx) error {
			<-ctx.Done()
			for {
				if _, err := tx.Exec("SELECT 1"); err != nil {
					return err
				}
			}
		}, "ran longer than"},
		"the statement's own time is over": {func(ctx context.Context, tx *sql.Tx) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := tx.ExecContext(ctx, "SELECT pg_sleep(600)")
			return err
		}, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := service(func(ctx context.Context, tx *sql.Tx, cmd participant.Command[Charge]) (participant.Outcome, error) {
				o, err := insert(ctx, tx, cmd)
				if cmd.Attempt == 1 && err == nil {
					err = c.fail(ctx, tx)
				}
				return o, err
			})
			if c.want == "ran longer than" {
				cfg.Participant.Timeout = 2 * time.Second
			}
			s := testkit.NewStage(t, cfg)
			m := s.Command("o-1", Charge{OrderID: "o-1"})
			s.Send(m)
			held := s.AwaitHeld(m, 1)
			require.Contains(t, held.Error, c.want)
			require.Equal(t, 0, payments(t, s))
			s.Advance(2 * time.Hour)
			testkit.Await[Charged](s, m)
			require.Equal(t, 1, payments(t, s))
		})
	}
}

// Each message of a batch has a *sql.Tx of its own; a savepoint that one rolls back leaves the rows of the others.
func TestABatchSharesTheTransaction(t *testing.T) {
	t.Parallel()
	cfg := service(func(ctx context.Context, tx *sql.Tx, c participant.Command[Charge]) (participant.Outcome, error) {
		for _, statement := range []string{"SAVEPOINT a", "INSERT INTO payments VALUES ('undone', 1)", "ROLLBACK TO SAVEPOINT a"} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return participant.Outcome{}, err
			}
		}
		return insert(ctx, tx, c)
	})
	cfg.Participant.Batch = 10
	s := testkit.NewStage(t, cfg)
	var all []envelope.Message
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		all = append(all, s.Command(key, Charge{OrderID: key}))
	}
	s.Send(all...)
	for _, m := range all {
		testkit.Await[Charged](s, m)
	}
	require.Equal(t, len(all), payments(t, s))
}

func TestOnlyAHandlersTransactionHasOneOfPgx(t *testing.T) {
	t.Parallel()
	_, err := sqltx.Pgx(new(sql.Tx))
	require.ErrorContains(t, err, "not the transaction of a handler")
}
