// Command saga measures sagas of three steps: how many end in a second, and how long one takes.
//
//	go run -C bench ./saga
//	go run -C bench ./saga --only kafka --rounds 5
//	TROUPE_KAFKA=localhost:9092 go run -C bench ./saga
//
// The saga is the order flow's: payment, inventory, shipping. A caller starts it in a transaction of its own and waits until it
// has ended; each hop writes a row of its own in the transaction in which it answers. All parts of Troupe run in this process:
// coordinator, participants and relays, with four databases on one server (kafka), or all in one database without Kafka and
// relays (local). fsync and synchronous_commit are on. Other programs to compare run in the same rounds, see --peer. On demand,
// join sends ten events of ten hops at once for each of many sagas, and prints how many transactions were repeated; recovery
// kills the process that runs everything, with 10,000 running sagas, and starts it again. A run whose counts of effects are wrong
// ends the measurement with status 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/troupe-go/troupe/bench/machine"
)

// sizes holds the sizes of a run.
type sizes struct {
	rounds     int
	warm, time time.Duration
	callers    int
	rate       float64 // sagas/s, for the latency
	joins      int     // sagas
	stopped    int     // running sagas when the process is killed
	fill       int     // megabytes of log files that exist before
}

var (
	full  = sizes{rounds: 3, warm: 4 * time.Second, time: 15 * time.Second, callers: 64, rate: 50, joins: 2000, stopped: 10_000, fill: 1000}
	quick = sizes{rounds: 1, warm: time.Second, time: 2 * time.Second, callers: 16, rate: 20, joins: 100, stopped: 500, fill: 1}
)

func main() {
	if task := os.Getenv(childEnv); task != "" {
		beChild(task)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	only := flag.String("only", "kafka,local", "`names` of what to measure, with commas between: kafka, local, join, recovery")
	small := flag.Bool("quick", false, "everything in small, to see that it works: its figures say nothing")
	rounds := flag.Int("rounds", 0, "`rounds` (default 3, quick 1)")
	callers := flag.Int("callers", 0, "sagas under way at once (default 64)")
	profile := flag.String("profile", "", "`file` for a profile of the processor, of the runs at full speed")
	var peers list
	flag.Var(&peers, "peer", "`name=command` that is run in each round and prints a line of JSON with per_s, p50_ms and p99_ms; may be given again")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "Measures sagas.\n\n  go run -C bench ./saga --only kafka --rounds 5\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	s := &stage{sizes: full, peers: peers}
	if *small {
		s.sizes = quick
	}
	if *rounds > 0 {
		s.rounds = *rounds
	}
	if *callers > 0 {
		s.callers = *callers
	}
	wanted := strings.Split(*only, ",")
	for _, name := range wanted {
		if !slices.Contains([]string{"kafka", "local", "join", "recovery"}, name) || flag.NArg() > 0 {
			fmt.Fprintf(os.Stderr, "saga: %q is none of kafka, local, join, recovery\n", name)
			os.Exit(2)
		}
	}
	if err := run(ctx, s, wanted, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "saga:", err)
		os.Exit(1)
	}
}

type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func run(ctx context.Context, s *stage, wanted []string, profile string) (err error) {
	if err := s.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	fmt.Printf("%s, %s/%s, %d cores, load %s, Postgres %s, broker %s; %d sagas at once, and %.0f/s\n", runtime.Version(), runtime.GOOS,
		runtime.GOARCH, runtime.NumCPU(), machine.Load(), s.version, s.broker, s.callers, s.rate)
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Printf("\n%-24s %9s %9s %9s %9s %11s %11s\n", "", "sagas/s", "p50 ms", "p95 ms", "p99 ms", "cpu ms/saga", "pg ms/saga")
	all := make(map[string][]result)
	var order []string
	add := func(name string, r result) {
		if all[name] == nil {
			order = append(order, name)
		}
		all[name] = append(all[name], r)
		r.show(name)
	}
	for range s.rounds {
		for _, kind := range wanted {
			if once := map[string]func(context.Context) (string, error){"join": s.join, "recovery": s.recovery}[kind]; once != nil {
				said, err := once(ctx)
				if err != nil {
					return fmt.Errorf("%s: %w", kind, err)
				}
				fmt.Println(kind + ": " + said)
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
			name, r, err := peer(ctx, p)
			if err != nil {
				return err
			}
			add(name, r)
		}
	}
	fmt.Println()
	for _, name := range order {
		median(all[name]).show("median " + name)
	}
	return nil
}
