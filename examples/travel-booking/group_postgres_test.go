package travelbooking_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// The messages of a group.
type (
	TakeDeposit struct {
		Trip  string `json:"trip"`
		Cents int64  `json:"cents"`
	}
	DepositTaken  struct{}
	ReturnDeposit struct {
		Trip string `json:"trip"`
	}
	DepositReturned struct{}
	BookSeat        struct {
		Trip      string `json:"trip"`
		Passenger string `json:"passenger"`
	}
	SeatBooked struct {
		Seat string `json:"seat"`
	}
	NoSeat      struct{}
	ReleaseSeat struct {
		Trip      string  `json:"trip"`
		Passenger string  `json:"passenger"`
		Seat      *string `json:"seat"` // nil: the booking was in doubt
	}
	SeatReleased struct{}
	IssueTickets struct {
		Trip  string   `json:"trip"`
		Seats []string `json:"seats"`
	}
	TicketsIssued  struct{}
	TicketsRefused struct {
		Reason string `json:"reason"`
	}
)

const groupSchema = `
CREATE TABLE group_seats (trip text NOT NULL, passenger text NOT NULL, free boolean NOT NULL DEFAULT false, PRIMARY KEY (trip, passenger));
CREATE TABLE deposits (trip text PRIMARY KEY, cents bigint NOT NULL, returned boolean NOT NULL DEFAULT false)`

// TestNoSeatOfAGroupIsLeftOver runs groups of 0 to 20 passengers, of whom some get no seat, or get it after the time-out. Each
// round ends in the midst of the work, except the last one. Then it counts seats and money: a booked group has a seat for each
// passenger, a cancelled one has none, and no money is kept.
func TestNoSeatOfAGroupIsLeftOver(t *testing.T) {
	t.Parallel()
	spec := groupDefinition(t).Spec()
	spec.Steps = append([]saga.Step(nil), spec.Steps...)
	spec.Steps[1].Timeout = saga.Duration(300 * time.Millisecond)
	d, err := saga.Define(spec)
	require.NoError(t, err)
	a := &agency{t: t, pool: testkit.Database(t), d: d, flow: testkit.Flow(t)}
	_, err = a.pool.Exec(t.Context(), groupSchema)
	require.NoError(t, err)
	dice := rand.New(rand.NewPCG(3, 3))
	groups := make(map[string][]string)
	for i := range 24 {
		trip := fmt.Sprintf("g-%d", i)
		for k := range []int{0, 1, 3, 8, 19}[dice.IntN(5)] {
			how := "fine"
			if dice.IntN(12) == 0 {
				how = []string{"full", "late"}[dice.IntN(2)]
			}
			groups[trip] = append(groups[trip], fmt.Sprintf("%s-%d", how, k))
		}
		if dice.IntN(5) == 0 {
			groups[trip] = append(groups[trip], "no-tickets")
		}
	}
	for round := range 3 {
		ctx, stop := context.WithCancel(t.Context())
		running, ctx := errgroup.WithContext(ctx)
		c := a.serveGroups(ctx, running)
		for i := range 8 {
			a.startGroup(c, fmt.Sprintf("g-%d", round*8+i), groups)
		}
		want := []int{3, 11, 24}[round]
		testkit.Wait(t, "enough groups to end", func() (bool, error) {
			var ended int
			err := a.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.sagas WHERE status IN ('completed', 'compensated')").Scan(&ended)
			if err == nil && ended < want {
				var open string
				const which = "SELECT string_agg(key || ' ' || status || ' ' || steps || ' ' || coalesce(reason, ''), '; ') FROM troupe.sagas WHERE ended_at IS NULL"
				err = errors.Join(a.pool.QueryRow(t.Context(), which).Scan(&open), fmt.Errorf("%d of %d groups have ended: %s", ended, want, open))
			}
			return err == nil, err
		})
		stop()
		require.NoError(t, running.Wait())
	}
	a.judgeGroups(groups, 24)
}

func (a *agency) startGroup(c *coordinator.Coordinator, trip string, groups map[string][]string) {
	a.t.Helper()
	err := coordinator.ErrConflict
	for errors.Is(err, coordinator.ErrConflict) {
		err = pgx.BeginFunc(a.t.Context(), a.pool, func(tx pgx.Tx) error {
			_, err := c.Start(a.t.Context(), tx, "group", map[string]any{"trip": trip, "cents": 100, "passengers": people(groups[trip]...)})
			return err
		})
	}
	require.NoError(a.t, err)
}

