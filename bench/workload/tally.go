package workload

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/bench/harness"
)

// A Result holds the figures of one scenario. The database is the one that there is at the end: after a failover, of the new primary.
type Result struct {
	Rows      float64 // rows whose commit was acknowledged, or commands or sagas
	Gone      float64 // of these, rows that the database does not have
	Ahead     float64 // published rows that the database does not have
	Lost      float64 // rows of the database that were not published
	Repeated  float64 // further copies with the same id
	Doubled   float64 // further effects of a command or of a saga's step, or events of the same cause with another id
	Reordered float64 // first copies that came after a later row of their key
	Seconds   float64 // from a failure to the first publication of a row that was written after it
	Stalled   float64 // longest time in seconds in which the relay published nothing
	Waited    float64 // longest time in seconds from the write of a row, a command or a saga until its last message was read
}

// A tally holds the records that were read.
type tally struct {
	mu      sync.Mutex
	rows    map[uuid.UUID]int // how often each id came
	records []record          // first copies, in the order of each partition
}

type record struct {
	row
	at   time.Time // when it was published
	read time.Time
}

// read reads records until ctx ends.
func (t *tally) read(ctx context.Context, client *kgo.Client) {
	for ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			var id uuid.UUID
			for _, h := range r.Headers {
				if h.Key == "ce_id" {
					id, _ = uuid.ParseBytes(h.Value)
				}
			}
			number, _ := strconv.ParseInt(string(r.Value), 10, 64)
			t.add(record{row{id, string(r.Key), number}, r.Timestamp, time.Now()})
		})
	}
}

func (t *tally) add(r record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows = make(map[uuid.UUID]int)
	}
	if t.rows[r.id]++; t.rows[r.id] == 1 {
		t.records = append(t.records, r)
	}
}

// count returns the number of rows that were read at least once.
func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rows)
}

// firstAfter returns the seconds from a time to the first publication of a row that was written after it.
func (t *tally) firstAfter(from time.Time) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	least := 0.0
	for _, r := range t.records {
		if r.written().After(from) {
			if after := r.at.Sub(from).Seconds(); least == 0 || after < least {
				least = max(after, 0.001)
			}
		}
	}
	return least
}

// settle waits until each row of the database was published, or no record has come for a minute, and counts.
func (t *tally) settle(ctx context.Context, url string, l *rows) (r Result, err error) {
	there, err := written(ctx, url)
	if err != nil {
		return r, err
	}
	last, since := -1, time.Now()
	for len(there) > 0 && t.missing(there) > 0 && time.Since(since) < time.Minute {
		if now := t.count(); now != last {
			last, since = now, time.Now()
		}
		if err := harness.Sleep(ctx, 100*time.Millisecond); err != nil {
			return r, err
		}
	}
	if err := harness.Sleep(ctx, 2*time.Second); err != nil { // for repeats
		return r, err
	}
	r = t.judge(there)
	l.committed.Range(func(id, _ any) bool {
		r.Rows++
		if _, ok := there[id.(uuid.UUID)]; !ok {
			r.Gone++
		}
		return true
	})
	return r, nil
}

// written returns the rows of the database.
func written(ctx context.Context, url string) (map[uuid.UUID]struct{}, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, "SELECT id FROM written")
	if err != nil {
		return nil, err
	}
	there := make(map[uuid.UUID]struct{})
	var id uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		there[id] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the rows that were written: %w", err)
	}
	return there, nil
}

func (t *tally) missing(there map[uuid.UUID]struct{}) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range there {
		if t.rows[id] == 0 {
			n++
		}
	}
	return n
}

func (t *tally) judge(there map[uuid.UUID]struct{}) (r Result) {
	r.Lost = float64(t.missing(there))
	t.mu.Lock()
	defer t.mu.Unlock()
	newest := make(map[string]int64)
	for _, one := range t.records {
		if _, ok := there[one.id]; !ok {
			r.Ahead++
		}
		if one.number < newest[one.key] {
			r.Reordered++
		}
		newest[one.key] = max(newest[one.key], one.number)
		r.Waited = max(r.Waited, one.read.Sub(one.written()).Seconds())
		r.Repeated += float64(t.rows[one.id] - 1)
	}
	return r
}
