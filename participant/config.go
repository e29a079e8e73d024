package participant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

// Config of a Participant. Pool and Hop are required, and either Brokers or Local.
type Config struct {
	// Pool is on the service's own database, which has Troupe's tables.
	Pool *pgxpool.Pool
	// Brokers are bootstrap addresses, host:port.
	Brokers []string
	// Local says that whoever writes what this participant consumes shares its database: messages come through
	// troupe.local_work, and no Kafka is needed. The topics, of the hop's commands and of the events given to On, are made
	// local at the start of Run where they are not; nobody can read a local topic from Kafka. What the participant writes
	// goes through the outbox as ever.
	Local bool
	// Stale is how long local work may be in progress, while it does not run and its participant seems to live, before
	// another takes it over. Of one that died it is taken over at once, and what runs is never. Default 5 minutes.
	Stale time.Duration
	// Hop is this participant's part of the flow. Its topics are made at the start of Run where they are missing.
	Hop topics.Hop
	// Group is the consumer group, and part of every inbox row and derived id: renaming it makes all messages new.
	// Default: Hop.String().
	Group string
	// Codec reads what comes in and renders what goes out. Default: envelope.JSONCodec.
	Codec envelope.Codec
	// Source is ce_source of what is emitted. Default: Hop.Name().
	Source string

	// UnknownTypeWait limits the wait of a command whose type, or a deadline whose name, no handler of this member fits: a member
	// of a newer version may be about to start. Its key is held, it is tried every 1 to 10 s by the member that has its partition
	// then, and no attempt is counted. After the wait it is poison. Default 5 minutes; negative: it is poison at once.
	UnknownTypeWait time.Duration

	// Batch is how many messages a transaction takes at most. Where none runs, it does not wait for more to come; where
	// some do, less than a batch waits up to 20 ms for one of them to end, and what comes meanwhile goes along. A batch is
	// tried as a whole; where one message fails, all are rolled back, that one runs alone and the others in smaller batches.
	// Larger ones save commits and round trips; they keep the locks of their handlers longer, and a handler that is
	// slow keeps the whole batch open. Default 1; not more than 1000.
	Batch int
	// Concurrency is how many transactions run at once, over all partitions; each has a connection of Pool. Messages
	// of one key never run at once. Default: one less than Pool has, at most 16.
	Concurrency int

	// Retry says how often a message is tried in all, and how long a held key waits between tries. A command may bring a
	// policy of its own: see HeaderRetry.
	Retry retry.Policy
	// Immediate is how many further tries follow the first at once, before the key waits. They count in
	// Retry.Attempts. Default 2; negative: none.
	Immediate int
	// Timeout of one run of a handler. Default 30 s; at most 24 days. A handler that ignores its context cannot be stopped: then
	// Ready says so.
	Timeout time.Duration
	// Drain is how long what runs may go on after Run was asked to stop, before its context is cancelled and its
	// transaction rolled back. Default 10 s; negative: not at all. When a partition moves to another member it is cut
	// to two thirds of the rebalance time-out.
	Drain time.Duration
	// InboxRetention is how long a handled message is remembered. It must exceed the longest time after which a
	// message can come again: the retention of the topics, where somebody may reset the group's offsets, and the
	// longest that a relay may be away. Default 7 days; negative: for ever.
	InboxRetention time.Duration
	// BarrierRetention is how long the answers to the commands of sagas are remembered, by saga, step and operation. It
	// should exceed the longest life of a saga, with the time for which one is parked: a command whose step may have an
	// answer that is deleted is refused, and a person settles the step. Default 30 days; negative: for ever; at least 2 h.
	BarrierRetention time.Duration

	// DeadLetterHeaders are written to the copy on the dlq topic beside Troupe's own. Default: none.
	DeadLetterHeaders HeaderProfile

	// Partitions and Replicas of the topics that are made. Default: the broker's. The events topics of hops given to
	// On are made alike, since whoever comes first makes them: use the same numbers throughout a flow.
	Partitions int32
	Replicas   int16

	// Kafka options come after the ones set here, so they win. With a longer kgo.RebalanceTimeout, more of Drain is
	// left to what runs when partitions move; kgo.InstanceID makes the membership static; kgo.ServerSideBalancer with
	// kgo.Balancers(kgo.StickyBalancer()) takes the group protocol of KIP-848, where the broker assigns (Apache Kafka 4).
	Kafka []kgo.Opt
	// Hooks are told what happens.
	Hooks Hooks
	// Trace is outbox.Config's: where in a trace a handler is, for what it emits. Default: what it emits continues the
	// trace of the message it handles.
	Trace func(context.Context) (traceparent, tracestate string)
	// Log gets a line per decision and never a payload. The zero value discards them.
	Log zerolog.Logger
}

// maxTimeout keeps idle_in_transaction_session_timeout, which is the time-out and wedgedAfter, within its 2,147,483,647 ms.
const maxTimeout = 24 * 24 * time.Hour

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Pool == nil:
		return c, errors.New("config without a pool")
	case len(c.Brokers) == 0 && !c.Local:
		return c, errors.New("config without brokers")
	case len(c.Brokers) > 0 && c.Local:
		return c, errors.New("config with brokers and Local: a participant takes messages from Kafka or from its own database; make two")
	case c.Stale < 0:
		return c, fmt.Errorf("stale %s is negative", c.Stale)
	case c.Hop.IsZero():
		return c, errors.New("config without a hop")
	case c.Timeout < 0:
		return c, fmt.Errorf("timeout %s is negative", c.Timeout)
	case c.Timeout > maxTimeout:
		return c, fmt.Errorf("timeout %s: want at most %s, since Postgres ends a transaction that is idle for longer", c.Timeout, maxTimeout)
	case c.Partitions < 0 || c.Replicas < 0:
		return c, fmt.Errorf("%d partitions, %d replicas: want 0 or more", c.Partitions, c.Replicas)
	}
	switch {
	case c.Batch < 0 || c.Batch > 1000:
		return c, fmt.Errorf("batch %d: want 0 to 1000", c.Batch)
	case c.BarrierRetention > 0 && c.BarrierRetention < 2*clockMargin:
		return c, fmt.Errorf("barrier retention %s: want at least %s, or a negative one for ever", c.BarrierRetention, 2*clockMargin)
	case c.Concurrency < 0:
		return c, fmt.Errorf("concurrency %d is negative", c.Concurrency)
	}
	if err := c.Retry.Validate(); err != nil {
		return c, err
	}
	c.Retry = c.Retry.WithDefaults()
	fill(&c.Group, c.Hop.String())
	fill(&c.Source, c.Hop.Name())
	fill(&c.Batch, 1)
	fill(&c.Concurrency, min(max(int(c.Pool.Config().MaxConns)-1, 1), 16))
	fill(&c.Immediate, 2)
	fill(&c.Timeout, 30*time.Second)
	fill(&c.Drain, 10*time.Second)
	fill(&c.Stale, 5*time.Minute)
	fill(&c.UnknownTypeWait, 5*time.Minute)
	fill(&c.InboxRetention, 7*24*time.Hour)
	fill(&c.BarrierRetention, 30*24*time.Hour)
	c.Immediate, c.Drain, c.UnknownTypeWait = max(c.Immediate, 0), max(c.Drain, 0), max(c.UnknownTypeWait, 0)
	if c.Codec == nil {
		c.Codec = envelope.JSONCodec{}
	}
	return c, nil
}

func fill[T comparable](field *T, with T) {
	var zero T
	if *field == zero {
		*field = with
	}
}
