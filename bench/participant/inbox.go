package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
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
func measureInbox(ctx context.Context, s *stage) error {
	from, err := s.fill(ctx, partitions, s.batched, keys, 0)
	if err != nil {
		return err
	}
	defer s.remove(from)
	began := time.Now()
	large := s.name("inbox")
	url, err := s.postgres.CreateDatabase(ctx, large, template)
	if err != nil {
		return err
	}
	defer func() { _ = s.postgres.DropDatabase(context.Background(), large) }()
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
	if _, err := conn.Exec(ctx, "VACUUM ANALYZE troupe.inbox_recent"); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	fmt.Printf("%d ids were put in, in %s\n", s.inbox, time.Since(began).Round(time.Second))

	heading()
	var empty, filledUp []result
	for range s.rounds {
		k := task{Kind: byTroupe, Batch: 100, Concurrency: partitions}
		r, err := s.consume(ctx, from, k)
		if err != nil {
			return err
		}
		empty = append(empty, r)
		// The same service again, on the large inbox: its own tables and the outbox are emptied.
		if _, err := conn.Exec(ctx, "TRUNCATE accounts, troupe.outbox"); err != nil {
			return err
		}
		k.URL, k.Hop, k.Partitions, k.Group = url, from.hop.String(), from.partitions, s.name("group")
		k.Skip = from.messages / 10
		k.Messages = from.messages - k.Skip
		if r, err = s.run(ctx, k); err != nil {
			return err
		}
		if err := check(ctx, url, from.messages); err != nil {
			return err
		}
		filledUp = append(filledUp, r)
	}
	show("empty inbox", median(empty))
	show(fmt.Sprintf("inbox of %d", s.inbox), median(filledUp))
	fmt.Printf("the large one takes ids at %.2f of the empty one's rate\n", median(filledUp).rate()/median(empty).rate())
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
