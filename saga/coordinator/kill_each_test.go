package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

const takenTable = "CREATE TABLE taken (flight text, seat text, step text, free boolean DEFAULT false, PRIMARY KEY (flight, seat))"

// TestAStepWithForEachSurvivesSIGKILL kills a process that runs all hops of flights on Postgres alone, while it books the seats of passengers,
// releases seats, or decides. The next process goes on. In the end a completed flight has one seat for each passenger, and a flight with a
// refused seat has none.
func TestAStepWithForEachSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	for _, kill := range []struct {
		point, operation string // operation of the command; "": a decision of the coordinator
		nth              int64
	}{
		{"before the handler", envelope.Forward, 7}, {"before the commit", envelope.Forward, 11}, {"after the commit", envelope.Forward, 9},
		{"before the handler", envelope.Compensate, 2}, {"before the commit", envelope.Compensate, 3}, {"after the commit", envelope.Compensate, 1},
		{"before the commit", "", 12},
	} {
		t.Run(fmt.Sprintf("%s, %s", kill.point, kill.operation), func(t *testing.T) {
			t.Parallel()
			pool := testkit.Database(t)
			_, err := pool.Exec(t.Context(), takenTable)
			require.NoError(t, err)
			k := task{Flow: testkit.Flow(t), Hop: "flight", URL: testkit.DatabaseURL(t, pool), Definition: flightDefinition, Die: kill.point, Operation: kill.operation, Nth: kill.nth}
			p, err := k.local(pool, "flight", testkit.Logger(t), participant.Hooks{})
			require.NoError(t, err)
			c, err := k.coordinator(t.Context(), p, pool)
			require.NoError(t, err)
			flights := map[string][]any{}
			for i := range 6 {
				key := fmt.Sprintf("fl-%d", i)
				for j := range 6 {
					name := fmt.Sprintf("p%d", j)
					if i%2 == 1 && j == 4 {
						name = "full"
					}
					flights[key] = append(flights[key], map[string]any{"name": name})
				}
				require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					_, err := c.Start(t.Context(), tx, "flight", map[string]any{"id": key, "passengers": flights[key]})
					return err
				}))
			}
			count := func(sql string) (n int) {
				require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&n))
				return n
			}
			for range 3 { // each goes on where the one before was killed
				spawn(t, k).killed(t)
				require.NotZero(t, count("SELECT count(*) FROM troupe.sagas WHERE ended_at IS NULL"), "killed too late to show anything")
				if kill.operation == envelope.Compensate {
					break // few seats are released
				}
			}
			k.Die = ""
			last := spawn(t, k)
			testkit.Wait(t, "all flights to end", func() (bool, error) {
				var open string
				const which = "SELECT coalesce(string_agg(key || ' ' || status || ' ' || steps || ' ' || coalesce(reason, ''), '; '), '') FROM troupe.sagas WHERE ended_at IS NULL"
				err := pool.QueryRow(t.Context(), which).Scan(&open)
				if err == nil && open != "" {
					err = errors.New(open)
				}
				return err == nil, err
			})
			require.NoError(t, last.Process.Signal(syscall.SIGTERM))
			last.stopped(t)
			require.Equal(t, 3, count("SELECT count(*) FROM troupe.sagas WHERE status = 'completed'"))
			require.Equal(t, 3, count("SELECT count(*) FROM troupe.sagas WHERE status = 'compensated'"))
			require.Equal(t, 3*6, count("SELECT count(*) FROM taken WHERE NOT free"))
			require.Equal(t, 3, count("SELECT count(DISTINCT flight) FROM taken WHERE NOT free"))
			require.Zero(t, count("SELECT count(*) FROM troupe.dead_letters"))
			desk, err := sagadesk.New(sagadesk.Config{Pool: pool})
			require.NoError(t, err)
			require.NoError(t, desk.ReplayAll(t.Context(), "", func(r sagadesk.Replayed) error {
				require.Empty(t, r.Difference, r.ID)
				return nil
			}))
		})
	}
}

// runFlight runs all hops of flights in this process, without Kafka.
func (k task) runFlight(ctx context.Context, pool *pgxpool.Pool, log zerolog.Logger) error {
	all, ctx := errgroup.WithContext(ctx)
	var calls atomic.Int64
	for _, hop := range []string{"flight", "seats", "tickets"} {
		die := func(point string, d participant.Delivery) {
			own := hop == "flight" && k.Operation == "" || hop == "seats" && k.Operation != "" && d.Message.SagaOperation == k.Operation
			if k.Die == point && own && calls.Add(1) == k.Nth {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {} // until the signal arrives
			}
		}
		p, err := k.local(pool, hop, log, participant.Hooks{
			BeforeHandler: func(d participant.Delivery) { die("before the handler", d) },
			BeforeCommit:  func(d participant.Delivery) { die("before the commit", d) },
			AfterCommit:   func(d participant.Delivery) { die("after the commit", d) },
		})
		if err != nil {
			return err
		}
		switch hop {
		case "flight":
			if _, err := k.coordinator(ctx, p, pool); err != nil {
				return err
			}
		case "seats":
			participant.Handle(p, bookSeat)
			participant.Handle(p, releaseSeat)
		case "tickets":
			participant.Handle(p, issueTickets)
		}
		all.Go(func() error { return p.Run(ctx) })
	}
	return all.Wait()
}

func (k task) local(pool *pgxpool.Pool, hop string, log zerolog.Logger, hooks participant.Hooks) (*participant.Participant, error) {
	return participant.New(participant.Config{
		Pool: pool, Local: true, Hop: topics.MustHop(k.Flow, hop), Batch: 4, Concurrency: 2, Immediate: -1, Hooks: hooks, Log: log,
		Retry: retry.Policy{Initial: 10 * time.Millisecond, Cap: 20 * time.Millisecond, Attempts: 100},
	})
}

func issueTickets(context.Context, pgx.Tx, participant.Command[IssueTickets]) (participant.Outcome, error) {
	return participant.Succeed(TicketsIssued{}), nil
}

func bookSeat(ctx context.Context, tx pgx.Tx, c participant.Command[BookSeat]) (participant.Outcome, error) {
	if c.Body.Name == "full" {
		return participant.Refuse(SeatRefused{}), nil
	}
	seat := "seat of " + c.Body.Name
	_, err := tx.Exec(ctx, "INSERT INTO taken (flight, seat, step) VALUES ($1, $2, $3)", string(c.Message.Key), seat, c.Message.SagaStep)
	return participant.Succeed(SeatBooked{seat}), err
}

func releaseSeat(ctx context.Context, tx pgx.Tx, c participant.Command[ReleaseSeat]) (participant.Outcome, error) {
	done, err := tx.Exec(ctx, "UPDATE taken SET free = true WHERE flight = $1 AND seat = $2 AND step = $3 AND NOT free",
		string(c.Message.Key), c.Body.Seat, c.Message.SagaStep)
	if err == nil && done.RowsAffected() != 1 {
		err = retry.Permanent(fmt.Errorf("%s of %s is not taken", c.Body.Seat, c.Message.SagaStep))
	}
	return participant.Succeed(SeatReleased{}), err
}
