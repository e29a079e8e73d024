package relay

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/relay/mapping"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/topics"
)

// Config of a Relay. Pool, Brokers and Service are required.
type Config struct {
	// Pool is the service's database. The relay lends no connection from it. It opens sessions of its own with the pool's
	// configuration, so that neither the settings of the role nor code of yours changes what they do: at most 4 at a time, one
	// more for each shard while it is active, for claims and deletes, and with several shards another one, for looks.
	Pool *pgxpool.Pool
	// Brokers are host:port.
	Brokers []string
	// Service is ce_source for rows that name none.
	Service string
	// ContentType of rows that name none, by topic. Default: application/json.
	ContentType func(topic string) string

	// Table is the outbox, as schema.table. Default troupe.outbox; any other wants a Mapping.
	Table string
	// Mapping makes messages of the rows of a Table that is not troupe.outbox, which is read from the log alone and never
	// written to. The relay's own tables must be in its database (package migrations).
	Mapping *mapping.Mapping
	// Avro, if set, encodes payloads that are JSON with the schemas of its registry. A row that does not encode is parked;
	// a subject without a schema is waited for as a topic that does not exist, and the registry as long as it is away.
	Avro *schemas.JSONEncoder
	// AvroTopic says which topics Avro is for. Default: all.
	AvroTopic func(topic string) bool

	// Source is where rows are read from. Default Auto.
	Source Source
	// Slot is the name of the replication slot, of the cluster. Default: troupe_ and the database's name, and the Table's
	// where that is not troupe.outbox.
	Slot string
	// Publication is what is streamed. Default: troupe_outbox, which the migrations make; of another Table the default
	// slot's name. The relay makes that where it is missing and the role owns the table.
	Publication string
	// Failover keeps the slot on standbys too (Postgres 17 and newer, with sync_replication_slots there).
	Failover bool

	// SlotWarn is how many bytes of its log the server may keep for the slot before the relay warns. Default 1 GiB.
	SlotWarn int64
	// SlotUnready is how many before Ready is an error. Default 8 GiB, at least SlotWarn.
	SlotUnready int64
	// SlotLimit is how many before the relay drops the slot, rather than fill the server's disk, and polls the table until
	// it is started again. Nothing is lost by that. Default 0: never.
	SlotLimit int64
	// Delivery is what a consumer may see twice. Default AtLeastOnce.
	Delivery Delivery
	// Transactions is how often a Kafka transaction ends, under ExactlyOnce: how long a row may wait before consumers
	// that read committed messages see it. Default 100 ms, at least 5 ms. After a pause the first ends at once.
	Transactions time.Duration
	// TransactionTimeout is after what time the broker gives up a Kafka transaction: how long such consumers may wait for
	// a relay that died with nobody to take over. One Postgres transaction must be published within it. Default 1 min,
	// Kafka's own; at least 5 s and at most the broker's transaction.max.timeout.ms.
	TransactionTimeout time.Duration

	// Shards is into how many a relay that polls divides the outbox, by key: each is published on its own, by one relay or
	// by several. The number of the relay that leads holds for all, see the package comment. Default 1, at most 64; a
	// stream is not divided.
	Shards int
	// Batch is how many rows are claimed at once. Default 2000, at most 10,000; shards have
	// smaller ones, so that they take no more memory. A claim also ends behind 4 MB.
	Batch int
	// Interval is the longest time between two looks at an idle outbox: how long a row waits that came without a
	// notification. Default 1 s. Looks begin 5 ms after the last row and then get rarer.
	Interval time.Duration
	// Lease is how long a standby waits for a relay that died. Default 5 s, at least 500 ms. Renewed at a third. Relays of one
	// outbox should have the same: one that lasts longer than twice this, and than two minutes, is taken for a lease from a
	// database clock that was ahead, and is free.
	Lease time.Duration
	// Holder is this relay in the lease table and in logs. Default hostname-pid-random. No two may share one.
	Holder string

	// Retry of a row whose topic refuses us (ACL). When it is exhausted the row is parked.
	Retry retry.Policy
	// UnknownTopic is how long a row whose topic does not exist is tried before it is parked, and how long one that the
	// broker takes nothing of holds rows of others up. Default 60 s.
	UnknownTopic time.Duration

	// Retention is how long rows that a stream has published stay in the table at least, to be replayed. Whole partitions
	// go, see outbox.Retention; under Poll a row goes when it is published. Default 1 h; negative: none.
	Retention time.Duration

	// Drain is how long Run may wait for acknowledgements after it was asked to stop. Default 10 s.
	Drain time.Duration

	// Kafka options win over the relay's own, but for those that its order of rows rests on.
	Kafka []kgo.Opt
	Hooks Hooks
	Log   zerolog.Logger
}

