// Command relay measures outbox-relay and compares it with the server's own limit (pg_recvlogical, which drops the rows) and with
// Debezium Server with its EventRouter, on the same rows, server and broker, in turns within each round.
//
//	go run -C bench ./relay
//	go run -C bench ./relay --only drain --rows 2000000 --rounds 3 --transports socket,tcp
//	go run -C bench ./relay --only latency --ways wal,debezium
//	go run -C bench ./relay --ways floor,poll --also 'large claims=--source poll --batch 5000'
//	go run -C bench ./relay --only drain --ways mapped-first,mapped,wal --rows 1000000
//	go run -C bench ./relay --quick
//
// Each relay is a process of its own: outbox-relay as it ships, built from this source. Postgres is started here, with fsync and
// synchronous_commit on, and so is an Apache Kafka (internal/devstack/apachekafka, which needs Java 17 and Maven); TROUPE_KAFKA names
// another one. Debezium needs Java 21 and Maven, and 1 GB of the user's cache folder. A way that is not available is named and
// left out. No process that was started here outlives this one; all listen on loopback only.
//
// Each run has a database and topics of its own. For a drain the backlog is written while no relay runs, after the slot was
// created; the rate is measured from the broker's first append to its last, so that the start of a relay does not count. Then a
// consumer of committed messages counts rows that are lost, doubled, or out of their key's order. A run that lost rows or their
// order ends the measurement with status 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-go/troupe/bench/harness"
)

// options holds the values of the flags.
type options struct {
	quick      bool
	cold       bool // without warmUp
	rounds     int
	rows       int
	keys       int
	topics     int
	backlogs   []int
	databases  []int
	rates      []int
	warm, time time.Duration // of a latency, of writers, and of an idle outbox
	transports []bool        // TCP?
	ways       []string
	also       []string          // name=flags of outbox-relay
	settings   map[string]string // of Postgres
	relayers   map[string]tunings
}

// tunings holds a relay's tunings: Debezium has two.
type tunings struct{ throughput, latency relayer }

var (
	full = options{
		rounds: 3, rows: 2_000_000, backlogs: []int{200_000, 2_000_000, 10_000_000}, rates: []int{200, 2000},
		databases: []int{1, 50, 200},
		warm:      10 * time.Second, time: time.Minute,
	}
	small = options{
		quick: true, rounds: 1, rows: 20_000, backlogs: []int{2_000, 20_000}, rates: []int{200}, databases: []int{3},
		warm: time.Second, time: 2 * time.Second,
	}
)

// The ways, with their names in the flag.
const (
	floorWay         = "floor"
	debeziumWay      = "debezium"
	debeziumOnTroupe = "debezium-troupe"
	mappedWay        = "mapped"
	sweptWay         = "mapped-first"
)

// defaultWays are the ways that take part unless a flag names others.
var defaultWays = []string{floorWay, "wal", "exactly-once", "poll", debeziumWay, debeziumOnTroupe}

var everyWay = append(slices.Clone(defaultWays), mappedWay, sweptWay)

