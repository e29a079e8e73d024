package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/kafka"
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

// untilDone calls read at every tick until it reports done. It returns false if the state that read returns has not changed for limit.
func untilDone(ctx context.Context, tick, limit time.Duration, read func() (state any, done bool, err error)) (bool, error) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var last any
	var since time.Time
	for {
		state, done, err := read()
		if done || err != nil {
			return done, err
		}
		if since.IsZero() || state != last {
			last, since = state, time.Now()
		}
		if time.Since(since) > limit {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-ticker.C:
		}
	}
}

// untilEnded waits until total orders have ended. It returns false if nothing has changed for limit.
func untilEnded(ctx context.Context, pool *pgxpool.Pool, counting string, total int, posted func() int, limit time.Duration, show *progress) (bool, error) {
	return untilDone(ctx, 100*time.Millisecond, limit, func() (any, bool, error) {
		c, err := readCounts(ctx, pool, counting)
		if err != nil {
			return nil, false, err
		}
		accepted := posted()
		show.showCounts(accepted, total, c)
		return [2]int64{int64(accepted), c.Decisions}, accepted >= total && c.Running == 0, nil
	})
}

// unknownLeft is returned while the number of unread messages is unknown, since a broker is absent.
const unknownLeft = int64(-1)

// untilQuiet waits until every outbox is empty, no message is held and, if copies were sent, every message is consumed. It
// returns false if nothing has changed for limit.
func untilQuiet(ctx context.Context, p pools, client *kgo.Client, flow string, limit time.Duration) (bool, error) {
	return untilDone(ctx, 50*time.Millisecond, limit, func() (any, bool, error) {
		var left int64
		r := &rowReader{ctx: ctx}
		for _, service := range services {
			for _, q := range readAll[queueRow](r, p[service], queuesSQL) {
				left += q.Outbox + q.Held
			}
		}
		if client != nil && left == 0 && r.err == nil {
			var unread map[string]int64
			unread, r.err = readUnread(ctx, client, flow)
			for _, n := range unread {
				left += n
			}
			if errors.Is(r.err, kafka.ErrIncomplete) { // the groups of that broker move to another one soon
				return unknownLeft, false, nil
			}
		}
		return left, left == 0 && r.err == nil, r.err
	})
}

// whereStuck returns the states of the orders that have not ended, and the messages that wait in each database.
func whereStuck(ctx context.Context, p pools) string {
	var b strings.Builder
	b.WriteString(listCounts(ctx, p, "order", "orders", `
		SELECT state || ' (' || status || ')', count(*) FROM order_flow WHERE ended_at IS NULL GROUP BY 1 ORDER BY 2 DESC`))
	for _, service := range services {
		b.WriteString(listCounts(ctx, p, service, service+" outbox", `
			SELECT topic || ', ' || status || coalesce(': ' || last_error, ''), count(*) FROM troupe.outbox_status GROUP BY 1`))
		b.WriteString(listCounts(ctx, p, service, service+" held", `
			SELECT topic || ': ' || coalesce(last_error, 'behind its key'), count(*) FROM troupe.held GROUP BY 1`))
		b.WriteString(listCounts(ctx, p, service, service+" dead letters", `
			SELECT message_type || ': ' || error, count(*) FROM troupe.dead_letters GROUP BY 1`))
	}
	return b.String()
}

// listCounts returns a line for each row of a query of texts and counts.
func listCounts(ctx context.Context, p pools, service, what, sql string) string {
	r := &rowReader{ctx: ctx}
	var b strings.Builder
	for _, row := range readAll[struct {
		Text  string
		Count int64
	}](r, p[service], sql) {
		_, _ = fmt.Fprintf(&b, "  %s: %d × %.300s\n", what, row.Count, row.Text)
	}
	if r.err != nil {
		_, _ = fmt.Fprintf(&b, "  %s: %v\n", what, r.err)
	}
	return b.String()
}
