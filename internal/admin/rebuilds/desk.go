package rebuilds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/pg"
)

// ErrNotFound is wrapped by errors about a rebuild that is not in the database.
var ErrNotFound = errors.New("not found")

// rightsPage is the page that an error about a missing right names.
const rightsPage = "docs/rebuild.md"

// A Desk plans, starts, lists and cancels the rebuilds of one database. It is safe for concurrent use.
type Desk struct{ Pool *pgxpool.Pool }

// A Rebuild is a rebuild with its progress.
type Rebuild struct {
	ID          int64      `json:"id"`
	Group       string     `json:"group"`
	Generation  int        `json:"generation"`
	Handlers    []string   `json:"handlers"` // of List: at most 100
	From        time.Time  `json:"from"`
	Emit        bool       `json:"emit"`
	StartedAt   time.Time  `json:"started_at"`
	CancelledAt *time.Time `json:"cancelled_at"`
	FinishedAt  *time.Time `json:"finished_at"`
	// Partitions of the topics; Begun counts the ones that have begun. Done and Total count their offsets.
	Partitions int   `json:"partitions"`
	Begun      int   `json:"begun"`
	Done       int64 `json:"done"`
	Total      int64 `json:"total"`
}

// State returns waiting, running, finished or cancelled.
func (r Rebuild) State() string {
	switch {
	case r.CancelledAt != nil:
		return "cancelled"
	case r.FinishedAt != nil:
		return "finished"
	case r.Begun == 0:
		return "waiting"
	}
	return "running"
}

// A Partition is a partition of a rebuild. Next is the offset up to which its messages were handled again.
type Partition struct {
	Topic       string `json:"topic"`
	Partition   int32  `json:"partition"`
	From        int64  `json:"from"`
	Next        *int64 `json:"next"`  // nil: the partition has not begun
	Until       *int64 `json:"until"` // likewise
	Owner       string `json:"owner"` // of the partition's lease; "": it has none
	Held        int    `json:"held"`
	DeadLetters int    `json:"dead_letters"` // of the group: open, or redriven and not handled yet
}

// State returns the partition's progress in words.
func (p Partition) State() string {
	switch {
	case p.Until == nil && p.Held > 0:
		return fmt.Sprintf("waits until no key is held: held messages: %d", p.Held)
	case p.Until == nil && p.DeadLetters > 0:
		return fmt.Sprintf("waits until no dead letter of the group is open, and the redriven ones are handled: %d", p.DeadLetters)
	case p.Until == nil && p.Owner == "":
		return "waits for a member of the group"
	case p.Until == nil:
		return "begins when its member joins the group again"
	case *p.Next < *p.Until:
		return "running"
	case p.Held > 0:
		return fmt.Sprintf("handled; held messages: %d", p.Held)
	}
	return "handled"
}

// next is the SQL of Partition.Next, of a partition p and its lease l.
const next = `CASE WHEN p.until IS NOT NULL THEN
  greatest(least(CASE WHEN l.topic_id = p.topic_id THEN l.watermark + 1 ELSE p.until END, p.until), p.from_offset) END`

const listRebuilds = `
SELECT r.id, r.consumer_group, r.generation,
       CASE WHEN @id <> 0 THEN r.handlers ELSE ARRAY(SELECT left(name, 500) FROM unnest(r.handlers[1:100]) AS name) END, r.from_time, r.emit, r.started_at, r.cancelled_at, r.finished_at,
       count(p.topic), count(p.until),
       coalesce(sum(CASE WHEN r.cancelled_at IS NOT NULL THEN p.from_offset WHEN r.finished_at IS NULL THEN ` + next + ` ELSE greatest(p.until, p.from_offset) END - p.from_offset), 0)::bigint,
       coalesce(sum(greatest(p.until, p.from_offset) - p.from_offset), 0)::bigint
FROM troupe.rebuilds AS r
LEFT JOIN troupe.rebuild_partitions AS p ON p.rebuild = r.id
LEFT JOIN troupe.leases AS l ON l.consumer_group = r.consumer_group AND l.topic = p.topic AND l.partition = p.partition
WHERE @id::bigint = 0 OR r.id = @id
GROUP BY r.id
ORDER BY r.id DESC
LIMIT 201`

func (d Desk) read(ctx context.Context, id int64) (all []Rebuild, more bool, err error) {
	rows, err := d.Pool.Query(ctx, listRebuilds, pg.Args{"id": id})
	if err != nil {
		return nil, false, admin.Explain(err, rightsPage)
	}
	all, more, err = admin.Collect(rows, 200, pgx.RowToStructByPos[Rebuild])
	return all, more, admin.Explain(err, rightsPage)
}

// List returns the newest 200 rebuilds, the newest first, or fewer if they have admin.PageBytes before. more reports whether there are older ones.
func (d Desk) List(ctx context.Context) (all []Rebuild, more bool, err error) { return d.read(ctx, 0) }

// mostPartitions limits the partitions that Show returns. Rebuild.Partitions counts all.
const mostPartitions = 10_000

