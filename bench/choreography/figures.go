package main

import (
	"fmt"
	"slices"
	"strings"
)

// figures holds the results of a round.
type figures struct {
	flat, steady part
	messages     float64 // per order
}

// A part is one phase of a round.
type part struct {
	perSecond float64 // orders ended, from the first one's row to the last one's end
	p50, p99  float64 // ms, from an order's row to its end, by the order database's clock
	cpu, pg   float64 // ms of processor time an order; 0: not known
	beside    float64 // likewise, of the accompanying command and its sessions at the server, which are not in pg
}

func (f figures) show(name string) {
	f.flat.show(name+", flat out", fmt.Sprintf("%.1f", f.messages))
	f.steady.show(name+", steady", "")
}

func (p part) show(name, messages string) {
	known := func(ms float64) string {
		if ms == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", ms)
	}
	line := fmt.Sprintf("%-36s %9.1f %9.1f %9.1f %12s %12s %15s %14s", name, p.perSecond, p.p50, p.p99,
		known(p.cpu), known(p.pg), known(p.beside), messages)
	fmt.Println(strings.TrimRight(line, " "))
}

// against formats the median, the lowest and the highest ratio of a figure to the figure of the same round in base: the machine's
// other load changes from minute to minute, and is similar in rounds that follow each other.
func against(all, base []figures, figure func(figures) float64) string {
	ratios := make([]float64, len(all))
	for i := range all {
		ratios[i] = figure(all[i]) / figure(base[i])
	}
	slices.Sort(ratios)
	return fmt.Sprintf("%.2f (%.2f to %.2f)", ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
}

// median takes the median of each figure separately.
func median(all []figures) figures {
	of := func(figure func(figures) float64) float64 {
		values := make([]float64, len(all))
		for i, f := range all {
			values[i] = figure(f)
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	ofPart := func(in func(figures) part) part {
		return part{
			perSecond: of(func(f figures) float64 { return in(f).perSecond }),
			p50:       of(func(f figures) float64 { return in(f).p50 }),
			p99:       of(func(f figures) float64 { return in(f).p99 }),
			cpu:       of(func(f figures) float64 { return in(f).cpu }),
			pg:        of(func(f figures) float64 { return in(f).pg }),
			beside:    of(func(f figures) float64 { return in(f).beside }),
		}
	}
	return figures{
		flat:     ofPart(func(f figures) part { return f.flat }),
		steady:   ofPart(func(f figures) part { return f.steady }),
		messages: of(func(f figures) float64 { return f.messages }),
	}
}
