package repair

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
)

// An UnreadableBatch is a batch of a topic that unpacks to more than a participant, or a watcher, accepts. It blocks its partition
// until it is skipped. Its JSON is the output of troupe batch list.
type UnreadableBatch struct {
	Place   Place      `json:"place"`    // of its first offset
	Next    int64      `json:"next"`     // the first offset behind it
	Bytes   int64      `json:"bytes"`    // compressed
	Group   string     `json:"group"`    // consumer group; of a watcher: watch/ and the flow
	TopicID uuid.UUID  `json:"topic_id"` // Kafka's id of the topic
	Found   time.Time  `json:"found"`
	Skipped *time.Time `json:"skipped"` // null: it blocks its partition
	Actor   string     `json:"actor"`   // as the caller of Skip supplied it
	Role    string     `json:"role"`    // the database role of that call
	Reason  string     `json:"reason"`
}

// batchColumns are the columns that fields names the scan targets of.
const batchColumns = `b.topic, b.partition, b."offset", b.next_offset, b.bytes, b.consumer_group, b.topic_id, b.found_at, b.skipped_at`

// recordBatch has the message id of a message without one at the batch's first offset.
const recordBatch = `
INSERT INTO troupe.repairs (actor, action, reason, consumer_group, topic, partition, "offset", message_id)
VALUES (@actor, @action, @reason, @group, @topic, @partition::integer, @offset::bigint,
        @topic_id::uuid || '/' || @partition::integer || '/' || @offset::bigint)`

// Batches returns the unreadable batches that participants of this database found, the newest first, at most limit.
func (d *Desk) Batches(ctx context.Context, limit int) ([]UnreadableBatch, error) {
	all, err := query(ctx, d, `
		SELECT `+batchColumns+`, coalesce(r.actor, ''), coalesce(r.role, ''), coalesce(r.reason, '')
		FROM troupe.unreadable_batches AS b
		LEFT JOIN LATERAL (
		  SELECT left(actor, 200) AS actor, role, left(reason, 2000) AS reason
		  FROM troupe.repairs
		  WHERE message_id = b.topic_id || '/' || b.partition || '/' || b."offset" AND action = @action AND consumer_group = b.consumer_group
		  ORDER BY position DESC
		  LIMIT 1) AS r ON true
		ORDER BY b.found_at DESC, b.consumer_group, b.topic, b.partition, b."offset"
		LIMIT @limit`, pgx.NamedArgs{"limit": limit, "action": actionSkip}, func(row pgx.CollectableRow) (b UnreadableBatch, err error) {
		return b, row.Scan(append(b.fields(), &b.Actor, &b.Role, &b.Reason)...)
	})
	if err != nil {
		return nil, fmt.Errorf("list unreadable batches: %w", err)
	}
	return all, nil
}

// fields returns the scan targets of batchColumns.
func (b *UnreadableBatch) fields() []any {
	return []any{&b.Place.Topic, &b.Place.Partition, &b.Place.Offset, &b.Next, &b.Bytes, &b.Group, (*[16]byte)(&b.TopicID), &b.Found, &b.Skipped}
}

// Skip marks an unreadable batch, so that the participant continues behind it, now or when it runs. All messages of the batch are
// lost to the group; the messages before and behind it are not. group is required if more than one group of this database found
// the batch.
//
// The error wraps ErrNotFound if no participant found such a batch, and ErrNotOpen if it was skipped before.
func (d *Desk) Skip(ctx context.Context, p Place, group string, by admin.Actor) (b UnreadableBatch, err error) {
	err = by.CheckReasoned()
	if err == nil {
		err = d.act(ctx, func(tx pgx.Tx) (err error) {
			b, err = skip(ctx, tx, p, group, by)
			return err
		})
	}
	if err != nil {
		return UnreadableBatch{}, fmt.Errorf("skip batch %s: %w", p, err)
	}
	return b, nil
}

// Batch returns the batch that Skip would skip, with the same errors.
func (d *Desk) Batch(ctx context.Context, p Place, group string) (b UnreadableBatch, err error) {
	if b, err = openBatch(ctx, d.pool, "", p, group); err != nil {
		return UnreadableBatch{}, fmt.Errorf("batch %s: %w", p, explain(err))
	}
	return b, nil
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func openBatch(ctx context.Context, from querier, lock string, p Place, group string) (b UnreadableBatch, err error) {
	rows, err := from.Query(ctx, `
		SELECT `+batchColumns+`
		FROM troupe.unreadable_batches AS b
		WHERE b.topic = @topic AND b.partition = @partition AND b."offset" = @offset AND (@group = '' OR b.consumer_group = @group)
		ORDER BY b.found_at DESC
		`+lock, pgx.NamedArgs{"topic": p.Topic, "partition": p.Partition, "offset": p.Offset, "group": group})
	if err != nil {
		return b, err
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b UnreadableBatch, err error) { return b, row.Scan(b.fields()...) })
	switch {
	case err != nil:
		return b, err
	case len(found) == 0:
		return b, fmt.Errorf("%w: troupe batch list has the batches that block a partition", ErrNotFound)
	}
	b = found[0] // of the newest topic of that name
	for _, other := range found[1:] {
		if other.Group != b.Group {
			return b, fmt.Errorf("more than one group found it (%s, %s): name the group", b.Group, other.Group)
		}
	}
	if b.Skipped != nil {
		return b, fmt.Errorf("%w: it was skipped at %s", ErrNotOpen, b.Skipped.UTC().Format(time.RFC3339))
	}
	return b, nil
}

func skip(ctx context.Context, tx pgx.Tx, p Place, group string, by admin.Actor) (b UnreadableBatch, err error) {
	if b, err = openBatch(ctx, tx, "FOR UPDATE", p, group); err != nil {
		return b, err
	}
	args := recordArgs(actionSkip, by)
	args["group"], args["topic"], args["topic_id"], args["partition"], args["offset"] = b.Group, p.Topic, b.TopicID, p.Partition, p.Offset
	err = tx.QueryRow(ctx, `
		UPDATE troupe.unreadable_batches
		SET skipped_at = clock_timestamp()
		WHERE consumer_group = @group AND topic_id = @topic_id AND partition = @partition AND "offset" = @offset
		RETURNING skipped_at, session_user`, args).Scan(&b.Skipped, &b.Role)
	if err != nil {
		return b, err
	}
	b.Actor, b.Reason = by.Name, by.Reason
	_, err = tx.Exec(ctx, recordBatch, args)
	return b, err
}
