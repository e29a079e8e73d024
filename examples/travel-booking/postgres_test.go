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
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// schema has a row per seat that was taken, and when it was given back.
const schema = `
CREATE TABLE seats (hop text NOT NULL, trip text NOT NULL, free boolean NOT NULL DEFAULT false, PRIMARY KEY (hop, trip));
CREATE TABLE money (trip text PRIMARY KEY, cents bigint NOT NULL)`

const cents = 90_000

// The messages of the services.
type (
	asked struct {
		Trip  string `json:"trip"`
		Cents int64  `json:"cents"`
	}
	BookFlight      asked
	CancelFlight    asked
	BookHotel       asked
	CancelHotel     asked
	BookCar         asked
	ReturnCar       asked
	Insure          asked
	CancelInsurance asked
	CapturePayment  asked

	booked struct {
		Ref string `json:"ref"`
	}
	FlightBooked booked
	HotelBooked  booked
	CarBooked    booked
	Insured      booked

	FlightFull         struct{}
	FlightCancelled    struct{}
	HotelFull          struct{}
	HotelCancelled     struct{}
	NoCar              struct{}
	CarReturned        struct{}
	NotInsured         struct{}
	InsuranceCancelled struct{}
	PaymentCaptured    struct{}
	PaymentRefused     struct {
		Reason string `json:"reason"`
	}
	TripApproved    struct{}
	CancelRequested struct {
		Reason string `json:"reason"`
	}
	TripDeclined struct {
		Reason string `json:"reason"`
	}
)

// agency runs the saga and its services on one database.
type agency struct {
	t    *testing.T
	pool *pgxpool.Pool
	d    *saga.Definition
	flow string
}

// outcome returns how a hop treats a trip. The trip's key tells it.
func outcome(trip, hop string) string {
	for _, part := range strings.Split(trip, ".") {
		if name, how, _ := strings.Cut(part, "-"); name == hop {
			return how
		}
	}
	return "fine"
}

func TestNoSeatAndNoMoneyIsLeftOver(t *testing.T) {
	t.Parallel()
	a := &agency{t: t, pool: testkit.Database(t), d: quick(t), flow: testkit.Flow(t)}
	_, err := a.pool.Exec(t.Context(), schema)
	require.NoError(t, err)
	dice := rand.New(rand.NewPCG(7, 7))
	var trips []string
	for i := range 32 {
		trip := fmt.Sprintf("n-%d", i)
		for _, hop := range []string{"flight", "hotel", "car", "desk", "payment", "insurance", "customer"} {
			hows := []string{"fine", "fine", "fine", "full", "late", "broken"}
			switch hop {
			case "desk", "payment":
				hows = []string{"fine", "fine", "fine", "full"}
			case "customer":
				hows = []string{"fine", "fine", "fine", "cancels", "regrets"}
			}
			trip += "." + hop + "-" + hows[dice.IntN(len(hows))]
		}
		trips = append(trips, trip)
	}
	for round := range 4 { // each round ends in the midst of the work, as by a crash that is noticed at once; the last one does not
		ctx, stop := context.WithCancel(t.Context())
		running, ctx := errgroup.WithContext(ctx)
		c := a.serve(ctx, running)
		for _, trip := range trips[round*8 : round*8+8] {
			a.plan(c, trip)
		}
		testkit.Wait(t, "enough trips to end", func() (bool, error) {
			var ended int
			err := a.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.sagas WHERE status IN ('completed', 'compensated')").Scan(&ended)
			if err == nil && ended < round*8+3 && round < 3 || ended < len(trips) && round == 3 {
				err = fmt.Errorf("%d of %d trips have ended", ended, len(trips))
			}
			return true, err
		})
		stop()
		require.NoError(t, running.Wait())
	}
	a.judge(trips)
}

