package relay

import (
	"cmp"
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
	"github.com/troupe-go/troupe/internal/mapping"
	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/schemas"
)

// Config configures a Relay. Pool, Brokers and Service are required.
type Config struct {
	// Pool leads to the service's database. The relay takes no connection from it, but opens sessions with the pool's configuration, and sets
	// in each session the settings that it relies on. It opens at most 4 sessions at a time, one more for each shard that it holds, and with
	// several shards another one that looks for rows in all of them.
	Pool *pgxpool.Pool
	// Brokers are addresses of the form host:port.
	Brokers []string
	// Service is the ce_source of rows that name none. For such a row of a mapped table, if its id is no UUID of version 1, 4, 6 or 7, the
	// ce_source is Service, "/" and the table's name, since two tables of the service may use the same numbers as ids.
	Service string
	// ContentType returns the content type of rows that name none, by topic. Default: application/json for all topics.
	ContentType func(topic string) string

	// Table is the outbox, as schema.table. Default troupe.outbox; any other table requires a Mapping.
	Table string
	// Mapping turns the rows of a Table other than troupe.outbox into messages. It has the options of Debezium's EventRouter, by name, as in
	// outbox-relay's settings. An empty map means Debezium's defaults. The relay reads such a table from the log alone, and never writes to
	// it. The relay's own tables must be in the same database (package migrations).
	Mapping map[string]string
	// Avro encodes JSON payloads with the schemas of its registry; nil: payloads are not encoded. A row whose payload does not fit its
	// schema is parked. A row whose subject has no schema is tried like one whose topic does not exist. While the registry is unavailable,
	// rows wait.
	Avro *schemas.JSONEncoder
	// AvroTopic selects the topics that Avro applies to. Default: all.
	AvroTopic func(topic string) bool

	// Source selects where rows are read from. Default Auto; WAL under ExactlyOnce.
	Source Source
	// Slot is the name of the replication slot, unique in the cluster. Default: troupe_ and the database's name, and the
	// Table's name if it is not troupe.outbox.
	Slot string
	// Publication is the publication that the slot streams. Default: troupe_outbox, which the migrations create. For another Table the
	// default is the default name of the Slot, and the relay creates the publication if it is missing and the role owns the table.
	Publication string
	// Failover selects whether standbys with sync_replication_slots = on copy the slot, so that a promoted standby has it. "auto": they do
	// from Postgres 17 on, unless the server refuses. "on": they do, and no slot is created if the server cannot. "off": they do not.
	// Default "auto".
	Failover string

	// SlotWarn is the size of the log kept for the slot, in bytes, above which the relay logs a warning. Default 1 GiB.
	SlotWarn int64
	// SlotUnready is the size of this log, in bytes, above which Ready returns an error. Default 8 GiB, at least SlotWarn.
	SlotUnready int64
	// SlotLimit is the size of this log, in bytes, above which the relay drops the slot, so that the server's disk does not fill. This
	// process then polls the table until it ends; a relay that starts or takes over later streams again. No row is lost. Default 0: no
	// limit.
	SlotLimit int64
	// Delivery selects which repeats a consumer may see. Default AtLeastOnce.
	Delivery Delivery
	// Transactions is the time between the ends of two Kafka transactions under ExactlyOnce. A row may wait for that long before consumers
	// that read committed messages see it. After an idle time the first transaction ends at once. Default 100 ms, at least 5 ms.
	Transactions time.Duration
	// TransactionTimeout is the time after which the broker aborts a Kafka transaction. Consumers that read committed messages may wait for
	// that long if a relay dies and no standby takes over. One Postgres transaction must be published within it. Default 1 min, which is
	// Kafka's own; at least 5 s and ten times Transactions, and at most the broker's transaction.max.timeout.ms.
	TransactionTimeout time.Duration

	// Shards is the number of parts into which a relay that polls divides the outbox, by key. Each shard is published on its own, by one
	// relay or by several. The leader's number applies to all relays, see the package comment. Default 1, at most 64. A stream is not
	// divided.
	Shards int
	// Batch is the number of rows of a claim. Default 2000, at most 10,000. With several shards claims are smaller, so that together they
	// use no more memory. A claim also ends after 4 MB.
	Batch int
	// Interval is the longest time between two looks at an idle outbox. A row waits for that long if its notification is missing. Default
	// 1 s. The first look is 5 ms after the last row, and the next ones are less and less frequent.
	Interval time.Duration
	// Lease is the longest time that a standby waits for a relay that died. Under poll it is the length of the lease, which is renewed when
	// a third of it has passed. Under wal the lease is longer, since a standby also sees that the slot is idle. Default 5 s, at least 500
	// ms.
	//
	// Relays of one outbox should have the same value. If the lease of another relay lasts longer than twice this value and longer than two
	// minutes, the relay takes it: it assumes that the database's clock was ahead when that lease was taken.
	Lease time.Duration
	// Holder names this relay in the lease table and in logs. Default hostname-pid-random. It must be unique.
	Holder string

	// Retry is the policy for a row whose topic the broker denies (ACL). When it is exhausted the row is parked.
	Retry retry.Policy
	// UnknownTopic is the time for which a row whose topic does not exist is tried before it is parked. It also limits how long one topic
	// delays the rows of others, if the broker refuses the topic's records for other reasons, or if a partition has no leader or not enough
	// replicas in sync (then the limit is at least 15 s). Default 60 s.
	UnknownTopic time.Duration

	// Retention is the shortest time for which rows that a stream has published stay in the table, so that they can be replayed. After that
	// the relay drops whole partitions, see package internal/retention. Default 1 h. A negative value means no time: a partition is dropped as
	// soon as all of its rows are published. Under Poll it has no effect, since a row is deleted when it is published.
	Retention time.Duration

	// Drain is the longest time that Run waits for acknowledgements after its context has ended. Default 10 s.
	Drain time.Duration

	// Kafka holds further options of the Kafka clients. They override the relay's own options, except ManualFlushing, MaxBufferedRecords,
	// AllowIdempotentProduceCancellation, TransactionalID and TransactionTimeout. New and a replay refuse DisableIdempotentWrite: without
	// idempotent writes, and acknowledgements by all replicas in sync, rows could be lost or change their order. A RecordPartitioner must
	// give all records of a key the same partition.
	Kafka []kgo.Opt
	Hooks Hooks
	Log   zerolog.Logger
}

