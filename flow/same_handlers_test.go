package flow_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// These are the messages of a trip: a room, and a flight to it. Without a flight the room is cancelled.
type (
	BookRoom     struct{ Guest string }
	RoomBooked   struct{ Guest string }
	RoomRefused  struct{}
	CancelRoom   struct{ Guest string }
	RoomFree     struct{}
	BookFlight   struct{ Guest string }
	FlightBooked struct{}
	FlightFull   struct{ Guest string }
	TripAsked    struct{ Guest string }
)

// These handlers do not know whether a coordinator or an event has triggered them.

func bookRoom(ctx context.Context, tx pgx.Tx, c participant.Command[BookRoom]) (participant.Outcome, error) {
	_, err := tx.Exec(ctx, "INSERT INTO booked VALUES ('room', $1) ON CONFLICT DO NOTHING", c.Body.Guest)
	return participant.Succeed(RoomBooked(c.Body)), err
}

func cancelRoom(ctx context.Context, tx pgx.Tx, c participant.Command[CancelRoom]) (participant.Outcome, error) {
	_, err := tx.Exec(ctx, "DELETE FROM booked WHERE what = 'room' AND guest = $1", c.Body.Guest)
	return participant.Succeed(RoomFree{}), err
}

func bookFlight(ctx context.Context, tx pgx.Tx, c participant.Command[BookFlight]) (participant.Outcome, error) {
	if c.Body.Guest == "late" {
		return participant.Refuse(FlightFull(c.Body)), nil
	}
	_, err := tx.Exec(ctx, "INSERT INTO booked VALUES ('flight', $1) ON CONFLICT DO NOTHING", c.Body.Guest)
	return participant.Succeed(FlightBooked{}), err
}

// asked converts an event into the command that the handler expects.
func asked[C, E any](e participant.Event[E], body C) participant.Command[C] {
	return participant.Command[C]{Body: body, Message: e.Message, Attempt: e.Attempt}
}

// stops returns a participant of a trip. All of them share one database without Kafka.
func stops(t *testing.T, pool *pgxpool.Pool, name string) (p *participant.Participant) {
	p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("trip", name), Local: true, Concurrency: 2, Log: testkit.Logger(t)})
	require.NoError(t, err)
	return p
}

// TestTheSameHandlersInBothStyles runs the handlers with a coordinator that decides on the next step, and with reactions of
// each hop; the rows are the same.
func TestTheSameHandlersInBothStyles(t *testing.T) {
	t.Parallel()
	for style, begin := range map[string]func(*testing.T, *pgxpool.Pool) func(guest string){
		"orchestrated": orchestrated, "choreographed": choreographed,
	} {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			pool := testkit.Database(t)
			_, err := pool.Exec(t.Context(), "CREATE TABLE booked (what text, guest text, PRIMARY KEY (what, guest))")
			require.NoError(t, err)
			ask := begin(t, pool)
			ask("early")
			ask("late")
			testkit.Wait(t, "both trips", func() (bool, error) {
				rows, err := pool.Query(t.Context(), "SELECT what || ' ' || guest FROM booked ORDER BY 1")
				if err != nil {
					return false, err
				}
				booked, err := pgx.CollectRows(rows, pgx.RowTo[string])
				var free bool
				if err == nil {
					err = pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM troupe.outbox WHERE type = 'RoomFree' AND key = 'late') OR "+
						"EXISTS (SELECT FROM troupe.local_work WHERE type = 'RoomFree' AND key = 'late')").Scan(&free)
				}
				return free && len(booked) == 2 && booked[0] == "flight early" && booked[1] == "room early", err
			})
		})
	}
}

