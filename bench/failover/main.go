// Command failover kills the primary of a Postgres pair under load, promotes its standby, and counts what became of the rows.
//
//	go run -C bench ./failover
//	go run -C bench ./failover --versions 17.11.0,18.6.0
//	go run -C bench ./failover --only 'services, wal'
//	go run -C bench ./failover --quick
//
// Primary and standby are started here, on loopback, from Maven's programs of --versions, or from the folders of --binaries. The broker is embedded; TROUPE_KAFKA names another one. The relay runs in this process, and its connections lead to the
// server that is the primary, as with a proxy. Each case has a pair and a topic of its own.
//
// Writers insert 750 rows a second. Each row is also inserted into a table that no relay changes, in the same transaction: what this
// table holds after the failover is what must have been published. The standby is 2 s behind in the cases that say so: its receiver
// is stopped for that long before the primary is killed. In the cases "frozen, fenced" all processes of the primary are stopped
// instead, as on a host that is cut off, and go on 3 s after the promotion, when the clients' connections to it have been closed: for a
// while there are two primaries.
//
// The cases with services run a participant that gets 100 commands a second, and a coordinator with three participants for which 10
// sagas a second are started, all in the database of the pair. Each effect is a row of a table without a unique key.
//
// A case that loses a row, a command or a saga of the new primary, that doubles an effect, or publishes rows of a key out of order, is an
// error: the program runs the others, and ends with status 1.
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
	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/relay"
)

// A scenario is one row of the table.
type scenario struct {
	source   relay.Source
	delivery relay.Delivery
	copied   bool // the standby copies the slot
	waits    bool // synchronized_standby_slots
	sync     bool // commits wait for the standby
	behind   bool // the standby is behind when the primary is killed
	frozen   bool // the primary is frozen instead of killed, and comes back after the promotion
	services bool // participants and a coordinator, instead of rows alone
}

func (c scenario) name() string {
	parts := []string{string(c.source)}
	if c.delivery == relay.ExactlyOnce {
		parts[0] = "exactly-once"
	}
	if c.services {
		parts[0] = "services, " + parts[0]
	}
	if c.source == relay.WAL {
		switch {
		case c.waits:
			parts = append(parts, "slot copied and waited for")
		case c.copied:
			parts = append(parts, "slot copied")
		default:
			parts = append(parts, "no slot")
		}
	}
	switch {
	case c.sync:
		parts = append(parts, "synchronous")
	case c.frozen:
		parts = append(parts, "frozen, fenced")
	case c.behind:
		parts = append(parts, "2 s behind")
	default:
		parts = append(parts, "asynchronous")
	}
	return strings.Join(parts, ", ")
}

// scenarios returns all of them: each source and delivery with each kind of failure, and services with each kind of failure.
func scenarios() (all []scenario) {
	failures := []scenario{{}, {sync: true}, {behind: true}, {frozen: true}}
	for _, failure := range failures {
		for _, way := range []scenario{
			{source: relay.WAL, delivery: relay.AtLeastOnce},
			{source: relay.WAL, delivery: relay.AtLeastOnce, copied: true},
			{source: relay.WAL, delivery: relay.AtLeastOnce, copied: true, waits: true},
			{source: relay.WAL, delivery: relay.ExactlyOnce},
			{source: relay.WAL, delivery: relay.ExactlyOnce, copied: true, waits: true},
			{source: relay.Poll, delivery: relay.AtLeastOnce},
		} {
			way.sync, way.behind, way.frozen = failure.sync, failure.behind, failure.frozen
			all = append(all, way)
		}
	}
	for _, failure := range failures {
		failure.services, failure.source, failure.delivery, failure.copied = true, relay.WAL, relay.AtLeastOnce, true
		all = append(all, failure)
		failure.source, failure.copied = relay.Poll, false
		all = append(all, failure)
	}
	return all
}

