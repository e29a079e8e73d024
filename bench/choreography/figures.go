package main

import (
	"fmt"
	"slices"
	"strings"
)

// figures are what a round showed.
type figures struct {
	flat, steady part
	messages     float64 // an order
}

// A part of a round.
type part struct {
	perSecond float64 // orders ended, from the first one's row to the last one's end
	p50, p99  float64 // ms, from an order's row to its end, by the order database's clock
	cpu, pg   float64 // ms of processor time an order; 0: not known
	beside    float64 // of the command beside and its sessions at the server, which are not in pg, likewise
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

// against is the median of what a figure is to the one of the same round, and the least and the most: what else the machine
// does changes from minute to minute, and rounds that follow each other have most of it in common.
func against(all, base []figures, figure func(figures) float64) string {
	ratios := make([]float64, len(all))
	for i := range all {
		ratios[i] = figure(all[i]) / figure(base[i])
	}
	slices.Sort(ratios)
	return fmt.Sprintf("%.2f (%.2f to %.2f)", ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
}

// median is each figure's own.
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
