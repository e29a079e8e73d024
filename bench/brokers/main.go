// Command brokers runs the relay, participants and sagas on three Apache Kafka nodes that fail, and counts lost, doubled and reordered
// messages.
//
//	go run -C bench ./brokers
//	go run -C bench ./brokers --only 'leader frozen'
//	go run -C bench ./brokers --quick
//	go run -C bench ./brokers --only 'poll, unclean' --unclean     # must find lost rows
//
// The nodes are started here, on loopback (internal/devstack/apachekafka, which needs Java 17 and Maven), with replication factor 3 and
// min.insync.replicas 2; the others replace a node that is silent for --session. So is a Postgres. Each case has a database and topics of
// its own.
//
// In the cases with rows, writers insert 750 rows a second. Each row is also inserted into a table that no relay changes, in the same
// transaction: the topic must have the rows of this table at the end, when it is read from its start. The cases with services run two members of a
// participant that gets 100 commands a second, and that fails at the first try of each tenth command of a key, so that the key is held;
// and a coordinator with three participants for which 10 sagas a second are started. Each effect is a row of a table without a unique key.
//
// A case that loses a row, a command or a saga, that doubles an effect, or publishes rows of a key out of order, is an error: the
// program runs the others, and ends with status 1. So is a row that a reader of committed messages gets twice under exactly-once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/bench/workload"
	"github.com/troupe-go/troupe/relay"
)

// options are the flags.
type options struct {
	only    string
	quick   bool
	seconds int
	session time.Duration
	frozen  time.Duration
	port    int
	unclean bool
}

// A scenario is one row of the table, or two with services.
type scenario struct {
	source   relay.Source
	delivery relay.Delivery
	services bool
	failure  failure
}

func (c scenario) name() string {
	of := string(c.source)
	switch {
	case c.services:
		of = "services"
	case c.delivery == relay.ExactlyOnce:
		of = "exactly-once"
	}
	return of + ", " + c.failure.name
}

func scenarios() (all []scenario) {
	for _, f := range failures {
		all = append(all,
			scenario{source: relay.WAL, delivery: relay.AtLeastOnce, failure: f},
			scenario{source: relay.WAL, delivery: relay.ExactlyOnce, failure: f},
			scenario{source: relay.Poll, delivery: relay.AtLeastOnce, failure: f})
		if f.replicas == 0 {
			all = append(all, scenario{source: relay.WAL, delivery: relay.AtLeastOnce, services: true, failure: f})
		}
	}
	return all
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "`text` that the names of the cases to run contain")
	flag.BoolVar(&o.quick, "quick", false, harness.QuickUsage)
	flag.IntVar(&o.seconds, "seconds", 8, "`number` of seconds of load before and after each failure")
	flag.DurationVar(&o.session, "session", 3*time.Second, "`time` after which a silent broker is replaced; Kafka's default is 9s")
	flag.DurationVar(&o.frozen, "frozen", 10*time.Second, "`time` for which a leader is frozen")
	flag.IntVar(&o.port, "port", 0, "first of six adjacent `ports` of the brokers; 0: free ones")
	flag.BoolVar(&o.unclean, "unclean", false, "allow unclean elections, to see that lost rows are found")
	harness.Main("brokers", "Runs relay, participants and sagas on three brokers that fail.\n\n  go run -C bench ./brokers", func(ctx context.Context) error {
		if o.seconds < 1 {
			return harness.Misused("--seconds %d: want 1 or more", o.seconds)
		}
		return measure(ctx, o)
	})
}

type column = harness.Column[workload.Result]

var rowsTable = harness.Table[workload.Result]{Width: 45, Columns: []column{
	{Head: "rows", Width: 7, Figure: func(r *workload.Result) *float64 { return &r.Rows }},
	{Head: "lost", Width: 5, Figure: func(r *workload.Result) *float64 { return &r.Lost }},
	{Head: "repeated", Width: 8, Figure: func(r *workload.Result) *float64 { return &r.Repeated }},
	{Head: "reordered", Width: 9, Figure: func(r *workload.Result) *float64 { return &r.Reordered }},
	{Head: "stalled", Width: 7, Decimals: 1, Figure: func(r *workload.Result) *float64 { return &r.Stalled }},
	{Head: "waited", Width: 7, Decimals: 1, Figure: func(r *workload.Result) *float64 { return &r.Waited }},
}}

// servedTable is the table of scenarios with services. Each has a line for commands and one for sagas.
var servedTable = harness.Table[workload.Result]{Width: 45, Columns: []column{
	{Head: "sent", Width: 7, Figure: func(r *workload.Result) *float64 { return &r.Rows }},
	{Head: "lost", Width: 5, Figure: func(r *workload.Result) *float64 { return &r.Lost }},
	{Head: "doubled", Width: 8, Figure: func(r *workload.Result) *float64 { return &r.Doubled }},
	{Head: "repeated", Width: 8, Figure: func(r *workload.Result) *float64 { return &r.Repeated }},
	{Head: "reordered", Width: 9, Figure: func(r *workload.Result) *float64 { return &r.Reordered }},
	{Head: "waited", Width: 7, Decimals: 1, Figure: func(r *workload.Result) *float64 { return &r.Waited }},
}}

func measure(ctx context.Context, o options) (failed error) {
	s, err := openStage(ctx, o)
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, s.close()) }()
	fmt.Printf("%s, load %s, Postgres %s, Apache Kafka %s on three nodes, session %s, frozen for %s\n",
		harness.Platform(), harness.Load(), s.postgresVersion, s.kafkaVersion, o.session, o.frozen)
	chosen := scenarios()
	if o.quick {
		o.seconds, chosen = 2, []scenario{chosen[0], chosen[1], chosen[7]}
	}
	headed := make(map[string]bool)
	show := func(t harness.Table[workload.Result], kind, name string, r workload.Result) {
		if !headed[kind] {
			headed[kind] = true
			t.Heading()
		}
		t.Show(name, r)
	}
	for _, c := range chosen {
		name := c.name()
		if !strings.Contains(name, o.only) {
			continue
		}
		if c.services {
			commands, sagas, err := s.services(ctx, c)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			show(servedTable, "services", strings.Replace(name, "services", "commands", 1), commands)
			show(servedTable, "services", strings.Replace(name, "services", "sagas", 1), sagas)
			failed = errors.Join(failed, judge(name+": commands", c, commands), judge(name+": sagas", c, sagas))
			continue
		}
		r, err := s.rows(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		show(rowsTable, "rows", name, r)
		failed = errors.Join(failed, judge(name, c, r))
	}
	return failed
}

// judge returns an error for a result that breaks a promise.
func judge(name string, c scenario, r workload.Result) error {
	if c.delivery == relay.ExactlyOnce {
		r.Doubled += r.Repeated
	}
	if r.Lost+r.Gone+r.Ahead+r.Doubled+r.Reordered == 0 {
		return nil
	}
	return fmt.Errorf("%s: %.0f lost, %.0f gone from the database, %.0f published without a commit, %.0f doubled, %.0f reordered",
		name, r.Lost, r.Gone, r.Ahead, r.Doubled, r.Reordered)
}
