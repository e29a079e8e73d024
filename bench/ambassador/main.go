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
	"time"

	"github.com/troupe-go/troupe/bench/harness"
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

func main() {
	harness.Child("ambassador", runAmbassador)
	s := &stage{sizes: full}
	benchmarks := []harness.Benchmark{{Name: "rate", Measure: s.measureRate}, {Name: "hang", Measure: s.measureHang}}
	only := flag.String("only", "rate,hang", "`names` of what to measure, with commas between")
	small := flag.Bool("quick", false, harness.QuickUsage)
	rounds := flag.Int("rounds", 0, "`rounds` of each rate (default: 3, quick 1)")
	requests := flag.String("concurrency", "64", "`requests` at once, several with commas between")
	flag.StringVar(&s.profiles, "profiles", "", "`folder` for a processor profile of every run")
	harness.Main("ambassador", "Measures the ambassador.\n\n  go run -C bench ./ambassador --only rate --concurrency 16,64,256", func(ctx context.Context) (err error) {
		if *small {
			s.sizes = quick
		}
		harness.Set(&s.rounds, *rounds)
		chosen, err := harness.Choose("--only", *only, harness.Names(benchmarks)...)
		if err := errors.Join(err, harness.Numbers("--concurrency", *requests, &s.concurrency)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		if err := s.open(ctx); err != nil {
			return err
		}
		fmt.Println(s.Header())
		return harness.Run(ctx, benchmarks, chosen)
	})
}
