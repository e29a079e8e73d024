package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

// upsert is the service's own statement.
const upsert = `INSERT INTO accounts AS a (id, balance, deposits) VALUES ($1, $2, 1)
ON CONFLICT (id) DO UPDATE SET balance = a.balance + excluded.balance, deposits = a.deposits + 1`

var errAlways = errors.New("this account fails always")

// serve runs a service with a participant.
func serve(ctx context.Context, k task, m *meter) error {
	pool, err := harness.OpenPool(ctx, k.URL, k.Concurrency+2) // one for each concurrent transaction, and two more
	if err != nil {
		return err
	}
	defer pool.Close()
	hop, err := topics.ParseHop(k.Hop)
	if err != nil {
		return err
	}
	var extra []kgo.Opt
	if k.Offsets {
		extra = append(extra, kgo.WithHooks(firstFetch{m}))
	}
	committed := make(map[int32]int64)
	p, err := participant.New(participant.Config{
		Pool: pool, Brokers: k.Brokers, Hop: hop, Group: k.Group, Batch: k.Batch, Concurrency: k.Concurrency,
		// A key that always fails is retried as long as the clock runs.
		Retry: retry.Policy{Initial: 500 * time.Millisecond, Cap: time.Minute, Attempts: 1000},
		Log:   zerolog.New(os.Stderr).Level(zerolog.ErrorLevel),
		Hooks: participant.Hooks{
			AfterCommit: func(d participant.Delivery) {
				if d.Outcome == envelope.Success {
					m.count(1, d.Batch)
				}
			},
			AfterOffsets: func(offsets map[string]map[int32]int64) {
				for partition, offset := range offsets[hop.Commands()] {
					committed[partition] = offset
				}
				var sum int64
				for _, offset := range committed {
					sum += offset
				}
				m.reached(sum)
			},
		},
		Kafka: extra,
	})
	if err != nil {
		return err
	}
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Deposit]) (participant.Outcome, error) {
		id := string(c.Message.Key)
		if strings.HasPrefix(id, failingKey) {
			return participant.Outcome{}, errAlways
		}
		var err error
		if k.Wait {
			_, err = tx.Exec(ctx, upsert, id, c.Body.Amount)
		} else {
			err = participant.Queue(ctx, tx, upsert, id, c.Body.Amount)
		}
		return participant.Succeed(Deposited(c.Body)), err
	})
	return p.Run(ctx)
}

// firstFetch starts the clock at the first record, for tasks without effects.
type firstFetch struct{ m *meter }

// OnFetchRecordBuffered implements kgo.HookFetchRecordBuffered.
func (f firstFetch) OnFetchRecordBuffered(*kgo.Record) {
	f.m.start()
}