func main() {
	binaries := flag.String("binaries", "", "`folders` of the programs of Postgres, with commas between; default: those of --versions")
	versions := flag.String("versions", devstack.Postgres17, "`versions` of Postgres, with commas between, each fetched once")
	only := flag.String("only", "", "`text` that the names of the cases to run contain")
	quick := flag.Bool("quick", false, harness.QuickUsage)
	harness.Main("failover", "Kills a primary under load and promotes its standby.\n\n  go run -C bench ./failover", func(ctx context.Context) error {
		var folders []string
		if *binaries != "" {
			folders, *versions = strings.Split(*binaries, ","), ""
		}
		for version := range strings.SplitSeq(*versions, ",") {
			if version == "" {
				continue
			}
			folder, err := devstack.FetchPostgres(ctx, version)
			if err != nil {
				return err
			}
			folders = append(folders, folder)
		}
		load := 8 * time.Second
		chosen := scenarios()
		if *quick {
			load, chosen = 2*time.Second, []scenario{chosen[0], chosen[2], chosen[5], chosen[24]}
		}
		var failed error
		for _, folder := range folders {
			failed = errors.Join(failed, measure(ctx, folder, chosen, *only, load))
		}
		return failed
	})
}

var table = harness.Table[workload.Result]{Width: 58, Columns: []harness.Column[workload.Result]{
	{Head: "rows", Width: 7, Figure: func(r *workload.Result) *float64 { return &r.Rows }},
	{Head: "gone", Width: 5, Figure: func(r *workload.Result) *float64 { return &r.Gone }},
	{Head: "ahead", Width: 5, Figure: func(r *workload.Result) *float64 { return &r.Ahead }},
	{Head: "lost", Width: 5, Figure: func(r *workload.Result) *float64 { return &r.Lost }},
	{Head: "repeated", Width: 8, Figure: func(r *workload.Result) *float64 { return &r.Repeated }},
	{Head: "reordered", Width: 9, Figure: func(r *workload.Result) *float64 { return &r.Reordered }},
	{Head: "seconds", Width: 7, Decimals: 1, Figure: func(r *workload.Result) *float64 { return &r.Seconds }},
}}

// served is the table of scenarios with services. Each has a line for commands and one for sagas.
var served = harness.Table[workload.Result]{Width: 58, Columns: []harness.Column[workload.Result]{
	{Head: "sent", Width: 7, Figure: func(r *workload.Result) *float64 { return &r.Rows }},
	{Head: "gone", Width: 5, Figure: func(r *workload.Result) *float64 { return &r.Gone }},
	{Head: "lost", Width: 5, Figure: func(r *workload.Result) *float64 { return &r.Lost }},
	{Head: "doubled", Width: 8, Figure: func(r *workload.Result) *float64 { return &r.Doubled }},
	{Head: "repeated", Width: 8, Figure: func(r *workload.Result) *float64 { return &r.Repeated }},
	{Head: "reordered", Width: 9, Figure: func(r *workload.Result) *float64 { return &r.Reordered }},
	{Head: "seconds", Width: 7, Decimals: 1, Figure: func(r *workload.Result) *float64 { return &r.Seconds }},
}}

func measure(ctx context.Context, folder string, chosen []scenario, only string, load time.Duration) error {
	var failed error
	var headed [2]bool
	heading := func(n int, t harness.Table[workload.Result], version string) {
		if !headed[n] {
			headed[n] = true
			fmt.Printf("%s, Postgres %s, broker %s\n", harness.Platform(), version, harness.Broker())
			t.Heading()
		}
	}
	check := func(name string, c scenario, r workload.Result) {
		if c.services && r.Reordered <= r.Gone {
			r.Reordered = 0 // an effect that the new primary lacks is repeated, and a later command of the key may come first: see docs/failover.md
		}
		if r.Lost > 0 || r.Reordered > 0 || r.Doubled > 0 {
			failed = errors.Join(failed, fmt.Errorf("%s: %.0f lost, %.0f doubled, %.0f reordered", name, r.Lost, r.Doubled, r.Reordered))
		}
	}
	for _, c := range chosen {
		name := c.name()
		if !strings.Contains(name, only) {
			continue
		}
		if c.services {
			commands, sagas, version, err := runServices(ctx, folder, c, load)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			heading(1, served, version)
			served.Show(strings.Replace(name, "services", "commands", 1), commands)
			served.Show(strings.Replace(name, "services", "sagas", 1), sagas)
			check(name+": commands", c, commands)
			check(name+": sagas", c, sagas)
			continue
		}
		r, version, err := run(ctx, folder, c, load)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		heading(0, table, version)
		table.Show(name, r)
		check(name, c, r)
	}
	return failed
}
