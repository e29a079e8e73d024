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
	"slices"

	"github.com/troupe-go/troupe/bench/harness"
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
	s := &stage{sizes: full}
	only := flag.String("only", "flow,join", "`names` of what to measure, with commas between: flow, join")
	small := flag.Bool("quick", false, harness.QuickUsage)
	rounds := flag.Int("rounds", 0, "`rounds` (default 3, quick 1)")
	rate := flag.Float64("rate", 0, "`orders` a second in the part that is not flat out (default 20)")
	flag.StringVar(&s.command, "beside", "", "`command` that runs beside a third kind of round, a choreography; it finds KAFKA_BROKERS, TROUPE_FLOW, DATABASE_URL and REACTIONS set, and ends by SIGTERM")
	harness.Main("choreography", "Measures choreographies.\n\n  go run -C bench ./choreography --only flow --rounds 5", func(ctx context.Context) (err error) {
		if *small {
			s.sizes = quick
		}
		harness.Set(&s.rounds, *rounds)
		harness.Set(&s.rate, *rate)
		chosen, err := harness.Choose("--only", *only, "flow", "join")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		if err := s.open(ctx); err != nil {
			return err
		}
		fmt.Println(s.Header())
		if slices.Contains(chosen, "flow") {
			if err := s.styles(ctx); err != nil {
				return err
			}
		}
		if slices.Contains(chosen, "join") {
			fmt.Println()
			for _, batch := range []int{1, 100} {
				if err := s.join(ctx, batch); err != nil {
					return fmt.Errorf("join: %w", err)
				}
			}
		}
		return nil
	})
}
