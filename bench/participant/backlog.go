package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// measureBacklog measures the memory that a long backlog needs, and whether its end is as fast as its beginning.
func (s *stage) measureBacklog(ctx context.Context) (err error) {
	from, err := s.fill(ctx, s.backlog, 0)
	if err != nil {
		return err
	}
	defer s.remove(from)
	y := s.NewSystem(ctx)
	defer func() { err = errors.Join(err, y.Close()) }()
	url, err := y.Database(ctx, "")
	if err != nil {
		return err
	}
	r, err := s.run(ctx, task{
		Kind: byTroupe, URL: url, Hop: from.hop.String(), Group: s.Name("group"), Partitions: from.partitions,
		Batch: 100, Concurrency: partitions, Messages: from.messages,
	})
	if err != nil {
		return err
	}
	if err := check(ctx, url, from.messages); err != nil {
		return err
	}
	table.Heading()
	table.Show(fmt.Sprintf("backlog of %d", from.messages), r)
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
