// Command choreography measures the order flow in both styles: with a coordinator, and with services that react to each other's
// events.
//
//	go run -C bench ./choreography
//	go run -C bench ./choreography --only flow --rounds 5
//	TROUPE_KAFKA=localhost:9092 go run -C bench ./choreography
//	go run -C bench ./choreography --only flow --beside '../bin/troupe watch --reactions $REACTIONS'
//
// It runs the demo's four services and a relay for each, all in this process, with four databases on one server; fsync and
// synchronous_commit are on. Rounds of both styles alternate, each with databases and topics of its own: orders are posted over
// HTTP as fast as they are accepted, which gives the throughput, and then at a rate that the machine sustains, which gives a
// latency without queueing. Processor time is this process's, with the embedded broker and the client that posts, and the
// Postgres server's. With --beside a command of yours, with a database of its own, runs during a third kind of round; its
// processor time and its sessions' at the server are printed separately, since the machine's other load changes a round by more.
// Then join sends ten events of ten hops at once for each of many keys, and prints how many transactions were repeated. A round
// in which an order does not complete, or a join is not dispatched exactly once, ends the measurement with status 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/troupe-go/troupe/bench/machine"
	"github.com/troupe-go/troupe/internal/demo"
)

// sizes holds the sizes of a run.
type sizes struct {
	rounds  int
	warm    int     // orders before the measured ones
	orders  int     // posted as fast as possible
	steady  int     // orders posted at the rate
	rate    float64 // orders/s
	callers int
	joins   int // keys
}

var (
	full  = sizes{rounds: 3, warm: 500, orders: 6000, steady: 300, rate: 20, callers: 32, joins: 2000}
	quick = sizes{rounds: 1, warm: 5, orders: 40, steady: 10, rate: 10, callers: 8, joins: 50}
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	only := flag.String("only", "flow,join", "`names` of what to measure, with commas between: flow, join")
	small := flag.Bool("quick", false, "everything in small, to see that it works: its figures say nothing")
	rounds := flag.Int("rounds", 0, "`rounds` (default 3, quick 1)")
	rate := flag.Float64("rate", 0, "`orders` a second in the part that is not flat out (default 20)")
	beside := flag.String("beside", "", "`command` that runs beside a third kind of round, a choreography; it finds KAFKA_BROKERS, TROUPE_FLOW, DATABASE_URL and REACTIONS set, and ends by SIGTERM")
	flag.Parse()
	s := &stage{sizes: full, beside: *beside}
	if *small {
		s.sizes = quick
	}
	if *rounds > 0 {
		s.rounds = *rounds
	}
	if *rate > 0 {
		s.rate = *rate
	}
	wanted := strings.Split(*only, ",")
	for _, name := range wanted {
		if !slices.Contains([]string{"flow", "join"}, name) || flag.NArg() > 0 {
			fmt.Fprintf(os.Stderr, "choreography: want --only with flow, join or both, and no arguments\n")
			os.Exit(2)
		}
	}
	if err := run(ctx, s, wanted); err != nil {
		fmt.Fprintln(os.Stderr, "choreography:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s *stage, wanted []string) (err error) {
	if err := s.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	fmt.Printf("%s, %s/%s, %d cores, load %s, Postgres %s, broker %s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		machine.Load(), s.version, s.broker)
	if slices.Contains(wanted, "flow") {
		if err := s.styles(ctx); err != nil {
			return err
		}
	}
	if slices.Contains(wanted, "join") {
		fmt.Println()
		for _, batch := range []int{1, 100} {
			said, err := s.join(ctx, batch)
			if err != nil {
				return fmt.Errorf("join: %w", err)
			}
			fmt.Println(said)
		}
	}
	return nil
}

// A kind is a kind of round.
type kind struct {
	name   string
	style  demo.Style
	beside string
	done   []figures
}

// styles runs rounds of each kind in turn.
func (s *stage) styles(ctx context.Context) error {
	kinds := []*kind{{name: "orchestration", style: demo.Orchestration}, {name: "choreography", style: demo.Choreography}}
	if s.beside != "" {
		kinds = append(kinds, &kind{name: "choreography, beside", style: demo.Choreography, beside: s.beside})
	}
	fmt.Printf("%d orders flat out, %d at once; then %d at %g/s\n\n", s.orders, s.callers, s.steady, s.rate)
	fmt.Printf("%-36s %9s %9s %9s %12s %12s %15s %14s\n", "", "orders/s", "p50 ms", "p99 ms", "go ms/order", "pg ms/order", "beside ms/order",
		"messages/order")
	for range s.rounds {
		for _, k := range kinds {
			f, err := s.round(ctx, *k)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			k.done = append(k.done, f)
			f.show(k.name)
		}
	}
	fmt.Println()
	for _, k := range kinds {
		median(k.done).show("median " + k.name)
	}
	for i, k := range kinds[1:] {
		base := kinds[i] // the kind before
		fmt.Printf("\n%s, against %s in the same round: %s times the orders/s;\nat %g/s %s times the p50, %s times the p99\n",
			k.name, base.name,
			against(k.done, base.done, func(f figures) float64 { return f.flat.perSecond }), s.rate,
			against(k.done, base.done, func(f figures) float64 { return f.steady.p50 }),
			against(k.done, base.done, func(f figures) float64 { return f.steady.p99 }))
		if k.beside != "" {
			m := median(k.done).flat
			fmt.Printf("the command takes %.1f %% of what the flow takes of the processors, flat out\n", 100*m.beside/(m.cpu+m.pg))
		}
	}
	return nil
}
