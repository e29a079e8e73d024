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
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/troupe-go/troupe/bench/harness"
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

func main() {
	harness.Child("participant", consume)
	s := &stage{sizes: full}
	benchmarks := []harness.Benchmark{
		{Name: "batched", Measure: s.measureBatched},
		{Name: "single", Measure: s.measureSingle},
		{Name: "keyed", Measure: s.measureKeyed},
		{Name: "failing", Measure: s.measureFailing},
		{Name: "replay", Measure: s.measureReplay},
		{Name: "backlog", Measure: s.measureBacklog},
		{Name: "inbox", Measure: s.measureInbox},
	}
	names := harness.Names(benchmarks)
	only := flag.String("only", "", "`names` of what to measure, with commas between: "+strings.Join(names, ", ")+" (default: all)")
	small := flag.Bool("quick", false, harness.QuickUsage)
	rounds := flag.Int("rounds", 0, "`rounds` of what is compared (default: 5, quick 1)")
	flag.StringVar(&s.peer, "parallel-consumer", "", "`classpath` of the class Bench, which runs Confluent's parallel-consumer")
	flag.StringVar(&s.profiles, "profiles", "", "`folder` for profiles of every run: processor, and allocations")
	harness.Main("participant", "Measures participants.\n\n  go run -C bench ./participant --only batched,keyed --rounds 5", func(ctx context.Context) (err error) {
		if *small {
			s.sizes = quick
		}
		harness.Set(&s.rounds, *rounds)
		chosen, err := harness.Choose("--only", cmp.Or(*only, strings.Join(names, ",")), names...)
		if err != nil {
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
