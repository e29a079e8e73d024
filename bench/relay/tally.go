package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
)

// A tally counts the rows of a load that a consumer has read: how often each row came, and whether rows of one key came in order.
type tally struct {
	load
	seen       []uint8
	newest     []int32 // by key: the last row whose first copy came, plus one
	distinct   int
	doubled    int
	disordered int
	first      time.Time // when the broker appended the first and the last
	last       time.Time
}

func newTally(l load) *tally {
	return &tally{load: l, seen: make([]uint8, l.rows), newest: make([]int32, min(l.keys, l.rows))}
}

func (t *tally) lost() int { return t.rows - t.distinct }

// add counts a row. isNew is true for the row's first copy.
func (t *tally) add(i int, at time.Time) (isNew bool, err error) {
	if i >= t.rows {
		return false, fmt.Errorf("row %d of %d came", i, t.rows)
	}
	if t.first.IsZero() || at.Before(t.first) {
		t.first = at
	}
	if at.After(t.last) {
		t.last = at
	}
	if t.seen[i] > 0 {
		t.doubled++
		return false, nil
	}
	t.seen[i] = 1
	t.distinct++
	if newest := &t.newest[i%t.keys]; int32(i) < *newest {
		t.disordered++
	} else {
		*newest = int32(i) + 1
	}
	return true, nil
}

// record counts a record of the broker.
func (t *tally) record(r *kgo.Record) (i int, isNew bool, err error) {
	for _, h := range r.Headers {
		if h.Key == "ce_id" || h.Key == "id" {
			if i, err = rowOf(h.Value); err == nil {
				isNew, err = t.add(i, r.Timestamp)
			}
			return i, isNew, err
		}
	}
	return 0, false, fmt.Errorf("a record of %s without an id", r.Topic)
}

// quiet is the time without a new record after which missing rows count as lost.
const quiet = time.Minute

// read counts the rows in the topics, until all rows and no further records have come, or none come any more.
func (b *bed) read(ctx context.Context, l load) (*tally, error) {
	client, err := b.consumer()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	t := newTally(l)
	var failed error
	for last := time.Now(); ; {
		patience := quiet
		if t.distinct == t.rows {
			patience = 500 * time.Millisecond
		}
		if time.Since(last) > patience {
			return t, nil
		}
		wait, cancel := context.WithTimeout(ctx, patience)
		fetches := client.PollFetches(wait)
		cancel()
		if ctx.Err() != nil {
			return t, ctx.Err()
		}
		fetches.EachRecord(func(r *kgo.Record) {
			last = time.Now()
			if _, _, err := t.record(r); err != nil && failed == nil {
				failed = err
			}
		})
		if failed != nil {
			return t, failed
		}
	}
}

// consumer reads the topics of a run from their beginnings, only committed messages.
func (b *bed) consumer() (*kgo.Client, error) {
	return kafka.NewClient(b.addrs, kgo.ConsumeTopics(b.topics...), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
}
