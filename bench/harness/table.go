package harness

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
)

// A Column is a figure of a result R in a table.
type Column[R any] struct {
	Head            string
	Width, Decimals int
	Figure          func(*R) *float64
	Shown           func(R) float64 // derived from the figure; nil: the figure
	Optional        bool            // 0 is unknown, and leaves the column empty
	Sum             bool            // the median of results has the sum of their figures
}

// A Table prints results, each in a line after its name.
type Table[R any] struct {
	Width   int // of the names
	Columns []Column[R]
}

// Heading prints the names of the columns.
func (t Table[R]) Heading() {
	var b strings.Builder
	fmt.Fprintf(&b, "%*s", t.Width, "")
	for _, c := range t.Columns {
		fmt.Fprintf(&b, " %*s", c.Width, c.Head)
	}
	fmt.Println(b.String())
}

// Show prints a result.
func (t Table[R]) Show(name string, r R) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s", t.Width, name)
	for _, c := range t.Columns {
		figure := *c.Figure(&r)
		if c.Shown != nil {
			figure = c.Shown(r)
		}
		text := ""
		if figure != 0 || !c.Optional {
			text = fmt.Sprintf("%.*f", c.Decimals, figure)
		}
		fmt.Fprintf(&b, " %*s", c.Width, text)
	}
	fmt.Println(strings.TrimRight(b.String(), " "))
}

// Median returns a result with the median of each figure separately. All else is as in the first result.
func (t Table[R]) Median(results []R) (m R) {
	if len(results) == 0 {
		return m
	}
	m = results[0]
	for _, c := range t.Columns {
		figure := func(r R) float64 { return *c.Figure(&r) }
		if *c.Figure(&m) = Median(results, figure); c.Sum {
			*c.Figure(&m) = 0
			for _, r := range results {
				*c.Figure(&m) += figure(r)
			}
		}
	}
	return m
}

// Median returns the median of a figure of the results, of an even number the upper one.
func Median[R any](results []R, figure func(R) float64) float64 {
	figures := make([]float64, len(results))
	for i, r := range results {
		figures[i] = figure(r)
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}

// A Contender is a program, or a way to run one, in a comparison. Results has the results of its rounds.
type Contender[R any] struct {
	Name    string
	Run     func(context.Context) (R, error)
	Results []R
}

// Compare runs each contender once in every round, so that the machine's other load is similar for all of them, and calls each for
// every result.
func Compare[R any](ctx context.Context, rounds int, all []*Contender[R], each func(name string, r R) error) error {
	for range rounds {
		for _, c := range all {
			r, err := c.Run(ctx)
			if err == nil {
				c.Results = append(c.Results, r)
				err = each(c.Name, r)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
		}
	}
	return nil
}

// Compare prints every result of a comparison.
func (t Table[R]) Compare(ctx context.Context, rounds int, all []*Contender[R]) error {
	return Compare(ctx, rounds, all, func(name string, r R) error {
		t.Show(name, r)
		return nil
	})
}

// Medians prints the median of each contender's results.
func (t Table[R]) Medians(all []*Contender[R]) {
	for _, c := range all {
		t.Show("median "+c.Name, t.Median(c.Results))
	}
}

// Percentile returns the smallest of the sorted values that at least the fraction p of them does not exceed.
func Percentile[T cmp.Ordered](sorted []T, p float64) (value T) {
	if len(sorted) == 0 {
		return value
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}