// quick returns the definition with time-outs that a test can wait for.
func quick(t testing.TB) *saga.Definition {
	spec := definition(t).Spec()
	spec.Steps = append([]saga.Step(nil), spec.Steps...)
	for i := range spec.Steps {
		if name := spec.Steps[i].Name; name != "approval" && name != "payment" {
			spec.Steps[i].Timeout = saga.Duration(300 * time.Millisecond)
		}
	}
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

// serve runs a participant for each hop, and the coordinator.
func (a *agency) serve(ctx context.Context, running *errgroup.Group) *coordinator.Coordinator {
	run := func(hop string, handle func(p *participant.Participant)) *participant.Participant {
		p, err := participant.New(participant.Config{
			Pool: a.pool, Local: true, Hop: topics.MustHop(a.flow, hop), Concurrency: 4, Log: zerolog.Nop(),
		})
		require.NoError(a.t, err)
		handle(p)
		return p
	}
	var c *coordinator.Coordinator
	ps := []*participant.Participant{
		run("trip", func(p *participant.Participant) {
			var err error
			c, err = coordinator.New(a.t.Context(), coordinator.Config{Participant: p, Pool: a.pool, Definitions: []*saga.Definition{a.d}})
			require.NoError(a.t, err)
		}),
		run("flight", func(p *participant.Participant) {
			serves[BookFlight, CancelFlight](a, p, "flight", func(ref string) any { return FlightBooked{ref} }, FlightFull{}, FlightCancelled{})
		}),
		run("hotel", func(p *participant.Participant) {
			serves[BookHotel, CancelHotel](a, p, "hotel", func(ref string) any { return HotelBooked{ref} }, HotelFull{}, HotelCancelled{})
		}),
		run("car", func(p *participant.Participant) {
			serves[BookCar, ReturnCar](a, p, "car", func(ref string) any { return CarBooked{ref} }, NoCar{}, CarReturned{})
		}),
		run("insurance", func(p *participant.Participant) {
			serves[Insure, CancelInsurance](a, p, "insurance", func(ref string) any { return Insured{ref} }, NotInsured{}, InsuranceCancelled{})
		}),
		run("payment", func(p *participant.Participant) {
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[CapturePayment]) (participant.Outcome, error) {
				if outcome(c.Body.Trip, "customer") == "regrets" { // too late: the payment has begun
					if err := p.Outbox().Write(ctx, tx, a.cancel(c.Body.Trip)); err != nil {
						return participant.Outcome{}, err
					}
				}
				if outcome(c.Body.Trip, "payment") == "full" {
					return participant.Refuse(PaymentRefused{"credit limit"}), nil
				}
				_, err := tx.Exec(ctx, "INSERT INTO money VALUES ($1, $2)", c.Body.Trip, c.Body.Cents)
				return participant.Succeed(PaymentCaptured{}), err
			})
		}),
	}
	for _, p := range ps {
		running.Go(func() error { return p.Run(ctx) })
	}
	return c
}

// serves handles the bookings of a hop and their cancellations.
func serves[Book, Cancel ~struct {
	Trip  string `json:"trip"`
	Cents int64  `json:"cents"`
}](a *agency, p *participant.Participant, hop string, done func(ref string) any, full, cancelled any) {
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Book]) (participant.Outcome, error) {
		trip := asked(c.Body).Trip
		switch outcome(trip, hop) {
		case "full":
			return participant.Refuse(full), nil
		case "broken":
			return participant.Outcome{}, retry.Permanent(errors.New("the server answers 503"))
		case "late":
			if err := a.untilTheSagaHasGoneOn(ctx, trip, hop); err != nil {
				return participant.Outcome{}, err
			}
		}
		_, err := tx.Exec(ctx, "INSERT INTO seats (hop, trip) VALUES ($1, $2)", hop, trip)
		return participant.Succeed(done(hop + " of " + trip)), err
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Cancel]) (participant.Outcome, error) {
		_, err := tx.Exec(ctx, "UPDATE seats SET free = true WHERE hop = $1 AND trip = $2", hop, asked(c.Body).Trip)
		return participant.Succeed(cancelled), err
	})
}

