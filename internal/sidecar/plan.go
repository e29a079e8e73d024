package sidecar

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/address"
	desk "github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/alert"
	"github.com/troupe-go/troupe/internal/traces"
	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/relay"
)

// A plan is the validated configuration of the command run.
type plan struct {
	admin    string
	token    string
	tokenNow *latest // the current token of its file
	level    zerolog.Level
	otlp     string // endpoint of a collector; "": no spans
	outboxes []outboxPlan
}

// An outboxPlan is the configuration of one relay.
type outboxPlan struct {
	name       string
	database   *pgxpool.Config
	relay      relay.Config
	table      desk.Table // as repair commands and checks take it; the zero value is troupe.outbox
	alert      alert.Config
	inTheClear string            // as of Servers
	given      map[string]string // the settings as text, secrets included: a reload compares them; never print them
}

// leastToken is the minimum length of a token: a shorter one can be guessed.
const leastToken = 16

// plan reads and validates all settings. It returns the first error, which is of usage.
func (p Program) plan(cmd *cobra.Command, log zerolog.Logger) (plan, error) {
	l, err := p.load(cmd)
	if err != nil {
		return plan{}, err
	}
	process, err := l.process(adminAddress, adminToken, logLevel, otlpEndpoint)
	if err != nil {
		return plan{}, err
	}
	out, err := process.processPlan()
	if err != nil {
		return plan{}, err
	}
	if len(l.outboxes) == 0 {
		v, err := l.process(eachSettings...)
		if err != nil {
			return plan{}, err
		}
		one, err := p.outboxPlan(v, log)
		out.outboxes = []outboxPlan{one}
		return out, err
	}
	for _, e := range l.outboxes {
		v, err := l.of(e, eachSettings...)
		if err != nil {
			return plan{}, err
		}
		one, err := p.outboxPlan(v, log)
		if err != nil {
			return plan{}, usagef("outbox %s: %w", e.name, err)
		}
		out.outboxes = append(out.outboxes, one)
	}
	return out, checkTogether(out.outboxes)
}

// checkTogether refuses two outboxes that are the same table: one of their relays would publish it, and the other would stand by without an
// error. It refuses two of one server that have the same slot: their relays would end each other's streams, and drop the slot. It also
// refuses two with exactly-once delivery that have the same transactional id in Kafka: their relays would fence each other.
func checkTogether(all []outboxPlan) error {
	tables, slots, ids := make(map[string]string), make(map[string]outboxPlan), make(map[string]string)
	for _, o := range all {
		server, table := o.server(), o.tableID()
		if other, there := tables[table]; there {
			return usagef("outboxes %s and %s: both are one table of one database, which one relay publishes: leave one of them out", other, o.name)
		}
		tables[table] = o.name
		slot := cmp.Or(o.relay.Slot, wal.DefaultSlot(o.databaseName(), o.relay.Table))
		other, there := slots[server+" "+slot]
		if there && (o.relay.Source != relay.Poll || other.relay.Source != relay.Poll) {
			return usagef("outboxes %s and %s: both have slot %s of one server, which has one reader: give one of them another slot",
				other.name, o.name, slot)
		}
		slots[server+" "+slot] = o
		if o.relay.Delivery != relay.ExactlyOnce {
			continue
		}
		id := slot + " " + strings.Join(slices.Sorted(slices.Values(o.relay.Brokers)), " ")
		if other, there := ids[id]; there {
			return usagef("outboxes %s and %s: both deliver exactly once, and have one slot name, which is their transactional id in Kafka: "+
				"give one of them another slot", other, o.name)
		}
		ids[id] = o.name
	}
	return nil
}

func (v values) processPlan() (out plan, err error) {
	if out.admin, err = v.address(adminAddress); err != nil {
		return out, err
	}
	level, err := v.oneOf(logLevel)
	if err != nil {
		return out, err
	}
	if out.level, err = zerolog.ParseLevel(level); err != nil {
		return out, err
	}
	if out.otlp = v.text[otlpEndpoint.name]; out.otlp != "" {
		if err := address.CheckURL(out.otlp); err != nil {
			return out, usagef("%s (from %s): %w: want http://host:4318, of a collector that takes OTLP over HTTP",
				otlpEndpoint.name, v.from[otlpEndpoint.name], err)
		}
		if err := traces.CheckEnvironment(); err != nil {
			return out, usageError{err}
		}
	}
	out.token, out.tokenNow = v.text[adminToken.name], v.latest(adminToken, isToken)
	return out, v.guarded(adminAddress, adminToken)
}

// guarded refuses an address that other machines can reach if there is no token, and a token that can be guessed.
func (v values) guarded(address, token setting) error {
	token.program = v.program
	text := v.text[token.name]
	if text == "" {
		if loopback, err := isLoopback(v.text[address.name]); err != nil || !loopback {
			return v.bad(address, "an address of loopback, such as 127.0.0.1:8089, since no "+token.name+
				" is set; set "+token.variable()+"_FILE, or --"+token.fileName())
		}
	} else if len(text) < leastToken {
		return usagef("%s (from %s): want %d characters or more", token.name, v.from[token.name], leastToken)
	}
	return nil
}

// codec returns the codec that the setting compression names.
func (v values) codec() (kgo.CompressionCodec, error) {
	name, err := v.oneOf(compression)
	switch name {
	case "gzip":
		return kgo.GzipCompression(), err
	case "snappy":
		return kgo.SnappyCompression(), err
	case "lz4":
		return kgo.Lz4Compression(), err
	case "zstd":
		return kgo.ZstdCompression(), err
	}
	return kgo.NoCompression(), err
}

