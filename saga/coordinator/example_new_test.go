package coordinator_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/topics"
)

type (
	BookRoom struct {
		Nights int `json:"nights"`
	}
	RoomBooked struct {
		Room int `json:"room"`
	}
	RoomRefused struct{}
)

// A coordinator and the participant hotel, in one database without Kafka. Over Kafka the participants have Brokers instead of
// Local, and each database has a relay.
func ExampleNew() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, end, err := playground(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	if err := trips(ctx, pool); err != nil {
		fmt.Println(err)
	}
	// Output:
	// trip/t-1 started running
	// trip/t-1 answered completed
	// map[nights:2 room:12 trip:t-1]
}

func trips(ctx context.Context, pool *pgxpool.Pool) error {
	trip, err := saga.Define(saga.Spec{
		Saga: "trip", Version: 1, Key: "trip",
		Data: map[string]saga.Type{"trip": saga.String, "nights": saga.Int, "room": saga.Int},
		Steps: []saga.Step{{
			Name:    "hotel",
			Command: &saga.Command{Hop: "hotel", Type: "BookRoom", Input: saga.Mapping{"nights": "data.nights"}},
			Success: []saga.Answer{{Event: "RoomBooked", Set: saga.Mapping{"room": "event.room"}}},
			Failure: []saga.Answer{{Event: "RoomRefused"}},
			Timeout: saga.Duration(time.Hour),
		}},
	})
	if err != nil {
		return err
	}
	office, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("travel", "office"), Local: true, Concurrency: 1})
	if err != nil {
		return err
	}
	hotel, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop("travel", "hotel"), Local: true, Concurrency: 1})
	if err != nil {
		return err
	}
	participant.Handle(hotel, func(_ context.Context, _ pgx.Tx, c participant.Command[BookRoom]) (participant.Outcome, error) {
		if c.Body.Nights > 14 {
			return participant.Refuse(RoomRefused{}), nil
		}
		return participant.Succeed(RoomBooked{Room: 12}), nil
	})

	decided := make(chan coordinator.Decided, 10)
	c, err := coordinator.New(ctx, coordinator.Config{
		Participant: office, Pool: pool, Definitions: []*saga.Definition{trip},
		Decided: func(d coordinator.Decided) { decided <- d },
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	running, stop := context.WithCancel(ctx)
	defer func() { stop(); <-ended; <-ended }()
	for _, p := range []*participant.Participant{office, hotel} {
		go func() { ended <- p.Run(running) }()
	}

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { // in the transaction of the trip's own rows
		_, err := c.Start(ctx, tx, "trip", map[string]any{"trip": "t-1", "nights": 2})
		return err
	})
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case d := <-decided:
			fmt.Println(d.ID, d.Event.Kind, d.State.Status)
			if d.State.Ended() {
				fmt.Println(d.State.Data)
				return nil
			}
		}
	}
}
