// Command participant measures a participant against its floor: the same statements in the same batches, written by hand with pgx
// and kgo; and the other figures of docs/benchmarks.md on consuming.
//
//	go run -C bench ./participant
//	go run -C bench ./participant --only batched,single --rounds 5
//	TROUPE_KAFKA=localhost:9092 go run -C bench ./participant --only keyed --parallel-consumer 'CLASSES:JARS/*'
//
// Postgres runs with fsync and synchronous_commit on. Each run is a process of its own, so that processor time, allocations and
// memory are the consumer's: the broker and the producer are elsewhere. The compared programs run in turns within one round, and
// the last lines are medians over the rounds. A run whose counts of effects are wrong ends the measurement with status 1.
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
	"time"

	"github.com/troupe-go/troupe/bench/machine"
)

// sizes holds the sizes of a run. The smallest sizes still do every step.
type sizes struct {
	rounds  int
	batched int // messages of a run in batches of 100
	single  int // messages of a run with one per transaction
	keyed   int // records of 5 ms each
	failing int
	replay  int
	backlog int
	inbox   int // ids in the inbox
}

var (
	full  = sizes{rounds: 5, batched: 60_000, single: 15_000, keyed: 10_000, failing: 30_000, replay: 60_000, backlog: 1_000_000, inbox: 10_000_000}
	quick = sizes{rounds: 1, batched: 2_000, single: 500, keyed: 1_000, failing: 3_000, replay: 2_000, backlog: 5_000, inbox: 20_000}
)

var benchmarks = []struct {
	name    string
	measure func(context.Context, *stage) error
}{
	{"batched", measureBatched},
	{"single", measureSingle},
	{"keyed", measureKeyed},
	{"failing", measureFailing},
	{"replay", measureReplay},
	{"backlog", measureBacklog},
	{"inbox", measureInbox},
}

func main() {
	if text := os.Getenv(taskEnv); text != "" {
		if err := beChild(text); err != nil {
			fmt.Fprintln(os.Stderr, "participant:", err)
			os.Exit(1)
		}
		return
	}
	var names []string
	for _, b := range benchmarks {
		names = append(names, b.name)
	}
	only := flag.String("only", "", "`names` of what to measure, with commas between: "+strings.Join(names, ", ")+" (default: all)")
	small := flag.Bool("quick", false, "everything in small, to see that it works: its figures say nothing")
	rounds := flag.Int("rounds", 0, "`rounds` of what is compared (default: 5, quick 1)")
	peer := flag.String("parallel-consumer", "", "`classpath` of the class Bench, which runs Confluent's parallel-consumer")
	profiles := flag.String("profiles", "", "`folder` for profiles of every run: processor, and allocations")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "Measures participants.\n\n  go run -C bench ./participant --only batched,keyed --rounds 5\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	wanted := strings.Split(*only, ",")
	if *only == "" {
		wanted = names
	}
	for _, name := range wanted {
		if !slices.Contains(names, name) || flag.NArg() > 0 {
			fmt.Fprintf(os.Stderr, "participant: %q is none of %s\n", strings.Join(append(flag.Args(), name), " "), strings.Join(names, ", "))
			os.Exit(2)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &stage{sizes: full, peer: *peer, profiles: *profiles}
	if *small {
		s.sizes = quick
	}
	if *rounds > 0 {
		s.rounds = *rounds
	}
	if err := measure(ctx, s, wanted); err != nil {
		fmt.Fprintln(os.Stderr, "participant:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, s *stage, wanted []string) (err error) {
	if err := s.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	fmt.Printf("%s, %s/%s, %d cores, load %s, Postgres %s, broker %s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), machine.Load(), s.version, s.broker)
	for _, b := range benchmarks {
		if !slices.Contains(wanted, b.name) {
			continue
		}
		began := time.Now()
		fmt.Printf("\n%s\n", b.name)
		if err := b.measure(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		fmt.Printf("(%s took %s, load %s)\n", b.name, time.Since(began).Round(100*time.Millisecond), machine.Load())
	}
	return nil
}
