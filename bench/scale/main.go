// Command scale derives the resources for a number of messages a second from the figures in docs/benchmarks.md.
//
//	go run -C bench ./scale
//	go run -C bench ./scale --rates 25000 --bytes 2000 --busy 0.4
//	go run -C bench ./scale --measure
//
// A message here is a row of an outbox that a relay publishes to Kafka and a participant handles, in whose transaction the answer
// is written: the next message. Its cost is the processor time of five programs, which were measured one by one with batches of
// 100, and together with whole sagas, in batches of ten or so: there are two tables, and the cost of a real design is between
// them. The results assume an even distribution, which keys and databases never have: they are where a design begins, not where
// it ends.
//
// --measure prints how many bytes a message leaves in Postgres and its log, measured with a server of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/troupe-go/troupe/bench/harness"
)

// costs holds medians of docs/benchmarks.md. A test compares them with the page.
type costs struct {
	name                       string
	participant, participantPG float64 // us a message
	relay, relayPG, broker     float64 // us a message, of a backlog read from the log
	relayRate                  float64 // rows/s that one relay published from one database, on two cores with all the others
	consumerRate               float64 // messages/s that one participant handled on eight partitions, on two cores with Postgres
	commitRate, writers        float64 // commits/s of single rows, by that many writers
}

var (
	batched = costs{
		name: "everything in batches of 100", participant: 19.8, participantPG: 29.3, relay: 7.10, relayPG: 4.98, broker: 7.86,
		relayRate: 91042, consumerRate: 30363, commitRate: 8008, writers: 8,
	}
	sagas = batched.asSagas(0.61, 0.66, 8)
)

// asSagas returns c with the costs of whole sagas: of Go, which was coordinator, participants, relays and the broker, and of
// Postgres, in ms for that many messages.
func (c costs) asSagas(goMS, pgMS, messages float64) costs {
	c.name = "as whole sagas had it, in batches of ten or so"
	c.participant = 1000*goMS/messages - c.relay - c.broker
	c.participantPG = 1000*pgMS/messages - c.relayPG
	return c
}

const measuredPartitions = 8

// A design holds the requirements.
type design struct {
	rate     float64 // messages/s over all hops
	bytes    float64 // of a message on the wire and in the table
	busy     float64 // share of the measured capacity that is used in quiet times
	hops     float64 // messages of a flow: one of them is the commit of a request
	replicas float64 // of a partition
}

// needs holds the derived resources.
type needs struct {
	databases, relays, partitions      int
	participants, databaseCores        int // cores
	relayCores, brokerCores            int
	writersPerDatabase                 int
	networkPerSecond, journalPerSecond float64 // MB over all brokers, and over all databases
}

func (c costs) of(d design) (n needs) {
	cores := func(us float64) int { return up(d.rate * us / 1e6 / d.busy) }
	n.databases = up(d.rate / (c.relayRate * d.busy))
	n.relays = 2 * n.databases // one publishes, one is a standby
	n.partitions = up(d.rate / (c.consumerRate / measuredPartitions * d.busy))
	n.participants = cores(c.participant)
	n.databaseCores = cores(c.participantPG + c.relayPG)
	n.relayCores = cores(c.relay)
	n.brokerCores = cores(c.broker * d.replicas)
	n.writersPerDatabase = up(d.rate / d.hops / float64(n.databases) / (c.commitRate / c.writers))
	n.networkPerSecond = d.rate * d.bytes * (1 + (d.replicas - 1) + 1) / 1e6 // in, to the followers, and out once
	n.journalPerSecond = d.rate * (d.bytes + journalOverhead) / 1e6
	return n
}

// journalOverhead is the number of bytes that a message writes to Postgres' log beyond its own: the rest of its row in the
// outbox, and its id in the inbox; see --measure. The handler's own writes are not included, nor whole pages after each
// checkpoint.
const journalOverhead = 848 - 600 + 210

