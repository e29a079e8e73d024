package main

import (
	"context"
	"fmt"
)

const failingKeys = 20

// measureFailing measures the rate of the good messages with and without keys that always fail among theirs.
func (s *stage) measureFailing(ctx context.Context) error {
	without, err := s.fill(ctx, s.failing, 0)
	if err != nil {
		return err
	}
	defer s.remove(without)
	with, err := s.fill(ctx, s.failing, failingKeys)
	if err != nil {
		return err
	}
	defer s.remove(with)
	table.Heading()
	for _, k := range []task{{Batch: 100, Concurrency: partitions}, {Batch: 1, Concurrency: 16}} {
		none, some := s.way(without, k, byTroupe), s.way(with, k, byTroupe)
		if err := s.compare(ctx, none, some); err != nil {
			return err
		}
		good, bad, name := table.Median(none.Results), table.Median(some.Results), fmt.Sprintf("batch %d", k.Batch)
		table.Show(name+", no key fails", good)
		table.Show(fmt.Sprintf("%s, %d of %d keys fail always", name, failingKeys, keys), bad)
		fmt.Printf("%s: %.2f of the rate\n", name, bad.rate()/good.rate())
	}
	return nil
}