// Show returns a rebuild with its partitions, and its last 20 changes, the latest first. It returns fewer than 10,000 partitions if they have
// admin.PageBytes before.
func (d Desk) Show(ctx context.Context, id int64) (r Rebuild, partitions []Partition, changes []admin.Change, err error) {
	all, _, err := d.read(ctx, id)
	switch {
	case err != nil:
		return r, nil, nil, err
	case len(all) == 0:
		return r, nil, nil, fmt.Errorf("rebuild %d: %w", id, ErrNotFound)
	}
	if partitions, err = d.Partitions(ctx, id, mostPartitions); err != nil {
		return all[0], nil, nil, err
	}
	rows, err := d.Pool.Query(ctx, `
SELECT at, left(actor, 200), role, action, left(reason, 2000), left(change, 2000)
FROM troupe.rebuild_changes
WHERE rebuild = @id
ORDER BY position DESC
LIMIT 20`, pg.Args{"id": id})
	if err == nil {
		changes, err = pgx.CollectRows(rows, pgx.RowToStructByPos[admin.Change])
	}
	return all[0], partitions, changes, admin.Explain(err, rightsPage)
}

// Partitions returns the first partitions of a rebuild: at most limit of them, and fewer if they have admin.PageBytes before.
func (d Desk) Partitions(ctx context.Context, id int64, limit int) ([]Partition, error) {
	rows, err := d.Pool.Query(ctx, `
SELECT left(p.topic, 249), p.partition, p.from_offset, `+next+`, p.until, left(coalesce(l.owner, ''), 500),
       (SELECT count(*) FROM troupe.held AS h WHERE h.consumer_group = r.consumer_group AND h.topic = p.topic AND h.partition = p.partition),
       waits.letters
FROM troupe.rebuilds AS r
CROSS JOIN troupe.unsettled_letters(r.consumer_group) AS waits (letters)
JOIN troupe.rebuild_partitions AS p ON p.rebuild = r.id
LEFT JOIN troupe.leases AS l ON l.consumer_group = r.consumer_group AND l.topic = p.topic AND l.partition = p.partition
WHERE r.id = @id
ORDER BY p.topic, p.partition
LIMIT @limit`, pg.Args{"id": id, "limit": limit})
	if err != nil {
		return nil, admin.Explain(err, rightsPage)
	}
	partitions, _, err := admin.Collect(rows, limit, pgx.RowToStructByPos[Partition])
	return partitions, admin.Explain(err, rightsPage)
}

// ErrWaits is wrapped by the error about a rebuild of which partitions would wait.
var ErrWaits = errors.New("the rebuild would wait")

// Start inserts a planned rebuild. The members of the group begin it within seconds, or, with p.Wait, when they can. Without p.Wait it
// refuses a rebuild of which partitions would wait: the messages that its handlers get meanwhile are handled again.
func (d Desk) Start(ctx context.Context, p Plan, by admin.Actor) (id int64, err error) {
	if err := by.CheckReasoned(); err != nil {
		return 0, err
	}
	err = d.inTx(ctx, func(tx pgx.Tx) error {
		if err := p.blocking(ctx, tx); err != nil {
			return err
		}
		if !p.Wait && p.Held+p.DeadLetters > 0 {
			return fmt.Errorf("%w: held messages: %d, dead letters of the group that are open, or redriven and not handled yet: %d", ErrWaits, p.Held, p.DeadLetters)
		}
		err := tx.QueryRow(ctx, `
INSERT INTO troupe.rebuilds (consumer_group, generation, handlers, from_time, emit)
SELECT @group, coalesce(max(generation), 0) + 1, @handlers, @from, @emit FROM troupe.rebuilds WHERE consumer_group = @group
RETURNING id`, pg.Args{"group": p.Group, "handlers": p.Handlers, "from": p.From, "emit": p.Emit}).Scan(&id)
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "23505" { // unique_violation
			return fmt.Errorf("group %s has a rebuild that has not finished: see troupe rebuild list", p.Group)
		}
		if err != nil {
			return err
		}
		var b pgx.Batch
		for _, of := range p.Partitions {
			b.Queue("INSERT INTO troupe.rebuild_partitions (rebuild, topic, partition, topic_id, handlers, from_offset) VALUES ($1, $2, $3, $4, $5, $6)",
				id, of.Topic, of.Partition, of.topicID, of.handlers, of.From)
		}
		record(&b, id, "start", by, p.words())
		return tx.SendBatch(ctx, &b).Close()
	})
	return id, err
}

// words describes the plan for the record.
func (p Plan) words() string {
	text := fmt.Sprintf("%s from %s on, without writes to the outbox", strings.Join(p.Handlers, ", "), p.From.UTC().Format(time.RFC3339))
	if p.Emit {
		text = strings.Replace(text, "without", "with", 1)
	}
	return text
}

// Cancel ends a rebuild. Each partition continues with the message that would be its next without the rebuild, as soon as its owner takes
// the lease again; the messages that were handled again stay handled. It waits for no member: the group may have dropped a topic.
func (d Desk) Cancel(ctx context.Context, id int64, by admin.Actor) error {
	if err := by.CheckReasoned(); err != nil {
		return err
	}
	return d.inTx(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
UPDATE troupe.rebuilds SET cancelled_at = clock_timestamp(), finished_at = clock_timestamp() WHERE id = @id AND finished_at IS NULL`, pg.Args{"id": id})
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("rebuild %d is not running: see troupe rebuild list", id)
		}
		var b pgx.Batch
		record(&b, id, "cancel", by, "cancelled")
		return tx.SendBatch(ctx, &b).Close()
	})
}

// record queues the insertion of a row of troupe.rebuild_changes.
func record(b *pgx.Batch, id int64, action string, by admin.Actor, change string) {
	b.Queue("INSERT INTO troupe.rebuild_changes (actor, action, reason, rebuild, change) VALUES ($1, $2, $3, $4, $5)", by.Name, action, by.Reason, id, change)
}

func (d Desk) inTx(ctx context.Context, do func(pgx.Tx) error) error {
	return admin.InTx(ctx, d.Pool, rightsPage, do)
}
