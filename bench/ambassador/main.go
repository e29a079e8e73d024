// Command ambassador measures troupe ambassador with a local service that does nothing, and with one that hangs.
//
//	go run -C bench ./ambassador
//	go run -C bench ./ambassador --only rate --concurrency 16,64,256 --rounds 5
//
// Postgres runs with fsync and synchronous_commit on. The ambassador is a separate process, so that processor time and memory are
// its own; broker, producer and service are in this one. The topic is filled before the clock starts. A run whose counts of
// events are wrong ends the measurement with status 1.
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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/troupe-go/troupe/bench/machine"
)

// sizes holds the sizes of a run. The smallest sizes still do every step.
type sizes struct {
	rounds   int
	messages int           // in a run
	hanging  int           // that wait while the service hangs
	hangs    time.Duration // how long it hangs
}

var (
	full  = sizes{rounds: 3, messages: 60_000, hanging: 100_000, hangs: 30 * time.Second}
	quick = sizes{rounds: 1, messages: 2_000, hanging: 2_000, hangs: 3 * time.Second}
)

var benchmarks = []struct {
	name    string
	measure func(context.Context, *stage) error
}{
	{"rate", measureRate},
	{"hang", measureHang},
}

func main() {
	if text := os.Getenv(childEnv); text != "" {
		os.Exit(beChild(text))
	}
	only := flag.String("only", "rate,hang", "`names` of what to measure, with commas between")
	small := flag.Bool("quick", false, "everything in small, to see that it works: its figures say nothing")
	rounds := flag.Int("rounds", 0, "`rounds` of each rate (default: 3, quick 1)")
	requests := flag.String("concurrency", "64", "`requests` at once, several with commas between")
	profiles := flag.String("profiles", "", "`folder` for a processor profile of every run")
	flag.Parse()
	s := &stage{sizes: full, profiles: *profiles}
	if *small {
		s.sizes = quick
	}
	if *rounds > 0 {
		s.rounds = *rounds
	}
	wanted := strings.Split(*only, ",")
	for _, text := range strings.Split(*requests, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || flag.NArg() > 0 {
			fmt.Fprintf(os.Stderr, "ambassador: %q: want numbers with commas between\n", strings.Join(append(flag.Args(), text), " "))
			os.Exit(2)
		}
		s.concurrency = append(s.concurrency, n)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, s, wanted); err != nil {
		fmt.Fprintln(os.Stderr, "ambassador:", err)
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