// Hooks are called for events, for metrics and tests. Each may be nil. They run in the relay's own goroutines, so a hook that blocks delays
// the relay. Sent may run concurrently with any other hook. With several shards, all hooks may run concurrently.
type Hooks struct {
	// Claimed is called when rows were read, before any of them is published.
	Claimed func(rows int)
	// BeforeSend is called when rows are about to be sent.
	BeforeSend func(rows int)
	// Sent is called when a produce request was written to a broker. rows is the number of rows in flight.
	Sent func(rows int)
	// Acked is called when the broker has acknowledged rows, before they are deleted. took is the time since BeforeSend.
	Acked func(rows int, took time.Duration)
	// Ending is called when a Kafka transaction of rows is complete and is about to be committed. Only under ExactlyOnce.
	Ending func(rows int)
	// Traced is called for each published row whose writer has a sampled trace, but under ExactlyOnce for at most 10,000 rows of a Kafka
	// transaction. A replay does not call it.
	Traced func(outbox.PublishedRow)
	// Deleted is called when acknowledged rows are settled. Under Poll they are deleted by then; under WAL the checkpoint that passes
	// them is stored later. Under ExactlyOnce it is called when their Kafka transaction is committed.
	Deleted func(rows int)
	// PublishFailed is called when a row could not be published, and waits for its next try or for an operator.
	PublishFailed func(PublishFailure)
	// Leading is called when this relay took the lease.
	Leading func(term int64)
	// Standing is called when this relay's term has ended. cause is nil if Run's context ended.
	Standing func(cause error)
}

// A Relay publishes the rows of one outbox. Make one with New and run it once.
type Relay struct {
	cfg    Config
	state  state
	ran    atomic.Bool
	mapped *mappedTable  // nil: the table is troupe.outbox
	pool   *pgxpool.Pool // the relay's own sessions, created by Run; see server for statements that depend on one server process
	quiet  quiet
	gate   gate
	shards sharing
	looker *looker
	stuck  stuck
	flight atomic.Int64 // rows given to the client and not settled

	slotGivenUp    atomic.Bool        // the slot held more than SlotLimit, see giveUpSlot
	slotMoved      chan struct{}      // signalled when a stream begins
	asStored       bool               // text is read in the database's encoding, see converter; used by the publishing goroutine
	keptPartitions map[string]keptLog // full partitions that stay, by name; used by the goroutine that drops partitions
	large          *wal.LSN           // last checkpoint after which a transaction did not fit into a Kafka transaction; used by the publishing goroutine

	// New sets each of these to the constant in its comment. Tests set less.
	reading         time.Duration // checkpointTimeout
	storeTimeout    time.Duration // storeTimeout
	silence         time.Duration // maxSilence
	answer          time.Duration // maxAnswer
	patience        time.Duration // leastPatience
	oldTransactions int64         // oldTransactions
	holding         time.Duration // holdLimit
}

