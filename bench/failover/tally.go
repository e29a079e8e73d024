package main

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

// A result holds the figures of one scenario.
type result struct {
	version   string
	rows      float64 // rows whose commit was acknowledged
	gone      float64 // of these, rows that the new primary does not have
	ahead     float64 // published rows that the new primary does not have
	lost      float64 // rows of the new primary that were not published
	repeated  float64 // further copies with the same id
	doubled   float64 // further effects of a command or of a saga's step, or events of the same cause with another id
	reordered float64 // first copies that came after a later row of their key
	seconds   float64 // from the promotion to the first publication of a row that was written after it
}

// A tally holds the records that were read.
type tally struct {
	mu      sync.Mutex
	rows    map[uuid.UUID]int // how often each id came
	records []record          // first copies, in the order of each partition
}

type record struct {
	row
	at time.Time
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
			t.add(record{row{id, string(r.Key), number}, r.Timestamp})
		})
	}
}

func (t *tally) add(r record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows[r.id]++; t.rows[r.id] == 1 {
		t.records = append(t.records, r)
	}
}

func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rows)
}

// firstAfter returns the seconds from a time to the first publication of a row that was written after it. An id of version 7 has
// the time in which its row was written.
func (t *tally) firstAfter(from time.Time) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	least := 0.0
	for _, r := range t.records {
		seconds, nanoseconds := r.id.Time().UnixTime()
		if written := time.Unix(seconds, nanoseconds); written.After(from) {
			if after := r.at.Sub(from).Seconds(); least == 0 || after < least {
				least = max(after, 0.001)
			}
		}
	}
	return least
}

// settle waits until each row of the new primary was published, or no record has come for a while, and counts.
func settle(ctx context.Context, p *pair, t *tally, l *loading) (r result, err error) {
	there, err := written(ctx, p)
	if err != nil {
		return r, err
	}
	last, since := -1, time.Now()
	for len(there) > 0 && t.missing(there) > 0 && time.Since(since) < 30*time.Second {
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
		r.rows++
		if _, ok := there[id.(uuid.UUID)]; !ok {
			r.gone++
		}
		return true
	})
	return r, nil
}

// written returns the rows of the new primary.
func written(ctx context.Context, p *pair) (map[uuid.UUID]struct{}, error) {
	conn, err := pgx.Connect(ctx, p.b.URL(database))
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
		return nil, fmt.Errorf("read what was written: %w", err)
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

// judge compares the records with the rows of the new primary.
func (t *tally) judge(there map[uuid.UUID]struct{}) (r result) {
	r.lost = float64(t.missing(there))
	t.mu.Lock()
	defer t.mu.Unlock()
	newest := make(map[string]int64)
	for _, one := range t.records {
		if _, ok := there[one.id]; !ok {
			r.ahead++
		}
		if one.number < newest[one.key] {
			r.reordered++
		}
		newest[one.key] = max(newest[one.key], one.number)
		r.repeated += float64(t.rows[one.id] - 1)
	}
	return r
}
