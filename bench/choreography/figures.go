package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/troupe-go/troupe/bench/harness"
)

// figures holds the results of a round.
type figures struct {
	flat, steady part
}

// A part is one phase of a round.
type part struct {
	perSecond float64 // orders ended, from the first one's row to the last one's end
	p50, p99  float64 // ms, from an order's row to its end, by the order database's clock
	cpu, pg   float64 // ms of processor time an order; 0: not known
	command   float64 // likewise, of the accompanying command and its sessions at the server, which are not in pg
	messages  float64 // per order, over the whole round
}

var table = harness.Table[part]{Width: 36, Columns: []harness.Column[part]{
	{Head: "orders/s", Width: 9, Decimals: 1, Figure: func(p *part) *float64 { return &p.perSecond }},
	{Head: "p50 ms", Width: 9, Decimals: 1, Figure: func(p *part) *float64 { return &p.p50 }},
	{Head: "p99 ms", Width: 9, Decimals: 1, Figure: func(p *part) *float64 { return &p.p99 }},
	{Head: "go ms/order", Width: 12, Decimals: 2, Figure: func(p *part) *float64 { return &p.cpu }, Optional: true},
	{Head: "pg ms/order", Width: 12, Decimals: 2, Figure: func(p *part) *float64 { return &p.pg }, Optional: true},
	{Head: "beside ms/order", Width: 15, Decimals: 2, Figure: func(p *part) *float64 { return &p.command }, Optional: true},
	{Head: "messages/order", Width: 14, Decimals: 1, Figure: func(p *part) *float64 { return &p.messages }, Optional: true},
}}

func (f figures) show(name string) {
	table.Show(name+", flat out", f.flat)
	table.Show(name+", steady", f.steady)
}

// median returns the median of each figure separately.
func median(all []figures) (m figures) {
	var flat, steady []part
	for _, f := range all {
		flat, steady = append(flat, f.flat), append(steady, f.steady)
	}
	return figures{table.Median(flat), table.Median(steady)}
}

// against formats the median, the lowest and the highest ratio of a figure to the figure of the same round in base: the machine's
// other load changes from minute to minute, and is similar in rounds that follow each other.
func against(all, base []figures, figure func(figures) float64) string {
	ratios := make([]float64, len(all))
	for i := range all {
		ratios[i] = figure(all[i]) / figure(base[i])
	}
	median := harness.Median(ratios, func(ratio float64) float64 { return ratio })
	return fmt.Sprintf("%.2f (%.2f to %.2f)", median, slices.Min(ratios), slices.Max(ratios))
}

// A kind is a kind of round.
type kind struct {
	*harness.Contender[figures]
	command string
}

// styles runs rounds of each kind in turn.
func (s *stage) styles(ctx context.Context) error {
	kinds := []kind{s.kind("orchestration", ""), s.kind("choreography", "")}
	if s.command != "" {
		kinds = append(kinds, s.kind("choreography", s.command))
	}
	all := make([]*harness.Contender[figures], len(kinds))
	for i, k := range kinds {
		all[i] = k.Contender
	}
	fmt.Printf("%d orders flat out, %d at once; then %d at %g/s\n\n", s.orders, s.callers, s.steady, s.rate)
	table.Heading()
	err := harness.Compare(ctx, s.rounds, all, func(name string, f figures) error {
		f.show(name)
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Println()
	for _, k := range kinds {
		median(k.Results).show("median " + k.Name)
	}
	for i, k := range kinds[1:] {
		base := kinds[i] // the kind before
		fmt.Printf("\n%s, against %s in the same round: %s times the orders/s;\nat %g/s %s times the p50, %s times the p99\n",
			k.Name, base.Name,
			against(k.Results, base.Results, func(f figures) float64 { return f.flat.perSecond }), s.rate,
			against(k.Results, base.Results, func(f figures) float64 { return f.steady.p50 }),
			against(k.Results, base.Results, func(f figures) float64 { return f.steady.p99 }))
		if k.command != "" {
			m := median(k.Results).flat
			fmt.Printf("the command takes %.1f %% of what the flow takes of the processors, flat out\n", 100*m.command/(m.cpu+m.pg))
		}
	}
	return nil
}
