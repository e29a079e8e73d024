package main

import (
	"context"
	"fmt"
)

const failingKeys = 20

// measureFailing measures the rate of the good messages with and without keys that always fail among theirs.
func measureFailing(ctx context.Context, s *stage) error {
	without, err := s.fill(ctx, partitions, s.failing, keys, 0)
	if err != nil {
		return err
	}
	defer s.remove(without)
	with, err := s.fill(ctx, partitions, s.failing, keys, failingKeys)
	if err != nil {
		return err
	}
	defer s.remove(with)
	heading()
	for _, v := range []task{{Batch: 100, Concurrency: partitions}, {Batch: 1, Concurrency: 16}} {
		v.Kind = byTroupe
		var good, bad []result
		for range s.rounds {
			a, err := s.consume(ctx, without, v)
			if err != nil {
				return err
			}
			b, err := s.consume(ctx, with, v)
			if err != nil {
				return err
			}
			good, bad = append(good, a), append(bad, b)
		}
		name := fmt.Sprintf("batch %d", v.Batch)
		show(name+", no key fails", median(good))
		show(fmt.Sprintf("%s, %d of %d keys fail always", name, failingKeys, keys), median(bad))
		fmt.Printf("%s: %.2f of the rate\n", name, median(bad).rate()/median(good).rate())
	}
	return nil
}