// Hooks are told what happens, for metrics and tests. Any may be nil. They run in the relay's own goroutines: one that
// waits delays the relay. Sent may run at the same time as any other; with several shards, any of them.
type Hooks struct {
	// Claimed: rows were read, none of them was published yet.
	Claimed func(rows int)
	// BeforeSend: rows are about to be sent.
	BeforeSend func(rows int)
	// Sent: a produce request was written to a broker; rows are in flight.
	Sent func(rows int)
	// Acked: the broker has acknowledged rows, which are not deleted yet. Took is the time from BeforeSend.
	Acked func(rows int, took time.Duration)
	// Ending: a Kafka transaction of rows is complete and is about to be committed. Only under ExactlyOnce.
	Ending func(rows int)
	// Deleted: rows are done.
	Deleted func(rows int)
	// Troubled: a row could not be published, and waits for its next try or for a person.
	Troubled func(Trouble)
	// Leading: this relay took the lease.
	Leading func(term int64)
	// Standing: this relay's term ended; the cause is nil when it was asked to stop.
	Standing func(cause error)
}

// A Relay publishes the rows of one outbox. Make one with New and run it once.
type Relay struct {
	cfg    Config
	state  state
	ran    atomic.Bool
	mapped *mappedTable  // nil: the table is troupe.outbox
	pool   *pgxpool.Pool // of Run: the relay's own sessions, for all that is not of one server
	quiet  quiet
	gate   gate
	shards sharing
	looker *looker
	stuck  stuck
	flight atomic.Int64 // rows handed to the client and not settled

	checkpointTopic string // of the checkpoint under exactly-once; rows may not go there

	givenUp   atomic.Bool   // the slot held more than it may
	slotMoved chan struct{} // told when it is streamed anew
	large     *wal.LSN      // behind which a transaction did not fit; of the goroutine that publishes
	reading   time.Duration // checkpointTimeout
	silence   time.Duration // maxSilence
	answer    time.Duration // maxAnswer
}

const (
	claimBytes = 4 << 20 // payload and headers of one claim, but for its last row
	firstWait  = 5 * time.Millisecond
	// batchBytes is Kafka's own default for the largest record batch that a topic takes (max.message.bytes).
	batchBytes = 1_048_588
)

// New checks the configuration and fills its gaps. It connects to nothing.
func New(cfg Config) (*Relay, error) {
	fill(&cfg.Source, Auto)
	fill(&cfg.Table, ownTable)
	if cfg.Pool != nil {
		cfg.nameSlot(cfg.Pool.Config().ConnConfig.Database)
	}
	fill(&cfg.SlotWarn, 1<<30)
	fill(&cfg.SlotUnready, max(8<<30, cfg.SlotWarn))
	fill(&cfg.Delivery, AtLeastOnce)
	if cfg.Delivery == ExactlyOnce && cfg.Source == Auto {
		cfg.Source = WAL
	}
	fill(&cfg.Transactions, 100*time.Millisecond)
	fill(&cfg.TransactionTimeout, time.Minute)
	fill(&cfg.Batch, 2000)
	fill(&cfg.Shards, 1)
	fill(&cfg.Interval, time.Second)
	fill(&cfg.Lease, 5*time.Second)
	fill(&cfg.UnknownTopic, time.Minute)
	fill(&cfg.Retention, time.Hour)
	fill(&cfg.Drain, 10*time.Second)
	if cfg.Holder == "" {
		cfg.Holder = newHolder()
	}
	cfg.Retry = cfg.Retry.WithDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	r := &Relay{cfg: cfg, quiet: quiet{log: cfg.Log}, slotMoved: make(chan struct{}, 1), reading: checkpointTimeout, silence: maxSilence, answer: maxAnswer}
	r.checkpointTopic = topics.Relay(cfg.Slot)
	r.shards.moved = make(chan struct{})
	r.looker = newLooker(r)
	if cfg.Mapping != nil {
		var err error
		if r.mapped, err = newMappedTable(cfg.Table, cfg.Mapping); err != nil {
			return nil, fmt.Errorf("relay: %w", err)
		}
	}
	client, err := r.newClient() // the options are checked by nothing else
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	client.Close()
	r.state.status = Status{Table: cfg.Table, Holder: cfg.Holder, Role: Starting, Since: time.Now(), Delivery: cfg.Delivery}
	return r, nil
}

// nameSlot fills slot and publication. Names of slots are shared by all databases of a cluster.
func (c *Config) nameSlot(database string) {
	if c.Table == ownTable {
		fill(&c.Slot, slotOf(database))
		fill(&c.Publication, publication)
		return
	}
	name := slotOf(database + "." + c.Table)
	fill(&c.Slot, name)
	fill(&c.Publication, name)
}