// serveGroups runs the hops of a group, and the coordinator.
func (a *agency) serveGroups(ctx context.Context, running *errgroup.Group) (c *coordinator.Coordinator) {
	service := func(hop string, handle func(p *participant.Participant)) {
		p, err := participant.New(participant.Config{
			Pool: a.pool, Local: true, Hop: topics.MustHop(a.flow, hop), Concurrency: 4, Log: zerolog.Nop(),
			Retry: retry.Policy{Initial: 20 * time.Millisecond, Cap: 50 * time.Millisecond, Attempts: 1000},
		})
		require.NoError(a.t, err)
		handle(p)
		running.Go(func() error { return p.Run(ctx) })
	}
	service("group", func(p *participant.Participant) {
		var err error
		c, err = coordinator.New(a.t.Context(), coordinator.Config{Participant: p, Pool: a.pool, Definitions: []*saga.Definition{a.d}})
		require.NoError(a.t, err)
	})
	service("payment", func(p *participant.Participant) {
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[TakeDeposit]) (participant.Outcome, error) {
			_, err := tx.Exec(ctx, "INSERT INTO deposits VALUES ($1, $2)", c.Body.Trip, c.Body.Cents)
			return participant.Succeed(DepositTaken{}), err
		})
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[ReturnDeposit]) (participant.Outcome, error) {
			_, err := tx.Exec(ctx, "UPDATE deposits SET returned = true WHERE trip = $1", c.Body.Trip)
			return participant.Succeed(DepositReturned{}), err
		})
	})
	service("airline", func(p *participant.Participant) {
		participant.Handle(p, a.bookSeat)
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[ReleaseSeat]) (participant.Outcome, error) {
			done, err := tx.Exec(ctx, "UPDATE group_seats SET free = true WHERE trip = $1 AND passenger = $2 AND NOT free", c.Body.Trip, c.Body.Passenger)
			if err == nil && c.Body.Seat != nil && done.RowsAffected() != 1 {
				err = retry.Permanent(fmt.Errorf("%s has no seat", c.Body.Passenger))
			}
			return participant.Succeed(SeatReleased{}), err
		})
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[IssueTickets]) (participant.Outcome, error) {
			for _, seat := range c.Body.Seats {
				if strings.HasSuffix(seat, "no-tickets") {
					return participant.Refuse(TicketsRefused{"no tickets today"}), nil
				}
			}
			return participant.Succeed(TicketsIssued{}), nil
		})
	})
	return c
}

// bookSeat books a seat, whose name is the passenger's. A passenger who is late gets it after the time-out of the item.
func (a *agency) bookSeat(ctx context.Context, tx pgx.Tx, c participant.Command[BookSeat]) (participant.Outcome, error) {
	switch how, _, _ := strings.Cut(c.Body.Passenger, "-"); how {
	case "full":
		return participant.Refuse(NoSeat{}), nil
	case "late":
		if err := a.untilTheSagaHasGoneOn(ctx, c.Body.Trip, c.Message.SagaStep); err != nil {
			return participant.Outcome{}, err
		}
	}
	_, err := tx.Exec(ctx, "INSERT INTO group_seats VALUES ($1, $2)", c.Body.Trip, c.Body.Passenger)
	return participant.Succeed(SeatBooked{"seat of " + c.Body.Passenger}), err
}

func (a *agency) judgeGroups(groups map[string][]string, n int) {
	a.t.Helper()
	desk, err := sagadesk.New(sagadesk.Config{Pool: a.pool})
	require.NoError(a.t, err)
	ends, released := make(map[saga.Status]int), 0
	for i := range n {
		trip := fmt.Sprintf("g-%d", i)
		var text []byte
		require.NoError(a.t, a.pool.QueryRow(a.t.Context(), "SELECT state FROM troupe.sagas WHERE key = $1", trip).Scan(&text))
		s, err := a.d.ReadState(text)
		require.NoError(a.t, err)
		ends[s.Status]++
		replay, err := desk.Replay(a.t.Context(), s.ID())
		require.NoError(a.t, err)
		require.Empty(a.t, replay.Difference, trip)
		var seats, free, money int
		const count = "SELECT count(*) FILTER (WHERE NOT free), count(*) FILTER (WHERE free) FROM group_seats WHERE trip = $1"
		require.NoError(a.t, a.pool.QueryRow(a.t.Context(), count, trip).Scan(&seats, &free))
		require.NoError(a.t, a.pool.QueryRow(a.t.Context(), "SELECT coalesce(sum(cents) FILTER (WHERE NOT returned), 0) FROM deposits WHERE trip = $1", trip).Scan(&money))
		released += free
		if s.Status == saga.Completed {
			require.Equal(a.t, len(groups[trip]), seats, trip)
			require.Equal(a.t, 100*len(groups[trip]), money, trip)
			continue
		}
		require.Equal(a.t, saga.Compensated, s.Status, "%s: %s", trip, s.Reason)
		require.Zero(a.t, seats, trip)
		require.Zero(a.t, money, trip)
	}
	require.Positive(a.t, ends[saga.Completed])
	require.Positive(a.t, ends[saga.Compensated])
	require.Positive(a.t, released)
	a.t.Logf("%v, %d seats released", ends, released)
}
