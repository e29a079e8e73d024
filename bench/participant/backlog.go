package main

import (
	"context"
	"fmt"
	"strings"
)

// measureBacklog measures the memory that a long backlog needs, and whether its end is as fast as its beginning.
func measureBacklog(ctx context.Context, s *stage) error {
	from, err := s.fill(ctx, partitions, s.backlog, keys, 0)
	if err != nil {
		return err
	}
	defer s.remove(from)
	url, drop, err := s.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	r, err := s.run(ctx, task{
		Kind: byTroupe, URL: url, Hop: from.hop.String(), Group: s.name("group"), Partitions: from.partitions,
		Batch: 100, Concurrency: partitions, Messages: from.messages,
	})
	if err != nil {
		return err
	}
	if err := check(ctx, url, from.messages); err != nil {
		return err
	}
	heading()
	show(fmt.Sprintf("backlog of %d", from.messages), r)
	var tenths []string
	for _, seconds := range r.Tenths {
		tenths = append(tenths, fmt.Sprintf("%.0f", float64(from.messages/10)/seconds))
	}
	fmt.Printf("messages/s by tenths: %s\n", strings.Join(tenths, " "))
	if n := len(r.Tenths); n == 10 {
		fmt.Printf("the last tenth goes at %.2f of the first one's rate\n", r.Tenths[0]/r.Tenths[n-1])
	}
	return nil
}