func (c *Config) check() error {
	if err := c.checkTable(); err != nil {
		return err
	}
	switch {
	case c.Pool == nil:
		return errors.New("no pool")
	case c.Pool.Config().MaxConns < 4:
		return fmt.Errorf("a pool of %d connections: want 4 or more", c.Pool.Config().MaxConns)
	case c.Service == "":
		return errors.New("no service name")
	case c.Source != Auto && c.Source != WAL && c.Source != Poll:
		return fmt.Errorf("source %q: want auto, wal or poll", c.Source)
	case !slotName.MatchString(c.Slot):
		return fmt.Errorf("slot %q: want 1 to 63 of a-z, 0-9 and _", c.Slot)
	case c.SlotWarn < 0 || c.SlotUnready < c.SlotWarn || c.SlotLimit < 0:
		return fmt.Errorf("slot warn %d, unready %d, limit %d: want no negative number, and unready no less than warn",
			c.SlotWarn, c.SlotUnready, c.SlotLimit)
	case c.Delivery != AtLeastOnce && c.Delivery != ExactlyOnce:
		return fmt.Errorf("delivery %q: want at-least-once or exactly-once", c.Delivery)
	case c.Delivery == ExactlyOnce && c.Source == Poll:
		return errors.New("delivery exactly-once needs source wal: a poll's deletes and Kafka's transactions cannot end together")
	case c.Transactions < 5*time.Millisecond:
		return fmt.Errorf("transactions every %s: want 5ms or more", c.Transactions)
	case c.TransactionTimeout < 5*time.Second || c.TransactionTimeout < 10*c.Transactions:
		return fmt.Errorf("transaction time-out %s: want 5s or more, and ten times the %s between two transactions",
			c.TransactionTimeout, c.Transactions)
	case c.Shards < 1 || c.Shards > mostShards:
		return fmt.Errorf("shards %d: want 1 to %d", c.Shards, mostShards)
	case c.Shards > 1 && (c.Source == WAL || c.Delivery == ExactlyOnce):
		return fmt.Errorf("shards %d: only the poll source is divided; a stream needs no shards: leave them out, or set source to poll", c.Shards)
	case c.Batch < 1 || c.Batch > 10_000:
		return fmt.Errorf("batch %d: want 1 to 10000", c.Batch)
	case c.Interval < firstWait:
		return fmt.Errorf("interval %s: want %s or more", c.Interval, firstWait)
	case c.Lease < 500*time.Millisecond:
		return fmt.Errorf("lease %s: want 500ms or more", c.Lease)
	case c.UnknownTopic < 0 || c.Drain < 0:
		return fmt.Errorf("unknown topic %s, drain %s: want no negative time", c.UnknownTopic, c.Drain)
	}
	return c.Retry.Validate()
}

// checkTable refuses what cannot be done to a table that is not ours: nothing there says which rows are published, so it
// cannot be polled, and rows are not taken out of it.
func (c *Config) checkTable() error {
	mapped := c.Table != ownTable
	switch {
	case mapped && c.Mapping == nil:
		return fmt.Errorf("table %s: want a mapping", c.Table)
	case !mapped && c.Mapping != nil:
		return fmt.Errorf("a mapping is for a table other than %s: name it", ownTable)
	case mapped && c.Source == Poll:
		return fmt.Errorf("table %s: source poll is for %s alone, since it deletes the rows it publishes: use wal", c.Table, ownTable)
	case mapped && c.SlotLimit > 0:
		return fmt.Errorf("table %s: a slot limit of %d bytes: it would be polled from there on, which is for %s alone; "+
			"the server's max_slot_wal_keep_size bounds the slot too", c.Table, c.SlotLimit, ownTable)
	case mapped && c.Avro != nil && c.Mapping.Config().Headers == mapping.EventRouter && c.Avro.Strategy() != schemas.TopicName:
		return fmt.Errorf("table %s: subject strategy %s wants the event's type, which %s: eventrouter leaves out: use %s",
			c.Table, c.Avro.Strategy(), "headers", schemas.TopicName)
	}
	return nil
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func newHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	return host + "-" + strconv.Itoa(os.Getpid()) + "-" + hex.EncodeToString(random)
}

func (r *Relay) defaults() outbox.Defaults {
	return outbox.Defaults{Source: r.cfg.Service, ContentType: r.cfg.ContentType}
}

// newClient makes the client of one term.
func (r *Relay) newClient(more ...kgo.Opt) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.ProducerBatchMaxBytes(batchBytes),
		kgo.UnknownTopicRetries(1), // fail fast: the row is tried again, and others go on meanwhile
	}
	if r.mapped != nil {
		opts = append(opts, kgo.RecordPartitioner(placedPartitioner{kgo.StickyKeyPartitioner(nil)}))
	}
	opts = append(opts, r.cfg.Kafka...)
	opts = append(opts,
		kgo.ManualFlushing(), // see sender
		kgo.MaxBufferedRecords(20_000),
		kgo.WithHooks(wire{r}),
	)
	opts = append(opts, more...)
	return kafka.NewClient(r.cfg.Brokers, opts...)
}