// untilTheSagaHasGoneOn waits until the step's time has passed.
func (a *agency) untilTheSagaHasGoneOn(ctx context.Context, trip, step string) error {
	const under = `
SELECT EXISTS (
  SELECT FROM troupe.sagas, jsonb_array_elements(state::jsonb -> 'steps') AS step
  WHERE key = $1 AND step ->> 'name' = $2 AND step ->> 'phase' = 'intent')`
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		var waits bool
		if err := a.pool.QueryRow(ctx, under, trip, step).Scan(&waits); err != nil || !waits {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// cancel returns the customer's request.
func (a *agency) cancel(trip string) outbox.Entry {
	return outbox.Entry{Topic: topics.MustHop(a.flow, "customer").Events(), Key: trip, Body: CancelRequested{"ill"}}
}

// plan starts a trip; the desk has decided before, and the customer may cancel at once.
func (a *agency) plan(c *coordinator.Coordinator, trip string) {
	a.t.Helper()
	p, err := participant.New(participant.Config{Pool: a.pool, Local: true, Hop: topics.MustHop(a.flow, "desk"), Log: zerolog.Nop()})
	require.NoError(a.t, err)
	byPerson := outcome(trip, "desk") == "person" // the answer comes later
	decided := outbox.Entry{Topic: p.Hop().Events(), Key: trip, Body: TripApproved{}}
	if outcome(trip, "desk") == "full" {
		decided.Body = TripDeclined{"too expensive"}
	}
	err = coordinator.ErrConflict
	for errors.Is(err, coordinator.ErrConflict) {
		err = pgx.BeginFunc(a.t.Context(), a.pool, func(tx pgx.Tx) error {
			entries := []outbox.Entry{decided}
			if byPerson {
				entries = nil
			}
			if outcome(trip, "customer") == "cancels" {
				entries = append(entries, a.cancel(trip))
			}
			if err := p.Outbox().Write(a.t.Context(), tx, entries...); err != nil {
				return err
			}
			_, err := c.Start(a.t.Context(), tx, "trip", map[string]any{"trip": trip, "cents": cents})
			return err
		})
	}
	require.NoError(a.t, err)
}

// judge counts seats and money: a booked trip has the seats of the steps that are done, at least two of them, and its money; a
// cancelled one has none.
func (a *agency) judge(trips []string) {
	a.t.Helper()
	desk, err := sagadesk.New(sagadesk.Config{Pool: a.pool})
	require.NoError(a.t, err)
	ends := make(map[saga.Status]int)
	tolerated, returned := 0, 0
	cancels := make(map[saga.CancelResult]int)
	for _, trip := range trips {
		var text []byte
		require.NoError(a.t, a.pool.QueryRow(a.t.Context(), "SELECT state FROM troupe.sagas WHERE key = $1", trip).Scan(&text))
		s, err := a.d.ReadState(text)
		require.NoError(a.t, err)
		ends[s.Status]++
		cancels[s.Cancel]++
		require.False(a.t, s.Cancel == saga.CancelAccepted && s.Status != saga.Compensated, "%s was cancelled, and is %s", trip, s.Status)
		require.False(a.t, s.Cancel == saga.CancelRefused && outcome(trip, "customer") != "regrets", trip)
		replay, err := desk.Replay(a.t.Context(), s.ID())
		require.NoError(a.t, err)
		require.Empty(a.t, replay.Difference, trip)
		seats, paid := 0, 0
		for _, ss := range s.Steps {
			var taken, free int
			const count = "SELECT count(*), count(*) FILTER (WHERE free) FROM seats WHERE hop = $1 AND trip = $2"
			require.NoError(a.t, a.pool.QueryRow(a.t.Context(), count, ss.Name, trip).Scan(&taken, &free))
			returned += free
			want := 0
			if s.Status == saga.Completed && ss.Phase == saga.Done && ss.Name != "approval" && ss.Name != "payment" {
				want = 1
			}
			require.Equal(a.t, want, taken-free, "seats of %s in %s, which is %s: %+v", ss.Name, trip, s.Status, ss)
			if ss.Name != "insurance" {
				seats += taken - free
			}
			if ss.Tolerated {
				tolerated++
			}
		}
		require.NoError(a.t, a.pool.QueryRow(a.t.Context(), "SELECT coalesce(sum(cents), 0) FROM money WHERE trip = $1", trip).Scan(&paid))
		if s.Status == saga.Completed {
			require.GreaterOrEqual(a.t, seats, 2, trip)
			require.Equal(a.t, cents, paid, trip)
		} else {
			require.Zero(a.t, paid, trip)
		}
	}
	require.Positive(a.t, tolerated)
	require.Positive(a.t, returned)
	require.Positive(a.t, cancels[saga.CancelAccepted])
	a.t.Logf("%v, cancels %v, %d steps tolerated, %d seats returned", ends, cancels, tolerated, returned)
}

// Two operators answer each of the trips at once, from consoles of their own, while participants run. One answer counts.
func TestOperatorsApproveTripsOnce(t *testing.T) {
	t.Parallel()
	a := &agency{t: t, pool: testkit.Database(t), d: definition(t), flow: testkit.Flow(t)}
	_, err := a.pool.Exec(t.Context(), schema)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	running, ctx := errgroup.WithContext(ctx)
	c := a.serve(ctx, running)
	desk, err := sagadesk.New(sagadesk.Config{Pool: a.pool})
	require.NoError(t, err)
	const trips = 6
	for i := range trips {
		a.plan(c, fmt.Sprintf("n-%d.desk-person", i))
	}
	var questions []sagadesk.Question
	testkit.Wait(t, "the questions of all trips", func() (bool, error) {
		found, err := desk.Questions(t.Context(), "trip", sagadesk.Page{})
		questions = found.Questions
		return len(questions) == trips, err
	})
	accepted := make(chan string, 2*trips)
	var people errgroup.Group
	for _, q := range questions {
		for _, name := range []string{"ann", "bob"} {
			people.Go(func() error {
				_, err := desk.Act(t.Context(), q.ID, saga.Event{Kind: saga.ActAnswer, Step: q.Step, Type: "TripApproved", Actor: name, Reason: "ticket 7"})
				switch {
				case err == nil:
					accepted <- q.ID
				case !errors.Is(err, coordinator.ErrRefused):
					return err
				}
				return nil
			})
		}
	}
	require.NoError(t, people.Wait())
	require.Len(t, accepted, trips)
	testkit.Wait(t, "all trips to be booked and paid", func() (bool, error) {
		var booked, paid int
		err := a.pool.QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE status = 'completed'), (SELECT count(*) FROM money) FROM troupe.sagas").Scan(&booked, &paid)
		return booked == trips && paid == trips, err
	})
	stop()
	require.NoError(t, running.Wait())
}
