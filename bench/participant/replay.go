package main

import (
	"context"
	"fmt"
)

// measureReplay measures reading a topic again from its start, by a group that has handled all of it: once with its stored
// offsets, and once with only the messages' identities, as after a restore of the topic.
func measureReplay(ctx context.Context, s *stage) error {
	from, err := s.fill(ctx, partitions, s.replay, keys, 0)
	if err != nil {
		return err
	}
	defer s.remove(from)
	heading()
	var first, again, known []result
	for range s.rounds {
		a, b, c, err := s.replays(ctx, from)
		if err != nil {
			return err
		}
		first, again, known = append(first, a), append(again, b), append(known, c)
	}
	show("the first time", median(first))
	show("again, known by offsets", median(again))
	show("again, known by identities", median(known))
	fmt.Printf("again: %.1f x the first rate by offsets, %.1f x by identities\n",
		median(again).rate()/median(first).rate(), median(known).rate()/median(first).rate())
	return nil
}

func (s *stage) replays(ctx context.Context, from *filled) (first, again, known result, err error) {
	url, drop, err := s.database(ctx)
	if err != nil {
		return
	}
	defer drop()
	k := task{
		Kind: byTroupe, URL: url, Hop: from.hop.String(), Group: s.name("group"), Partitions: from.partitions,
		Batch: 100, Concurrency: partitions, Messages: from.messages, Offsets: true,
	}
	const forget = "TRUNCATE troupe.leases, troupe.inbox_offsets"
	steps := []struct {
		into   *result
		before func() error
	}{
		{&first, func() error { return nil }},
		{&again, func() error { return s.rewind(ctx, from, k.Group) }},
		{&known, func() error {
			if err := execute(ctx, url, forget); err != nil {
				return err
			}
			return s.rewind(ctx, from, k.Group)
		}},
	}
	for _, step := range steps {
		if err = step.before(); err != nil {
			return
		}
		if *step.into, err = s.run(ctx, k); err != nil {
			return
		}
		if err = check(ctx, url, from.messages); err != nil {
			return
		}
	}
	return
}
