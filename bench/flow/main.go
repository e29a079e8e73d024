// Command flow measures the order flow from a user's view: sagas a second, one of each order, and the time from an order's row to
// its end, in repeated rounds of troupe demo.
//
//	go run -C bench ./flow
//	TROUPE_KAFKA=localhost:9092 go run -C bench ./flow --rounds 5
//	go run -C bench ./flow --for 1h --rate 20
//
// Each round has servers, databases and topics of its own. Rounds of two kinds alternate: as fast as possible, which gives the
// throughput, and at a rate that the machine sustains, which gives a latency without queueing. The last lines are the medians. A
// round whose checks fail ends the measurement with status 1.
//
// With --for, one run at the rate lasts for that time, and 12 samples show whether memory, disk or the replication slots grow.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/troupe-go/troupe/bench/harness"
)

// round holds the figures taken from the demo's result.
type round struct {
	OrdersPerSecond float64 `json:"orders_per_second"`
	LatencyMS       struct {
		P50 float64 `json:"p50"`
		P95 float64 `json:"p95"`
		P99 float64 `json:"p99"`
	} `json:"latency_ms"`
}

var table = harness.Table[round]{Width: 16, Columns: []harness.Column[round]{
	{Head: "orders/s", Width: 9, Decimals: 1, Figure: func(r *round) *float64 { return &r.OrdersPerSecond }},
	{Head: "p50 ms", Width: 9, Decimals: 1, Figure: func(r *round) *float64 { return &r.LatencyMS.P50 }},
	{Head: "p95 ms", Width: 9, Decimals: 1, Figure: func(r *round) *float64 { return &r.LatencyMS.P95 }},
	{Head: "p99 ms", Width: 9, Decimals: 1, Figure: func(r *round) *float64 { return &r.LatencyMS.P99 }},
}}

func main() {
	rounds := flag.Int("rounds", 3, "`rounds` of each kind")
	limit := flag.Int("limit", 400, "`orders` in a round")
	rate := flag.Float64("rate", 20, "`orders` a second in rounds that are not flat out")
	file := flag.String("orders", "", "`file.csv` of orders (default: those that ship with troupe)")
	length := flag.Duration("for", 0, "one run of this `length` at the rate, with samples of memory and disk, instead of rounds")
	harness.Main("flow", "Measures the order flow.\n\n  go run -C bench ./flow --rounds 5", func(ctx context.Context) error {
		return measure(ctx, *rounds, *limit, *rate, *file, *length)
	})
}

func measure(ctx context.Context, rounds, limit int, rate float64, file string, length time.Duration) error {
	dir, err := os.MkdirTemp("", "troupe-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "troupe")
	if err := harness.Build(ctx, "cmd/troupe", program); err != nil {
		return err
	}
	if length > 0 {
		return runLong(ctx, program, dir, length, rate)
	}
	fmt.Printf("%s, broker %s, %d orders a round\n\n", harness.Platform(), harness.Broker(), limit)
	table.Heading()
	kind := func(name string, rate float64) *harness.Contender[round] {
		return &harness.Contender[round]{Name: name, Run: func(ctx context.Context) (r round, err error) {
			out, err := harness.Output(ctx, program, "demo", "--output", "json", "--limit", strconv.Itoa(limit),
				"--rate", strconv.FormatFloat(rate, 'f', -1, 64), "--orders", file)
			if err != nil {
				return r, err
			}
			return r, json.Unmarshal([]byte(out), &r)
		}}
	}
	kinds := []*harness.Contender[round]{kind("flat out", 0), kind(fmt.Sprintf("at %g/s", rate), rate)}
	if err := table.Compare(ctx, rounds, kinds); err != nil {
		return err
	}
	fmt.Println()
	table.Medians(kinds)
	return nil
}
