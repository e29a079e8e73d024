package repair

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A Cause is what dead letters have in common. Its JSON is what troupe dlq list prints.
type Cause struct {
	ID          string    `json:"cause"` // 12 hex digits, the same for the same trouble in every database
	Group       string    `json:"group"`
	Class       string    `json:"class"`
	Handler     string    `json:"handler"`
	Fingerprint string    `json:"error"` // the error, with a star for what belongs to one message alone
	Count       int       `json:"count"`
	Keys        int       `json:"keys"`         // how many keys they are of; a message without a key counts as none
	FailedAgain int       `json:"failed_again"` // how many had been redriven before
	First       time.Time `json:"first_failed"` // the first failure of the first
	Last        time.Time `json:"last_failed"`  // the last failure of the last
	Example     uuid.UUID `json:"example"`      // the one that failed last
	Error       string    `json:"example_error"`
}

// Text is what to show of it: of a single one its own error, of several what they have in common, Fingerprint. Either is cut
// to 300 characters.
func (c Cause) Text() string {
	if c.Count != 1 {
		return c.Fingerprint
	}
	text := []rune(c.Error)
	return string(text[:min(len(text), 300)])
}

// Causes groups dead letters, the largest group first. Next is as for List; while groups grow, one may come twice.
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
		count, cause, err := p.after()
		n, numberErr := strconv.Atoi(count)
		if err == nil && numberErr != nil {
			err = fmt.Errorf("after %q: want what the page before gave as next", p.After)
		}
		if err != nil {
			return nil, "", fmt.Errorf("group dead letters: %w", err)
		}
		having = "HAVING (-count(*), cause) > (-@after_count::bigint, @after_cause::text)"
		where.args["after_count"], where.args["after_cause"] = n, cause
	}
	where.args["limit"] = limit + 1
	of := where.String()
	// What only a page's groups are asked for comes after the page is cut.
	causes, err = query(ctx, d, `
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
		ORDER BY g.count DESC, g.cause`, where.args, scanCause)
	if err != nil {
		return nil, "", fmt.Errorf("group dead letters: %w", err)
	}
	if len(causes) > limit {
		causes = causes[:limit]
		last := causes[limit-1]
		next = strconv.Itoa(last.Count) + "/" + last.ID
	}
	return causes, next, nil
}

func scanCause(row pgx.CollectableRow) (c Cause, err error) {
	return c, row.Scan(&c.ID, &c.Group, &c.Class, &c.Handler, &c.Fingerprint, &c.Count, &c.Keys, &c.FailedAgain, &c.First, &c.Last,
		(*[16]byte)(&c.Example), &c.Error)
}
