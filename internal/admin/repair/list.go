package repair

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
)

// A DeadLetter is a message that is not retried any more. Its JSON is the output of troupe dlq list.
type DeadLetter struct {
	ID            uuid.UUID `json:"id"`
	Status        Status    `json:"status"`
	Cause         string    `json:"cause"`
	Group         string    `json:"group"`
	Handler       string    `json:"handler"`
	Class         string    `json:"class"`
	Error         string    `json:"error"`    // of the last attempt
	Attempts      int       `json:"attempts"` // number of failed runs
	Redrives      int       `json:"redrives"` // number of redrives before it failed
	Topic         string    `json:"topic"`
	Partition     int32     `json:"partition"`
	Offset        int64     `json:"offset"`
	Key           Key       `json:"key"`
	MessageID     string    `json:"message_id"`
	Type          string    `json:"type"`
	CorrelationID string    `json:"correlation_id"`
	Bytes         int       `json:"bytes"` // of the original payload
	Edited        bool      `json:"edited"`
	FirstFailed   time.Time `json:"first_failed"`
	LastFailed    time.Time `json:"last_failed"`
}

const letterColumns = `id, status, cause, consumer_group, handler, error_class, error, attempts, redrives, topic, partition,
       "offset", key, message_id, message_type, correlation_id, coalesce(length(payload), 0), edited_payload IS NOT NULL,
       first_failed_at, last_failed_at`

// fields returns the scan targets of letterColumns.
func (l *DeadLetter) fields() []any {
	return []any{
		(*[16]byte)(&l.ID), &l.Status, &l.Cause, &l.Group, &l.Handler, &l.Class, &l.Error, &l.Attempts, &l.Redrives, &l.Topic,
		&l.Partition, &l.Offset, (*[]byte)(&l.Key), &l.MessageID, &l.Type, &l.CorrelationID, &l.Bytes, &l.Edited, &l.FirstFailed, &l.LastFailed,
	}
}

// List returns a page of dead letters in the order in which they failed. A page of large keys has fewer of them. next is the cursor of the next page, "" after the last.
func (d *Desk) List(ctx context.Context, f Filter, p Page) (letters []DeadLetter, next string, err error) {
	limit, err := p.limit()
	if err == nil {
		err = f.Validate()
	}
	if err != nil {
		return nil, "", fmt.Errorf("list dead letters: %w", err)
	}
	where := f.conditions()
	if p.After != "" {
		at, id, err := admin.ReadUUIDCursor(p.After)
		if err != nil {
			return nil, "", fmt.Errorf("list dead letters: %w", err)
		}
		where.add("(last_failed_at, id) > (@after_at, @after_id)", "after_at", at)
		where.args["after_id"] = [16]byte(id)
	}
	where.args["limit"] = limit + 1
	letters, more, err := page(ctx, d, `
		SELECT `+letterColumns+`
		FROM troupe.dead_letters
		WHERE `+where.String()+`
		ORDER BY last_failed_at, id
		LIMIT @limit`, where.args, limit, func(row pgx.CollectableRow) (l DeadLetter, err error) { return l, row.Scan(l.fields()...) })
	if err != nil {
		return nil, "", fmt.Errorf("list dead letters: %w", err)
	}
	if more {
		last := letters[len(letters)-1]
		next = admin.TimeCursor(last.LastFailed, last.ID.String())
	}
	return letters, next, nil
}

// Count returns how many dead letters the filter selects.
func (d *Desk) Count(ctx context.Context, f Filter) (n int, err error) {
	if err := f.Validate(); err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	where := f.conditions()
	err = d.pool.QueryRow(ctx, "SELECT count(*) FROM troupe.dead_letters WHERE "+where.String(), where.args).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count dead letters: %w", explain(err))
	}
	return n, nil
}
