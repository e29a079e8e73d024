// Command failover kills the primary of a Postgres pair under load, promotes its standby, and counts what became of the rows.
//
//	go run -C bench ./failover
//	go run -C bench ./failover --binaries /usr/lib/postgresql/17/bin,/usr/lib/postgresql/18/bin
//	go run -C bench ./failover --only 'wal, slot copied'
//	go run -C bench ./failover --quick
//
// Primary and standby are started here, on loopback, from the programs of --binaries; without it those of Postgres 17 are fetched
// once. The broker is embedded; TROUPE_KAFKA names another one. The relay runs in this process, and its connections lead to the
// server that is the primary, as with a proxy. Each case has a pair and a topic of its own.
//
// Writers insert 750 rows a second. Each row is also inserted into a table that no relay changes, in the same transaction: what this
// table holds after the failover is what must have been published. The standby is 2 s behind in the cases that say so: its receiver
// is stopped for that long before the primary is killed. A case that loses a row of the new primary, or publishes rows of a key out
// of order, ends the program with status 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-go/troupe/bench/harness"
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
}

func (c scenario) name() string {
	parts := []string{string(c.source)}
	if c.delivery == relay.ExactlyOnce {
		parts[0] = "exactly-once"
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
	case c.behind:
		parts = append(parts, "2 s behind")
	default:
		parts = append(parts, "asynchronous")
	}
	return strings.Join(parts, ", ")
}

// scenarios returns all of them: each source and delivery, with each kind of standby.
func scenarios() (all []scenario) {
	for _, standby := range []scenario{{}, {sync: true}, {behind: true}} {
		for _, way := range []scenario{
			{source: relay.WAL, delivery: relay.AtLeastOnce},
			{source: relay.WAL, delivery: relay.AtLeastOnce, copied: true},
			{source: relay.WAL, delivery: relay.AtLeastOnce, copied: true, waits: true},
			{source: relay.WAL, delivery: relay.ExactlyOnce},
			{source: relay.WAL, delivery: relay.ExactlyOnce, copied: true, waits: true},
			{source: relay.Poll, delivery: relay.AtLeastOnce},
		} {
			way.sync, way.behind = standby.sync, standby.behind
			all = append(all, way)
		}
	}
	return all
}

func main() {
	binaries := flag.String("binaries", "", "`folders` of the programs of Postgres, with commas between; default: Postgres 17, fetched once")
	only := flag.String("only", "", "`text` that the names of the cases to run contain")
	quick := flag.Bool("quick", false, harness.QuickUsage)
	harness.Main("failover", "Kills a primary under load and promotes its standby.\n\n  go run -C bench ./failover", func(ctx context.Context) error {
		var folders []string
		if *binaries != "" {
			folders = strings.Split(*binaries, ",")
		} else {
			folder, err := devstack.FetchPostgres(ctx, devstack.Postgres17)
			if err != nil {
				return err
			}
			folders = []string{folder}
		}
		load := 8 * time.Second
		chosen := scenarios()
		if *quick {
			load, chosen = 2*time.Second, []scenario{chosen[0], chosen[2], chosen[5]}
		}
		var failed error
		for _, folder := range folders {
			failed = errors.Join(failed, measure(ctx, folder, chosen, *only, load))
		}
		return failed
	})
}

var table = harness.Table[result]{Width: 54, Columns: []harness.Column[result]{
	{Head: "rows", Width: 7, Figure: func(r *result) *float64 { return &r.rows }},
	{Head: "gone", Width: 5, Figure: func(r *result) *float64 { return &r.gone }},
	{Head: "ahead", Width: 5, Figure: func(r *result) *float64 { return &r.ahead }},
	{Head: "lost", Width: 5, Figure: func(r *result) *float64 { return &r.lost }},
	{Head: "repeated", Width: 8, Figure: func(r *result) *float64 { return &r.repeated }},
	{Head: "reordered", Width: 9, Figure: func(r *result) *float64 { return &r.reordered }},
	{Head: "seconds", Width: 7, Decimals: 1, Figure: func(r *result) *float64 { return &r.seconds }},
}}

func measure(ctx context.Context, folder string, chosen []scenario, only string, load time.Duration) error {
	var failed error
	headed := false
	for _, c := range chosen {
		if !strings.Contains(c.name(), only) {
			continue
		}
		r, err := run(ctx, folder, c, load)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name(), err)
		}
		if !headed {
			headed = true
			fmt.Printf("%s, Postgres %s, broker %s\n", harness.Platform(), r.version, harness.Broker())
			table.Heading()
		}
		table.Show(c.name(), r)
		if r.lost > 0 || r.reordered > 0 {
			failed = errors.Join(failed, fmt.Errorf("%s, Postgres %s: %.0f rows lost, %.0f reordered", c.name(), r.version, r.lost, r.reordered))
		}
	}
	return failed
}