const (
	claimBytes = 4 << 20              // limit of the size of one claim's rows, in bytes; the last row may exceed it
	firstWait  = 5 * time.Millisecond // wait after a claim that found no rows; it doubles with each such claim, up to Config.Interval
	// brokerTimeout limits the time for which a broker works on a produce request. The client leaves a broker that does not answer 3 s after
	// that, or as soon as the other brokers have replaced it (broker.session.timeout.ms, 9 s by default).
	brokerTimeout = 5 * time.Second
	// batchBytes is Kafka's default for the largest record batch of a topic (max.message.bytes).
	batchBytes = 1_048_588
)

// New checks the configuration and sets defaults. It does not connect.
func New(cfg Config) (*Relay, error) {
	fill(&cfg.Source, Auto)
	fill(&cfg.Table, ownTable)
	if cfg.Pool != nil {
		address := cfg.Pool.Config().ConnConfig
		cfg.nameSlot(cmp.Or(address.Database, address.User)) // without a name Postgres connects to the database with the user's name
	}
	fill(&cfg.SlotWarn, 1<<30)
	fill(&cfg.SlotUnready, max(8<<30, cfg.SlotWarn))
	fill(&cfg.Failover, failoverAuto)
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
	r := &Relay{cfg: cfg, keptPartitions: make(map[string]keptLog), quiet: quiet{log: cfg.Log}, slotMoved: make(chan struct{}, 1), reading: checkpointTimeout, storeTimeout: storeTimeout, silence: maxSilence, answer: maxAnswer, patience: leastPatience, oldTransactions: oldTransactions, holding: holdLimit}
	r.shards.moved = make(chan struct{})
	r.looker = newLooker(r)
	if cfg.Mapping != nil {
		m, err := mapping.Parse(cfg.Mapping)
		if err == nil {
			r.mapped, err = newMappedTable(cfg.Table, m)
		}
		if err != nil {
			return nil, fmt.Errorf("relay: %w", err)
		}
	}
	client, err := r.newClient() // only this checks the Kafka options
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	client.Close()
	if err := checkIdempotence(client); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	r.state.status = Status{Table: cfg.Table, Holder: cfg.Holder, Role: Starting, Since: time.Now(), Delivery: cfg.Delivery}
	return r, nil
}

// checkIdempotence returns an error if the options of the client turn off idempotent writes.
func checkIdempotence(client *kgo.Client) error {
	if client.OptValue(kgo.DisableIdempotentWrite) == true {
		return errors.New("Config.Kafka disables idempotent writes: rows could be lost or change their order")
	}
	return nil
}

// nameSlot sets the default names of the slot and the publication. The slot's name contains the database's name, since slots of all
// databases of a cluster share one set of names.
func (c *Config) nameSlot(database string) {
	if c.Table == ownTable {
		fill(&c.Slot, wal.DefaultSlot(database, ""))
		fill(&c.Publication, wal.Outbox.Publication)
		return
	}
	name := wal.DefaultSlot(database, c.Table)
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
	case c.Failover != failoverAuto && c.Failover != failoverOn && c.Failover != failoverOff:
		return fmt.Errorf("failover %q: want auto, on or off", c.Failover)
	case c.Delivery != AtLeastOnce && c.Delivery != ExactlyOnce:
		return fmt.Errorf("delivery %q: want at-least-once or exactly-once", c.Delivery)
	case c.Delivery == ExactlyOnce && c.Source == Poll:
		return errors.New("delivery exactly-once needs source wal: a poll's deletes and Kafka's transactions cannot end together")
	case c.Transactions < 5*time.Millisecond:
		return fmt.Errorf("transactions every %s: want 5ms or more", c.Transactions)
	case c.TransactionTimeout < 5*time.Second || c.TransactionTimeout < 10*c.Transactions:
		return fmt.Errorf("transaction time-out %s: want 5s or more, and ten times the %s between two transactions",
			c.TransactionTimeout, c.Transactions)
	case c.Shards < 1 || c.Shards > maxShards:
		return fmt.Errorf("shards %d: want 1 to %d", c.Shards, maxShards)
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

// checkTable refuses options that cannot work for a mapped table. Such a table cannot be polled: none of its columns shows which rows are
// published, and the relay may not delete its rows.
func (c *Config) checkTable() error {
	mapped := c.Table != ownTable
	m, err := mapping.Parse(c.Mapping)
	if mapped && err != nil {
		return err
	}
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
	case mapped && c.Avro != nil && m.Config().Headers == mapping.EventRouter && c.Avro.Strategy() != schemas.TopicName:
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

// newClient creates a client with the relay's options and then the options more, which override them. A publisher has one client per term,
// and each transactor has its own.
func (r *Relay) newClient(more ...kgo.Opt) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.ProducerBatchMaxBytes(batchBytes),
		kgo.ProduceRequestTimeout(brokerTimeout),
		kgo.UnknownTopicRetries(1), // fail fast: the row is tried again, and other rows are sent meanwhile
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