func (p Program) outboxPlan(v values, log zerolog.Logger) (outboxPlan, error) {
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	out := outboxPlan{name: v.outbox, given: v.text, inTheClear: v.inTheClear()}
	var err error
	out.database, err = v.database()
	keep(err)
	r := &out.relay
	r.Source = relay.Source(v.text[source.name])
	r.Delivery = relay.Delivery(v.text[delivery.name])
	r.Slot = v.text[slot.name]
	standbys, err := v.oneOf(failover)
	keep(err)
	r.Failover = standbys
	r.Publication = v.text[publicationSetting.name]
	keep(v.avro(r))
	of, err := v.table()
	keep(err)
	if of.Mapping != nil {
		r.Table, r.Mapping, out.table = of.Name, of.Mapping.Config().Options(), of
		out.given = maps.Clone(v.text)
		out.given[mappingKey] = fmt.Sprint(v.mapping) // in the order of its keys
	}
	r.Brokers, err = v.brokerList()
	keep(err)
	r.Kafka, err = v.kafka()
	keep(err)
	keep(v.offered())
	codec, err := v.codec()
	keep(err)
	r.Kafka = append(r.Kafka, kgo.ProducerBatchCompression(codec))
	r.Shards, err = v.number(shards)
	keep(err)
	r.Batch, err = v.number(batch)
	keep(err)
	r.Retry.Attempts, err = v.number(retryAttempts)
	keep(err)
	for s, field := range map[*setting]*int64{&slotWarn: &r.SlotWarn, &slotUnready: &r.SlotUnready, &slotLimit: &r.SlotLimit} {
		megabytes, err := v.number(*s)
		keep(err)
		*field = int64(megabytes) << 20
	}
	for s, field := range map[*setting]*time.Duration{
		&retentionSetting: &r.Retention, &interval: &r.Interval, &lease: &r.Lease, &drain: &r.Drain, &unknownTopic: &r.UnknownTopic,
		&retryInitial: &r.Retry.Initial, &retryCap: &r.Retry.Cap,
		&transactions: &r.Transactions, &transactionTimeout: &r.TransactionTimeout,
	} {
		*field, err = v.duration(*s)
		keep(err)
	}
	if first != nil {
		return outboxPlan{}, first
	}
	if p.Dial != nil {
		out.database.ConnConfig.DialFunc = p.Dial
	}
	r.Service = cmp.Or(v.text[service.name], out.database.ConnConfig.Database)
	if r.Service == "" {
		return outboxPlan{}, v.required(service, "a name, since the database's name is not in "+databaseURL.name)
	}
	out.name = cmp.Or(out.name, r.Service)
	r.Kafka = append(r.Kafka, p.Kafka...)
	r.Log = log.With().Str("service", r.Service).Logger()
	if v.outbox != "" {
		r.Log = r.Log.With().Str("outbox", v.outbox).Logger()
	}
	out.alert = alert.Config{URL: v.text[alertURL.name], Source: r.Service, Drain: 2 * time.Second, Log: r.Log}
	if err := out.alert.Validate(); err != nil { // the value itself is a secret
		return outboxPlan{}, usagef("%s (from %s): %w", alertURL.name, v.from[alertURL.name], err)
	}
	return out, nil
}

// server identifies the database server by its address.
func (o outboxPlan) server() string {
	return fmt.Sprintf("%s %d", o.database.ConnConfig.Host, o.database.ConnConfig.Port)
}

// databaseName returns the name of the outbox's database. If the address names none, Postgres connects to the database with the user's name.
func (o outboxPlan) databaseName() string {
	return cmp.Or(o.database.ConnConfig.Database, o.database.ConnConfig.User)
}

// tableID identifies the table of the outbox.
func (o outboxPlan) tableID() string {
	return fmt.Sprintf("%s %s %s", o.server(), o.databaseName(), o.relay.Table)
}

// changed returns the names of the settings that differ.
func (o outboxPlan) changed(from outboxPlan) []string {
	var names []string
	all := maps.Clone(from.given)
	maps.Copy(all, o.given)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if o.given[name] != from.given[name] {
			names = append(names, name)
		}
	}
	return names
}

// offered refuses unknown values, and settings that exclude each other.
func (v values) offered() error {
	switch v.text[source.name] {
	case "auto", "wal", "poll":
	default:
		return v.bad(source, "auto, wal or poll")
	}
	if n, err := v.number(shards); err == nil && n > 1 &&
		(v.text[source.name] == "wal" || v.text[delivery.name] == "exactly-once") {
		return usagef("shards (from %s): only the poll source is divided: set source to poll, or leave shards out", v.from[shards.name])
	}
	switch v.text[delivery.name] {
	case "at-least-once":
		return nil
	case "exactly-once":
		if v.text[source.name] == "poll" {
			return usagef("delivery (from %s): exactly-once needs the wal source: set source to wal or auto, or use at-least-once, "+
				"where a repeat carries the same ce_id", v.from[delivery.name])
		}
		return nil
	}
	return v.bad(delivery, "at-least-once or exactly-once")
}

// leveled drops log lines below a level. The level can change while loggers are in use.
type leveled struct {
	io.Writer
	least atomic.Int32
}

func (l *leveled) set(level zerolog.Level) { l.least.Store(int32(level)) }

// WriteLevel implements zerolog.LevelWriter.
func (l *leveled) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	if level < zerolog.Level(l.least.Load()) {
		return len(line), nil
	}
	return l.Write(line)
}