func main() {
	s := &stage{options: full}
	benchmarks := []harness.Benchmark{
		{Name: "drain", Measure: s.measureDrain},
		{Name: "latency", Measure: s.measureLatency},
		{Name: "shapes", Measure: s.measureShapes},
		{Name: "backlog", Measure: s.measureBacklog},
		{Name: "writers", Measure: s.measureWriters},
		{Name: "idle", Measure: s.measureIdle},
		{Name: "databases", Measure: s.measureDatabases},
	}
	names := harness.Names(benchmarks)
	only := flag.String("only", strings.Join(names, ","), "`names` of what to measure, with commas between")
	ways := flag.String("ways", strings.Join(defaultWays, ","),
		"`names` of who takes part, with commas between; debezium reads the table of its documentation, debezium-troupe Troupe's; mapped is outbox-relay "+
			"on Debezium's table from the log, and mapped-first its first start there, with the rows in the table")
	var also []string
	flag.Func("also", "`name=flags` of outbox-relay that take part too, as in 'four shards=--source poll --shards 4'; may be given again",
		func(text string) error {
			if name, _, ok := strings.Cut(text, "="); !ok || name == "" || slices.Contains(everyWay, name) {
				return errors.New("want name=flags, with a name of its own")
			}
			also = append(also, text)
			return nil
		})
	settings := map[string]string{}
	flag.Func("setting", "`name=value` of a Postgres setting, as in shared_buffers=12GB; may be given again", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return errors.New("want name=value")
		}
		settings[name] = value
		return nil
	})
	transports := flag.String("transports", "socket", "`socket,tcp`, or one of them: how Postgres is reached; Debezium knows TCP only")
	quick := flag.Bool("quick", false, "everything in small without Debezium, with an embedded broker, to see that it works: its figures say nothing")
	cold := flag.Bool("cold", false, "no drains of 4,000,000 rows before the first one: its broker, a JVM, has not compiled its code yet")
	rounds := flag.Int("rounds", 0, "`rounds` of what is compared (default 3, quick 1)")
	rows := flag.Int("rows", 0, "`rows` of a drain (default 2,000,000, quick 20,000)")
	keys := flag.Int("keys", 1_000_000, "`keys` of rows, which have them in turn; 1 is one hot key")
	topics := flag.Int("topics", 1, "`topics`, which keys are spread over; each has 6 partitions")
	lasts := flag.Duration("time", 0, "`time` of each latency, of writers, and of idle outboxes (default 1m, quick 2s)")
	backlogs := flag.String("backlogs", "", "`rows,…` of the backlogs (default 200000,2000000,10000000, quick 2000,20000)")
	databases := flag.String("databases", "", "`numbers,…` of databases that one relay serves (default 1,50,200, quick 3)")
	harness.Main("relay", "Measures relays.\n\n  go run -C bench ./relay --only drain,latency --rounds 5", func(ctx context.Context) error {
		if *quick {
			s.options = small
		}
		harness.Set(&s.rounds, *rounds)
		harness.Set(&s.rows, *rows)
		harness.Set(&s.time, *lasts)
		s.keys, s.topics, s.also, s.settings, s.cold = *keys, *topics, also, settings, *cold
		chosen, err := harness.Choose("--only", *only, names...)
		var unknown error
		s.ways, unknown = harness.Choose("--ways", *ways, everyWay...)
		err = errors.Join(err, unknown, parseTransports(*transports, &s.transports), harness.Numbers("--backlogs", *backlogs, &s.backlogs),
			harness.Numbers("--databases", *databases, &s.databases))
		switch {
		case err != nil:
			return err
		case s.keys < 1 || s.topics < 1:
			return harness.Misused("--keys %d, --topics %d: want 1 or more", s.keys, s.topics)
		case s.time < time.Second:
			return harness.Misused("--time %s: want a second or more", s.time)
		}
		if !slices.Contains(chosen, "databases") {
			s.databases = nil
		}
		return s.measure(ctx, benchmarks, chosen)
	})
}

func parseTransports(text string, tcp *[]bool) error {
	names, err := harness.Choose("--transports", text, "socket", "tcp")
	for _, name := range names {
		*tcp = append(*tcp, name == "tcp")
	}
	return err
}

func (s *stage) measure(ctx context.Context, benchmarks []harness.Benchmark, chosen []string) (err error) {
	defer func() { err = errors.Join(err, s.close()) }()
	load := harness.Load() // before the processes that are started here add to it
	if err := s.open(ctx); err != nil {
		return err
	}
	fmt.Printf("%s, load %s, Postgres %s, broker %s\n", harness.Platform(), load, s.Version, s.Broker)
	if err := s.choose(ctx); err != nil {
		return err
	}
	return harness.Run(ctx, benchmarks, chosen)
}

// choose keeps the ways that are available here, and prints why the others are not.
func (s *stage) choose(ctx context.Context) error {
	wanted := s.ways
	s.ways, s.relayers = nil, make(map[string]tunings)
	var java, home string
	var missing error
	if !s.quick && (slices.Contains(wanted, debeziumWay) || slices.Contains(wanted, debeziumOnTroupe)) {
		java, home, missing = findDebezium(ctx)
	}
	for _, way := range wanted {
		why := ""
		switch way {
		case floorWay:
			if _, err := findReceive(); err != nil {
				why = err.Error()
			}
		case debeziumWay, debeziumOnTroupe:
			d := debezium{name: "Debezium", reads: debeziumTable, files: []string{"own"}, java: java, home: home}
			if way == debeziumOnTroupe {
				d.name, d.reads, d.files = "Debezium, Troupe's table", troupeTable, []string{"troupe"}
			}
			throughput, latency := d, d
			throughput.files, throughput.jvm = append([]string{"throughput"}, d.files...), []string{"-XX:+UseParallelGC"}
			latency.files = append([]string{"latency"}, d.files...)
			s.relayers[way] = tunings{&throughput, &latency}
			if s.quick {
				continue
			}
			if missing != nil {
				why = missing.Error()
			}
		default:
			var r relayer
			if r, why = s.troupe(way); why == "" {
				s.relayers[way] = tunings{r, r}
			}
		}
		if why != "" {
			fmt.Printf("left out: %s: %s\n", way, why)
			continue
		}
		s.ways = append(s.ways, way)
	}
	for _, text := range s.also {
		name, args, _ := strings.Cut(text, "=")
		t := &troupe{name: name, args: strings.Fields(args), wal: strings.Contains(args, "--source wal")}
		s.relayers[name], s.ways = tunings{t, t}, append(s.ways, name)
	}
	if len(s.ways) == 0 {
		return errors.New("nobody is left to be measured")
	}
	return ctx.Err()
}

// ours returns the ways of outbox-relay.
func (s *stage) ours() (ways []string) {
	for _, way := range s.ways {
		if _, is := s.relayers[way].throughput.(*debezium); way != floorWay && !is {
			ways = append(ways, way)
		}
	}
	return ways
}
