package participant_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// A service that accepts many orders at once gives each its deadline, and cancels the deadline of a withdrawn one, in two
// statements.
func ExampleParticipant_Plan() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	pool, brokers, end, err := playground(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	p, err := participant.New(participant.Config{Pool: pool, Brokers: brokers, Hop: topics.MustHop("order", "approval")})
	if err != nil {
		fmt.Println(err)
		return
	}
	participant.OnDeadline(p, "not-approved", func(context.Context, pgx.Tx, participant.Due[Remind]) error { return nil })

	var deadlines participant.Deadlines
	for _, order := range []string{"o-1", "o-2", "o-3"} {
		d := participant.Deadline{Name: "not-approved", Key: order, After: time.Hour, Body: Remind{order}}
		if err := p.Plan(ctx, &deadlines, d); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := p.PlanCancel(ctx, &deadlines, "not-approved", "o-2"); err != nil {
		fmt.Println(err)
		return
	}
	var batch pgx.Batch
	p.QueueDeadlines(&batch, &deadlines)
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return tx.SendBatch(ctx, &batch).Close() })
	var pending []string
	if err == nil {
		err = pool.QueryRow(ctx, "SELECT array_agg(scope ORDER BY scope) FROM troupe.deadlines").Scan(&pending)
	}
	fmt.Println(pending, err)
	// Output: [o-1 o-3] <nil>
}
