package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/bench/harness"
)

const inboxDays = 5

// fillInbox inserts ids of the last days into an inbox, a part for each day, in the form of a participant's: UUIDv7 with the
// day's milliseconds and random bits, in the slot of the day.
const fillInbox = `
INSERT INTO troupe.inbox_recent (slot, id, consumer_group)
SELECT $1::bigint % 32,
       (lpad(to_hex(($1::bigint * 86400000 + (n * 86400000.0 / $2)::bigint)), 12, '0') || '7' ||
        substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text || 'x'), 1, 15))::uuid,
       'bench'
FROM generate_series(0, $2::bigint - 1) AS n`

// measureInbox measures the cost of the inbox's size: inserting into it, and forgetting a day.
func (s *stage) measureInbox(ctx context.Context) (err error) {
	from, err := s.fill(ctx, s.batched, 0)
	if err != nil {
		return err
	}
	defer s.remove(from)
	began := time.Now()
	y := s.NewSystem(ctx)
	defer func() { err = errors.Join(err, y.Close()) }()
	url, err := y.Database(ctx, "")
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	today := time.Now().UnixMilli() / dayMs
	for day := today - inboxDays + 1; day <= today; day++ {
		if _, err := conn.Exec(ctx, fillInbox, day, s.inbox/inboxDays); err != nil {
			return err
		}
	}
	if err := harness.Execute(ctx, url, "VACUUM ANALYZE troupe.inbox_recent", "CHECKPOINT"); err != nil {
		return err
	}
	fmt.Printf("%d ids were put in, in %s\n", s.inbox, time.Since(began).Round(time.Second))

	table.Heading()
	k := task{Kind: byTroupe, Batch: 100, Concurrency: partitions}
	empty := s.way(from, k, byTroupe)
	large := &harness.Contender[result]{Name: "large inbox", Run: func(ctx context.Context) (result, error) {
		// The same service again, on the large inbox: its own tables and the outbox are emptied.
		if _, err := conn.Exec(ctx, "TRUNCATE accounts, troupe.outbox"); err != nil {
			return result{}, err
		}
		k.URL = url
		return s.consumeInto(ctx, from, k)
	}}
	if err := s.compare(ctx, empty, large); err != nil {
		return err
	}
	e, l := table.Median(empty.Results), table.Median(large.Results)
	table.Show("empty inbox", e)
	table.Show(fmt.Sprintf("inbox of %d", s.inbox), l)
	fmt.Printf("the large one takes ids at %.2f of the empty one's rate\n", l.rate()/e.rate())
	return forgetDays(ctx, conn, today, s.inbox/inboxDays)
}

// forgetDays empties slots as a participant does when the ring advances: an empty one, and the ones with a day's ids.
func forgetDays(ctx context.Context, conn *pgx.Conn, today int64, ids int) error {
	for day := today - inboxDays; day < today; day++ {
		began := time.Now()
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, fmt.Sprintf("TRUNCATE troupe.inbox_recent_%d", day%slots))
			if err == nil {
				_, err = tx.Exec(ctx, "DELETE FROM troupe.inbox_slots WHERE slot = $1", day%slots)
			}
			return err
		})
		if err != nil {
			return err
		}
		held := ids
		if day == today-inboxDays {
			held = 0
		}
		fmt.Printf("a day of %d ids is forgotten in %.1f ms\n", held, time.Since(began).Seconds()*1000)
	}
	return nil
}
