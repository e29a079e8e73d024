// Command flow measures the order flow from a user's view: sagas a second, one of each order, and the time from an order's row to
// its end, in repeated rounds of troupe demo.
//
//	go run -C bench ./flow
//	TROUPE_KAFKA=localhost:9092 go run -C bench ./flow --rounds 5
//
// Each round has servers, databases and topics of its own. Rounds of two kinds alternate: as fast as possible, which gives the
// throughput, and at a rate that the machine sustains, which gives a latency without queueing. The last lines are the medians. A
// round whose checks fail ends the measurement with status 1.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"github.com/troupe-go/troupe/bench/machine"
)

// round holds the figures taken from the demo's result.
type round struct {
	SagasPerSecond float64 `json:"sagas_per_second"`
	LatencyMS      struct {
		P50 float64 `json:"p50"`
		P95 float64 `json:"p95"`
		P99 float64 `json:"p99"`
	} `json:"latency_ms"`
}

func main() {
	rounds := flag.Int("rounds", 3, "`rounds` of each kind")
	limit := flag.Int("limit", 400, "`orders` in a round")
	rate := flag.Float64("rate", 20, "`orders` a second in rounds that are not flat out")
	file := flag.String("orders", "", "`file.csv` of orders (default: those that ship with troupe)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, *rounds, *limit, *rate, *file); err != nil {
		fmt.Fprintln(os.Stderr, "flow:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, rounds, limit int, rate float64, file string) error {
	dir, err := os.MkdirTemp("", "troupe-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "troupe")
	if err := machine.Build(ctx, "cmd/troupe", program); err != nil {
		return err
	}
	broker := "embedded"
	if address := os.Getenv("TROUPE_KAFKA"); address != "" {
		broker = address
	}
	fmt.Printf("%s, %s/%s, %d cores, broker %s, %d orders a round\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), broker, limit)
	fmt.Printf("%-16s %9s %9s %9s %9s\n", "", "sagas/s", "p50 ms", "p95 ms", "p99 ms")
	kinds := []struct {
		name string
		rate float64
		done []round
	}{{name: "flat out"}, {name: fmt.Sprintf("at %g/s", rate), rate: rate}}
	for n := range rounds {
		for i := range kinds {
			k := &kinds[i]
			r, err := demo(ctx, program, limit, k.rate, file)
			if err != nil {
				return fmt.Errorf("round %d %s: %w", n+1, k.name, err)
			}
			k.done = append(k.done, r)
			show(k.name, r)
		}
	}
	fmt.Println()
	for _, k := range kinds {
		show("median "+k.name, median(k.done))
	}
	return nil
}

// demo runs one round.
func demo(ctx context.Context, program string, limit int, rate float64, file string) (r round, err error) {
	cmd := exec.CommandContext(ctx, program, "demo", "--output", "json", "--limit", strconv.Itoa(limit),
		"--rate", strconv.FormatFloat(rate, 'f', -1, 64), "--orders", file)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%w: %s%s", err, said.String(), out)
	}
	return r, json.Unmarshal(out, &r)
}

func show(name string, r round) {
	fmt.Printf("%-16s %9.1f %9.1f %9.1f %9.1f\n", name, r.SagasPerSecond, r.LatencyMS.P50, r.LatencyMS.P95, r.LatencyMS.P99)
}

// median takes the median of each figure separately.
func median(rounds []round) (m round) {
	if len(rounds) == 0 {
		return m
	}
	of := func(figure func(round) float64) float64 {
		all := make([]float64, len(rounds))
		for i, r := range rounds {
			all[i] = figure(r)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	m.SagasPerSecond = of(func(r round) float64 { return r.SagasPerSecond })
	m.LatencyMS.P50 = of(func(r round) float64 { return r.LatencyMS.P50 })
	m.LatencyMS.P95 = of(func(r round) float64 { return r.LatencyMS.P95 })
	m.LatencyMS.P99 = of(func(r round) float64 { return r.LatencyMS.P99 })
	return m
}
