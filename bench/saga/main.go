// Command saga measures sagas of three steps: how many end in a second, and how long one takes.
//
//	go run -C bench ./saga
//	go run -C bench ./saga --only kafka --rounds 5
//	go run -C bench ./saga --only retention --rounds 1 --ended 1000000
//	TROUPE_KAFKA=localhost:9092 go run -C bench ./saga
//
// The saga is the order flow's: payment, inventory, shipping. A caller starts it in a transaction of its own and waits until it
// has ended; each hop writes a row of its own in the transaction in which it answers. All parts of Troupe run in this process:
// coordinator, participants and relays, with four databases on one server (kafka), or all in one database without Kafka and
// relays (local). fsync and synchronous_commit are on. Other programs to compare run in the same rounds, see --peer. On demand,
// join sends ten events of ten hops at once for each of many sagas, and prints how many transactions were repeated; items compares
// a saga that has 100 items with 100 sagas; recovery kills the process that runs everything, with 10,000 running sagas, and starts
// it again; retention removes a million ended sagas while 200 others a second are run. A run whose counts of effects are wrong
// ends the measurement with status 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/troupe-go/troupe/bench/harness"
)

// sizes holds the sizes of a run.
type sizes struct {
	rounds     int
	warm, time time.Duration
	callers    int
	rate       float64 // sagas/s, for the latency
	joins      int     // sagas
	stopped    int     // running sagas when the process is killed
	ended      int     // sagas that are removed
	beside     float64 // sagas/s meanwhile
	fill       int     // megabytes of log files that exist before
}

var (
	full  = sizes{rounds: 3, warm: 4 * time.Second, time: 15 * time.Second, callers: 64, rate: 50, joins: 2000, stopped: 10_000, ended: 1_000_000, beside: 200, fill: 1000}
	quick = sizes{rounds: 1, warm: time.Second, time: 2 * time.Second, callers: 16, rate: 20, joins: 100, stopped: 500, ended: 2000, beside: 20, fill: 1}
)

func main() {
	harness.Child("saga", serve)
	s := &stage{sizes: full}
	only := flag.String("only", "kafka,local", "`names` of what to measure, with commas between: kafka, local, join, items, recovery, retention")
	small := flag.Bool("quick", false, harness.QuickUsage)
	rounds := flag.Int("rounds", 0, "`rounds` (default 3, quick 1)")
	callers := flag.Int("callers", 0, "sagas under way at once (default 64)")
	ended := flag.Int("ended", 0, "ended `sagas` that are removed (default 1,000,000, quick 2,000)")
	profile := flag.String("profile", "", "`file` for a profile of the processor, of the runs at full speed")
	flag.Func("peer", "`name=command` that is run in each round and prints a line of JSON with per_s, p50_ms and p99_ms; may be given again",
		func(text string) error {
			s.peers = append(s.peers, text)
			return nil
		})
	harness.Main("saga", "Measures sagas.\n\n  go run -C bench ./saga --only kafka --rounds 5", func(ctx context.Context) (err error) {
		if *small {
			s.sizes = quick
		}
		harness.Set(&s.rounds, *rounds)
		harness.Set(&s.callers, *callers)
		harness.Set(&s.ended, *ended)
		chosen, err := harness.Choose("--only", *only, "kafka", "local", "join", "items", "recovery", "retention")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		if err := s.open(ctx); err != nil {
			return err
		}
		fmt.Printf("%s; %d sagas at once, and %.0f/s\n\n", s.Header(), s.callers, s.rate)
		stop, err := harness.Profile(*profile)
		if err != nil {
			return err
		}
		defer stop()
		return s.compare(ctx, chosen)
	})
}

// compare runs what was chosen, and the peers, in turns within each round.
func (s *stage) compare(ctx context.Context, chosen []string) error {
	table.Heading()
	results := make(map[string][]result)
	var names []string
	add := func(name string, r result) {
		if results[name] == nil {
			names = append(names, name)
		}
		results[name] = append(results[name], r)
		table.Show(name, r)
	}
	once := map[string]func(context.Context) (string, error){"join": s.join, "items": s.items, "recovery": s.recovery, "retention": s.retention}
	for range s.rounds {
		for _, kind := range chosen {
			if once[kind] != nil {
				text, err := once[kind](ctx)
				if err != nil {
					return fmt.Errorf("%s: %w", kind, err)
				}
				fmt.Println(kind + ": " + text)
				continue
			}
			flat, steady, err := s.measure(ctx, kind)
			if err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			add(kind+", flat out", flat)
			add(fmt.Sprintf("%s, at %.0f/s", kind, s.rate), steady)
		}
		for _, p := range s.peers {
			name, r, err := runPeer(ctx, p)
			if err != nil {
				return err
			}
			add(name, r)
		}
	}
	fmt.Println()
	for _, name := range names {
		table.Show("median "+name, medianRun(results[name]))
	}
	return nil
}
