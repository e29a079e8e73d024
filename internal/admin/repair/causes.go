package repair

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin"
)

// A Cause groups dead letters with the same cause. Its JSON is the output of troupe dlq list.
type Cause struct {
	ID          string    `json:"cause"` // 12 hex digits, the same for the same cause in every database
	Group       string    `json:"group"`
	Class       string    `json:"class"`
	Handler     string    `json:"handler"`
	Fingerprint string    `json:"error"` // the error, with a star for each part that belongs to one message alone
	Count       int       `json:"count"`
	Keys        int       `json:"keys"`         // the number of distinct keys; messages without a key count as none
	FailedAgain int       `json:"failed_again"` // dead letters that were redriven before
	First       time.Time `json:"first_failed"` // the earliest first failure
	Last        time.Time `json:"last_failed"`  // the latest last failure
	Example     uuid.UUID `json:"example"`      // the dead letter that failed last
	Error       string    `json:"example_error"`
}

// Text returns the text to show for the cause: the error of a single dead letter, or Fingerprint for several. Either has at most
// 300 characters.
func (c Cause) Text() string {
	if c.Count != 1 {
		return c.Fingerprint
	}
	text := []rune(c.Error)
	return string(text[:min(len(text), 300)])
}

// Causes groups dead letters by cause, the largest group first. next is as for List; while groups grow, a group may appear on two
// pages.
func (d *Desk) Causes(ctx context.Context, f Filter, p Page) (causes []Cause, next string, err error) {
	limit, err := p.limit()
	if err == nil {
		err = f.Validate()
	}
	if err != nil {
		return nil, "", fmt.Errorf("group dead letters: %w", err)
	}
	where, having := f.conditions(), ""
	if p.After != "" {
		count, cause, err := admin.ReadNumberCursor(p.After)
		if err != nil {
			return nil, "", fmt.Errorf("group dead letters: %w", err)
		}
		having = "HAVING (-count(*), cause) > (-@after_count::bigint, @after_cause::text)"
		where.args["after_count"], where.args["after_cause"] = count, cause
	}
	where.args["limit"] = limit + 1
	of := where.String()
	// Values that only the groups of a page need are computed after the page is cut.
	causes, more, err := page(ctx, d, `
		SELECT g.cause, l.consumer_group, l.error_class, l.handler, troupe.error_fingerprint(l.error), g.count, m.keys,
		       m.failed_again, m.first, l.last_failed_at, l.id, l.error
		FROM (
		  SELECT cause, count(*)
		  FROM troupe.dead_letters
		  WHERE `+of+`
		  GROUP BY cause
		  `+having+`
		  ORDER BY count(*) DESC, cause
		  LIMIT @limit) AS g
		CROSS JOIN LATERAL (
		  SELECT count(DISTINCT key) AS keys, count(*) FILTER (WHERE redrives > 0) AS failed_again, min(first_failed_at) AS first
		  FROM troupe.dead_letters
		  WHERE cause = g.cause AND `+of+`) AS m
		CROSS JOIN LATERAL (
		  SELECT *
		  FROM troupe.dead_letters
		  WHERE cause = g.cause AND `+of+`
		  ORDER BY last_failed_at DESC, id DESC
		  LIMIT 1) AS l
		ORDER BY g.count DESC, g.cause`, where.args, limit, scanCause)
	if err != nil {
		return nil, "", fmt.Errorf("group dead letters: %w", err)
	}
	if more {
		last := causes[len(causes)-1]
		next = admin.NumberCursor(int64(last.Count), last.ID)
	}
	return causes, next, nil
}

func scanCause(row pgx.CollectableRow) (c Cause, err error) {
	return c, row.Scan(&c.ID, &c.Group, &c.Class, &c.Handler, &c.Fingerprint, &c.Count, &c.Keys, &c.FailedAgain, &c.First, &c.Last,
		(*[16]byte)(&c.Example), &c.Error)
}