func up(x float64) int { return max(int(math.Ceil(x-1e-9)), 1) }

// print writes a table for each way in which messages were measured.
func (d design) print(w io.Writer, rates []float64) {
	fmt.Fprintf(w, "messages of %.0f bytes, %.0f in a flow, %.0f replicas; planned for %.0f %% of what was measured\n\n", d.bytes, d.hops, d.replicas, 100*d.busy)
	batched.print(w, d, rates)
	fmt.Fprintln(w)
	sagas.print(w, d, rates)
}

func (c costs) print(w io.Writer, d design, rates []float64) {
	fmt.Fprintf(w, "%s: %.0f us of Go and %.0f us of Postgres a message\n", c.name, c.participant+c.relay, c.participantPG+c.relayPG)
	fmt.Fprintf(w, "%-34s", "messages/s")
	all := make([]needs, len(rates))
	for i, rate := range rates {
		d.rate = rate
		all[i] = c.of(d)
		fmt.Fprintf(w, "%12s", thousands(int(rate)))
	}
	row := func(name string, value func(needs) string) {
		fmt.Fprintf(w, "\n%-34s", name)
		for _, n := range all {
			fmt.Fprintf(w, "%12s", value(n))
		}
	}
	row("outbox databases", func(n needs) string { return thousands(n.databases) })
	row("relays, with a standby each", func(n needs) string { return thousands(n.relays) })
	row("partitions over all topics", func(n needs) string { return thousands(n.partitions) })
	row("cores of participants", func(n needs) string { return thousands(n.participants) })
	row("cores of Postgres", func(n needs) string { return thousands(n.databaseCores) })
	row("cores of relays", func(n needs) string { return thousands(n.relayCores) })
	row("cores of brokers", func(n needs) string { return thousands(n.brokerCores) })
	row("requests at once, each database", func(n needs) string { return thousands(n.writersPerDatabase) })
	row("MB/s over the brokers' network", func(n needs) string { return thousands(up(n.networkPerSecond)) })
	row("MB/s of Postgres's log", func(n needs) string { return thousands(up(n.journalPerSecond)) })
	fmt.Fprintln(w)
}

func thousands(n int) string {
	text := strconv.Itoa(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

var usual = design{bytes: 600, busy: 0.5, hops: 7, replicas: 3}

func main() {
	d := usual
	rates := flag.String("rates", "1000,10000,100000,1000000", "`messages` a second, several with commas between")
	flag.Float64Var(&d.bytes, "bytes", d.bytes, "`bytes` of a message")
	flag.Float64Var(&d.busy, "busy", d.busy, "`share` of what was measured that is planned for, above 0 and up to 1")
	flag.Float64Var(&d.hops, "hops", d.hops, "`messages` of a flow, of which the first is a request's own commit")
	flag.Float64Var(&d.replicas, "replicas", d.replicas, "`replicas` of each partition")
	measure := flag.Bool("measure", false, "say what a message leaves in Postgres and its log, instead")
	harness.Main("scale", "Derives resources from measured costs.\n\n  go run -C bench ./scale --rates 25000 --bytes 2000 --busy 0.4", func(ctx context.Context) error {
		return run(ctx, d, *rates, *measure)
	})
}

func run(ctx context.Context, d design, rates string, measure bool) error {
	if measure {
		return printFootprint(ctx, os.Stdout)
	}
	if d.busy <= 0 || d.busy > 1 || d.bytes <= 0 || d.hops < 1 || d.replicas < 1 {
		return fmt.Errorf("--busy %v --bytes %v --hops %v --replicas %v: want a share up to 1, and numbers from 1 on", d.busy, d.bytes, d.hops, d.replicas)
	}
	var all []float64
	for text := range strings.SplitSeq(rates, ",") {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || rate <= 0 || math.IsInf(rate, 0) {
			return fmt.Errorf("--rates %q: want messages a second", text)
		}
		all = append(all, rate)
	}
	d.print(os.Stdout, all)
	return nil
}
