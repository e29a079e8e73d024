package run

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/demo"
)

// counts holds the number of orders by status, and the number of decisions on all of them; in a choreography Decisions is the
// number of orders that have ended.
type counts struct {
	Running, Completed, Compensated, Parked, Decisions int64
}

func (c counts) ended() int64 { return c.Completed + c.Compensated + c.Parked }

// countsSQL reads the order database.
var countsSQL = map[demo.Style]string{
	demo.Orchestration: `
		SELECT count(*) FILTER (WHERE status IN ('running', 'compensating')), count(*) FILTER (WHERE status = 'completed'),
		       count(*) FILTER (WHERE status = 'compensated'), count(*) FILTER (WHERE status = 'parked'),
		       coalesce(sum(version), 0)
		FROM troupe.sagas`,
	demo.Choreography: `
		SELECT count(*) FILTER (WHERE status = 'running'), count(*) FILTER (WHERE status = 'completed'),
		       count(*) FILTER (WHERE status = 'compensated'), count(*) FILTER (WHERE status = 'parked'),
		       count(*) FILTER (WHERE status <> 'running')
		FROM order_flow`,
}

func readCounts(ctx context.Context, pool *pgxpool.Pool, sql string) (c counts, err error) {
	err = pool.QueryRow(ctx, sql).Scan(&c.Running, &c.Completed, &c.Compensated, &c.Parked, &c.Decisions)
	if err != nil {
		return c, fmt.Errorf("read the order database: %w", err)
	}
	return c, nil
}

// A patience ends when nothing has changed for its limit.
type patience struct {
	limit time.Duration
	last  any
	since time.Time
}

func (p *patience) over(now any) bool {
	if p.since.IsZero() || p.last != now {
		p.last, p.since = now, time.Now()
	}
	return time.Since(p.since) > p.limit
}

const waitTick = 100 * time.Millisecond

// untilEnded waits until total orders have ended. It returns false if nothing has changed for limit.
func untilEnded(ctx context.Context, pool *pgxpool.Pool, counting string, total int, posted func() int, limit time.Duration, show *progress) (bool, error) {
	tick := time.NewTicker(waitTick)
	defer tick.Stop()
	p := patience{limit: limit}
	for {
		c, err := readCounts(ctx, pool, counting)
		if err != nil {
			return false, err
		}
		accepted := posted()
		show.tell(accepted, total, c)
		if accepted >= total && c.Running == 0 {
			return true, nil
		}
		if p.over([2]int64{int64(accepted), c.Decisions}) {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-tick.C:
		}
	}
}

// untilQuiet waits until every outbox is empty, no message is held and, if copies were sent, every message is consumed. It
// returns false if nothing has changed for limit.
func untilQuiet(ctx context.Context, p pools, client *kgo.Client, flow string, limit time.Duration) (bool, error) {
	tick := time.NewTicker(waitTick / 2)
	defer tick.Stop()
	patience := patience{limit: limit}
	for {
		var left int64
		for _, service := range services {
			queues, err := rows[queueRow](ctx, p[service], queuesSQL)
			if err != nil {
				return false, err
			}
			left += queues[0].Outbox + queues[0].Held
		}
		if client != nil && left == 0 {
			unread, err := readUnread(ctx, client, flow)
			if err != nil {
				return false, err
			}
			for _, n := range unread {
				left += n
			}
		}
		if left == 0 {
			return true, nil
		}
		if patience.over(left) {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-tick.C:
		}
	}
}

// whereStuck returns the states of the orders that have not ended, and the messages that wait in each database.
func whereStuck(ctx context.Context, p pools) string {
	var b strings.Builder
	b.WriteString(list(ctx, p, "order", "orders", `
		SELECT state || ' (' || status || ')', count(*) FROM order_flow WHERE ended_at IS NULL GROUP BY 1 ORDER BY 2 DESC`))
	for _, service := range services {
		b.WriteString(list(ctx, p, service, service+" outbox", `
			SELECT topic || ', ' || status || coalesce(': ' || last_error, ''), count(*) FROM troupe.outbox_status GROUP BY 1`))
		b.WriteString(list(ctx, p, service, service+" held", `
			SELECT topic || ': ' || coalesce(last_error, 'behind its key'), count(*) FROM troupe.held GROUP BY 1`))
		b.WriteString(list(ctx, p, service, service+" dead letters", `
			SELECT message_type || ': ' || error, count(*) FROM troupe.dead_letters GROUP BY 1`))
	}
	return b.String()
}

// list returns a line for each row of a query of texts and counts.
func list(ctx context.Context, p pools, service, what, sql string) string {
	found, err := p[service].Query(ctx, sql)
	if err != nil {
		return fmt.Sprintf("  %s: %v\n", what, err)
	}
	type row struct {
		Text  string
		Count int64
	}
	all, err := pgx.CollectRows(found, pgx.RowToStructByPos[row])
	if err != nil {
		return fmt.Sprintf("  %s: %v\n", what, err)
	}
	var b strings.Builder
	for _, r := range all {
		_, _ = fmt.Fprintf(&b, "  %s: %d × %.300s\n", what, r.Count, r.Text)
	}
	return b.String()
}
