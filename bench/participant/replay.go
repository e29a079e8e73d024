package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/troupe-go/troupe/bench/harness"
)

// measureReplay measures reading a topic again from its start, by a group that has handled all of it: once with its stored
// offsets, and once with only the messages' identities, as after a restore of the topic.
func (s *stage) measureReplay(ctx context.Context) error {
	from, err := s.fill(ctx, s.replay, 0)
	if err != nil {
		return err
	}
	defer s.remove(from)
	table.Heading()
	var first, again, known []result
	for range s.rounds {
		r, err := s.replays(ctx, from)
		if err != nil {
			return err
		}
		first, again, known = append(first, r[0]), append(again, r[1]), append(known, r[2])
	}
	a, b, c := table.Median(first), table.Median(again), table.Median(known)
	table.Show("the first time", a)
	table.Show("again, known by offsets", b)
	table.Show("again, known by identities", c)
	fmt.Printf("again: %.1f x the first rate by offsets, %.1f x by identities\n", b.rate()/a.rate(), c.rate()/a.rate())
	return nil
}

// replays reads the topic three times: for the first time, with stored offsets, and without them.
func (s *stage) replays(ctx context.Context, from *filled) (results [3]result, err error) {
	y := s.NewSystem(ctx)
	defer func() { err = errors.Join(err, y.Close()) }()
	url, err := y.Database(ctx, "")
	if err != nil {
		return results, err
	}
	k := task{
		Kind: byTroupe, URL: url, Hop: from.hop.String(), Group: s.Name("group"), Partitions: from.partitions,
		Batch: 100, Concurrency: partitions, Messages: from.messages, Offsets: true,
	}
	for i := range results {
		if i == 2 {
			err = harness.Execute(ctx, url, "TRUNCATE troupe.leases, troupe.inbox_offsets")
		}
		if i > 0 && err == nil {
			err = s.rewind(ctx, from, k.Group)
		}
		if err != nil {
			return results, err
		}
		if results[i], err = s.run(ctx, k); err != nil {
			return results, err
		}
		if err := check(ctx, url, from.messages); err != nil {
			return results, err
		}
	}
	return results, nil
}