func orchestrated(t *testing.T, pool *pgxpool.Pool) func(guest string) {
	trip, err := saga.Define(saga.Spec{
		Saga: "trip", Version: 1, Key: "guest", Data: map[string]saga.Type{"guest": saga.String},
		Steps: []saga.Step{{
			Name:         "room",
			Command:      &saga.Command{Hop: "hotel", Type: "BookRoom", Input: saga.Mapping{"Guest": "data.guest"}},
			Success:      []saga.Answer{{Event: "RoomBooked"}},
			Failure:      []saga.Answer{{Event: "RoomRefused"}},
			Compensation: &saga.Compensation{Command: &saga.Command{Hop: "hotel", Type: "CancelRoom", Input: saga.Mapping{"Guest": "data.guest"}}, Success: []saga.Answer{{Event: "RoomFree"}}},
			Timeout:      saga.Duration(time.Hour),
		}, {
			Name:    "flight",
			Needs:   []string{"room"},
			Command: &saga.Command{Hop: "airline", Type: "BookFlight", Input: saga.Mapping{"Guest": "data.guest"}},
			Success: []saga.Answer{{Event: "FlightBooked"}},
			Failure: []saga.Answer{{Event: "FlightFull"}},
			Timeout: saga.Duration(time.Hour),
		}},
	})
	require.NoError(t, err)
	office, hotel, airline := stops(t, pool, "office"), stops(t, pool, "hotel"), stops(t, pool, "airline")
	c, err := coordinator.New(t.Context(), coordinator.Config{Participant: office, Pool: pool, Definitions: []*saga.Definition{trip}})
	require.NoError(t, err)
	participant.Handle(hotel, bookRoom)
	participant.Handle(hotel, cancelRoom)
	participant.Handle(airline, bookFlight)
	for _, p := range []*participant.Participant{office, hotel, airline} {
		run(t, p)
	}
	return func(guest string) {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := c.Start(t.Context(), tx, "trip", map[string]any{"guest": guest})
			return err
		}))
	}
}

func choreographed(t *testing.T, pool *pgxpool.Pool) func(guest string) {
	ofTrip := func(hop, typ string) flow.Message { return events("trip", hop, typ) }
	hotel, airline := stops(t, pool, "hotel"), stops(t, pool, "airline")
	atHotel := bind(t, hotel, flow.Declaration{Hop: "trip.hotel", Reactions: []flow.Reaction{
		{On: ofTrip("office", "TripAsked"), Success: []flow.Message{ofTrip("hotel", "RoomBooked")}, Failure: []flow.Message{ofTrip("hotel", "RoomRefused")}},
		{On: ofTrip("airline", "FlightFull"), Success: []flow.Message{ofTrip("hotel", "RoomFree")}, Undoes: []string{"RoomBooked"}},
	}})
	flow.On(atHotel, topics.MustHop("trip", "office"), func(ctx context.Context, tx pgx.Tx, e participant.Event[TripAsked]) (participant.Outcome, error) {
		return bookRoom(ctx, tx, asked(e, BookRoom(e.Body)))
	})
	flow.On(atHotel, topics.MustHop("trip", "airline"), func(ctx context.Context, tx pgx.Tx, e participant.Event[FlightFull]) (participant.Outcome, error) {
		return cancelRoom(ctx, tx, asked(e, CancelRoom(e.Body)))
	})
	atAirline := bind(t, airline, flow.Declaration{Hop: "trip.airline", Reactions: []flow.Reaction{
		{On: ofTrip("hotel", "RoomBooked"), Success: []flow.Message{ofTrip("airline", "FlightBooked")}, Failure: []flow.Message{ofTrip("airline", "FlightFull")}},
	}})
	flow.On(atAirline, topics.MustHop("trip", "hotel"), func(ctx context.Context, tx pgx.Tx, e participant.Event[RoomBooked]) (participant.Outcome, error) {
		return bookFlight(ctx, tx, asked(e, BookFlight(e.Body)))
	})
	run(t, hotel)
	run(t, airline)
	// the writer is not a participant, so its outbox must find that its readers' topics are local
	out, err := outbox.New(outbox.Config{Source: "office"})
	require.NoError(t, err)
	for _, p := range []*participant.Participant{hotel, airline} {
		testkit.Wait(t, "the hop", func() (bool, error) { err := p.Ready(); return err == nil, err })
	}
	return func(guest string) {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return out.Write(t.Context(), tx, outbox.Entry{Topic: "trip.office.events", Key: guest, Body: TripAsked{guest}, Outcome: "success"})
		}))
	}
}
