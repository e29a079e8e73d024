package console

import (
	"time"

	"github.com/troupe-go/troupe/saga"
)

// Sizes of the chart, in its own units.
const (
	chartWidth  = 720
	chartHeight = 120
)

// A chart is a column for each interval, stacked by the present status of the sagas that started in it.
type chart struct {
	Width, Height int
	Most          int // sagas in the highest column
	Bars          []bar
}

type bar struct {
	X, Y, Width, Height float64
	Status              saga.Status
	Count               int
	At                  time.Time
}

// Chart returns the chart of Started.
func (o overviewFacts) Chart() chart {
	c := chart{Width: chartWidth, Height: chartHeight}
	var long time.Duration
	for _, w := range windows {
		if w.name == o.Window {
			long = w.long
		}
	}
	columns := int(long / o.Every)
	counts := make([]map[saga.Status]int, columns)
	for _, one := range o.Started {
		n := int(one.At.Sub(o.Since) / o.Every)
		if n < 0 || n >= columns {
			continue // it started after the page was begun
		}
		if counts[n] == nil {
			counts[n] = make(map[saga.Status]int)
		}
		counts[n][one.Status] += one.Count
	}
	for _, column := range counts {
		sum := 0
		for _, n := range column {
			sum += n
		}
		c.Most = max(c.Most, sum)
	}
	width := float64(chartWidth) / float64(columns)
	for i, column := range counts {
		y := float64(chartHeight)
		for _, status := range stacked {
			if n := column[status]; n > 0 {
				h := max(float64(n)/float64(c.Most)*(chartHeight-4), 1)
				y -= h
				c.Bars = append(c.Bars, bar{float64(i)*width + 1, y, width - 2, h, status, n, o.Since.Add(time.Duration(i) * o.Every)})
			}
		}
	}
	return c
}

// stacked is the order of statuses in a column, from the bottom: completed, then under way, then failed.
var stacked = []saga.Status{
	saga.Completed, saga.Running, saga.Waiting, saga.Compensating, saga.Compensated, saga.Abandoned, saga.Parked,
}
