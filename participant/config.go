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

// Config configures a Participant. Pool and Hop are required, and either Brokers or Local.
type Config struct {
	// Pool connects to the service's own database, which has Troupe's tables. Its DefaultQueryExecMode may not be exec or simple protocol: use
	// cache_describe behind a pooler.
	Pool *pgxpool.Pool
	// Brokers are bootstrap addresses, host:port.
	Brokers []string
	// Local is for a participant whose messages are written by services that share its database: messages come through
	// troupe.local_work, and no Kafka is needed. At the start of Run its topics, the hop's commands topic and the events topics
	// that it consumes, are made local if they are not; a local topic cannot be read from Kafka. Messages that the participant
	// writes go through the outbox as usual.
	Local bool
	// Stale is the time after which another participant takes over a local entry that is in progress and does not run, although the participant that
	// claimed it is connected. An entry of a participant that died is taken over at once. An entry that runs is never taken over. Default 5 minutes.
	Stale time.Duration
	// Hop is this participant's part of the flow. Its missing topics are created at the start of Run.
	Hop topics.Hop
	// Group is the consumer group, and part of every inbox row and derived id: if you rename it, all messages are new to the inbox. Default:
	// Hop.String().
	Group string
	// Codec decodes received messages and encodes emitted ones. Default: envelope.JSONCodec.
	Codec envelope.Codec
	// Source is ce_source of emitted messages. Default: Hop.Name().
	Source string

	// UnknownTypeWait limits how long a message waits that has no handler in this member: a command of an unknown type, or a deadline of an unknown
	// name. A member of a newer version may be about to start. Meanwhile the message's key is held. The member that owns its partition tries the
	// message every 1 to 10 s, and no attempt is counted. After the wait the message is poison. Default 5 minutes; negative: it is poison at once.
	UnknownTypeWait time.Duration

	// RateLimitedWait limits the time, from a message's first failure on, for which the message is tried again while its handler returns
	// retry.RateLimited. Its key is held, and no attempt is counted. After that time it is a dead letter. Default 24 hours.
	RateLimitedWait time.Duration

	// Batch is the maximum number of messages in a transaction. If no transaction runs, a message does not wait for others. While transactions run,
	// an incomplete batch waits up to 20 ms for one of them to end, and messages that come meanwhile join the batch; it does not wait if a handler
	// was registered with Call. A batch is tried as a whole. If one message fails, all are rolled back: that message runs alone, and the others run
	// in smaller batches. So does a batch whose answers and queued statements have more than 64 MiB; only arguments that are texts, bytes or arrays of
	// them count, and the messages of one call of OnAll's function are not divided. Larger batches save commits and round trips; they keep the locks of
	// their handlers longer, and one slow handler keeps the whole batch open. Default 1; at most 1000.
	Batch int
	// Concurrency is the number of transactions that run at once, over all partitions; each has a connection of Pool. Messages
	// of one key never run at once. Default: one less than Pool's maximum, at least 1, at most 16.
	Concurrency int

	// Retry sets how often a message is tried in all, and how long a held key waits between tries. A command of a saga's
	// step with retry settings brings a policy of its own.
	Retry retry.Policy
	// Immediate is the number of further tries that follow the first at once, before the key waits. They count in
	// Retry.Attempts. Default 2; negative: none.
	Immediate int
	// Timeout limits one run of a handler. Default 30 s; at most 24 days. A handler that ignores its context cannot be stopped:
	// then Ready reports an error.
	Timeout time.Duration
	// Drain is the time for which running handlers may continue after Run's ctx has ended, before their context is cancelled
	// and their transaction rolled back. Default 10 s; negative: not at all. When a partition moves to another member, Drain is
	// limited to two thirds of the rebalance time-out.
	Drain time.Duration
	// InboxRetention is the time for which the identity of a handled message is stored. It must exceed the longest time after
	// which a message can come again: the retention of the topics, if an operator may reset the group's offsets, and the
	// longest time that a relay may be away. Default 7 days; negative: for ever.
	InboxRetention time.Duration
	// BarrierRetention is the time for which the answers to the commands of sagas are stored, by saga, step and operation. It should exceed the
	// longest life of a saga, including the time for which one is parked: a command whose step may have had an answer that is deleted becomes a dead
	// letter, and an operator must settle the step. Default 30 days; negative: for ever; at least two hours.
	BarrierRetention time.Duration

	// SpringHeaders adds to the copy of a dead letter on the dlq topic, next to Troupe's own headers, the headers of Spring Kafka's
	// DeadLetterPublishingRecoverer, numbers in its binary form.
	SpringHeaders bool
	// ConnectHeaders adds to that copy the headers that Kafka Connect writes with errors.deadletterqueue.context.headers.enable (KIP-298), all text.
	ConnectHeaders bool

	// Partitions and Replicas are the numbers for created topics. Default: the broker's. The events topics that the participant
	// consumes are created with the same numbers, since the first participant to start creates them: use the same numbers
	// throughout a flow.
	Partitions int32
	Replicas   int16

	// Kafka holds options that are applied after the ones set here, so they win. A longer kgo.RebalanceTimeout leaves more of
	// Drain to running handlers when partitions move; kgo.InstanceID makes the membership static; kgo.ServerSideBalancer with
	// kgo.Balancers(kgo.StickyBalancer()) selects the group protocol of KIP-848, in which the broker assigns (Apache Kafka 4).
	Kafka []kgo.Opt
	// Hooks are called as messages are handled.
	Hooks Hooks
	// Trace returns the trace position that messages emitted by a handler get, as outbox.Config.Trace does. Default: emitted messages continue the
	// trace of the message being handled.
	Trace func(context.Context) (traceparent, tracestate string)
	// Log gets a line per decision and never a payload. The zero value discards all lines.
	Log zerolog.Logger
}

// maxTimeout keeps idle_in_transaction_session_timeout, the sum of the time-out and wedgedAfter, within its 2,147,483,647 ms.
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
	case c.RateLimitedWait < 0:
		return c, fmt.Errorf("wait for rate limits %s is negative", c.RateLimitedWait)
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
	c.Retry.Attempts = min(c.Retry.Attempts, maxAttempts)
	fill(&c.Group, c.Hop.String())
	fill(&c.Source, c.Hop.Name())
	fill(&c.Batch, 1)
	fill(&c.Concurrency, min(max(int(c.Pool.Config().MaxConns)-1, 1), 16))
	fill(&c.Immediate, 2)
	fill(&c.Timeout, 30*time.Second)
	fill(&c.Drain, 10*time.Second)
	fill(&c.Stale, 5*time.Minute)
	fill(&c.UnknownTypeWait, 5*time.Minute)
	fill(&c.RateLimitedWait, 24*time.Hour)
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
