package participant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/keyed"
)

const (
	// A killed member leaves the group after sessionTimeout. If a member dies while the group rebalances, the rebalance takes rebalanceTimeout.
	// rebalanceTimeout must be the shorter one, for brokers that check only it during a rebalance.
	sessionTimeout    = 10 * time.Second
	rebalanceTimeout  = 9 * time.Second
	heartbeatInterval = time.Second
	// fetchWait limits how long a fetch waits for messages. A partition that is resumed while a fetch without it is under way waits for the end of
	// that fetch.
	fetchWait = 500 * time.Millisecond

	fetchPartitionBytes = 512 << 10
	fetchBytes          = 8 << 20
	// unpackBytes is the largest size that a compressed batch may unpack to. Brokers accept no batch above 1 MiB unless
	// configured to, and ordinary data seldom shrinks to less than a tenth.
	unpackBytes = 64 << 20

	theGroup = "membership of the group" // its name in the log

	watchEvery  = time.Second
	cancelGrace = time.Second     // for handlers, once their context is cancelled
	leaveLimit  = 3 * time.Second // for the last commit of offsets and the leave request
)

// consumer is a member of the group with the workers of its partitions.
type consumer struct {
	p       *Participant
	client  *kgo.Client
	pool    *keyed.Pool
	offsets *offsets
	abandon context.CancelCauseFunc // ends the membership
	drain   time.Duration           // Config.Drain, or less, for partitions that move

	built     chan struct{} // closed once the fields above are set: kgo may call back before NewClient has returned
	consumed  []string
	leftOut   []string                           // optional topics that the group does not consume
	committed map[topicPartition]committedOffset // used by kgo's group goroutine only

	mu      sync.Mutex
	workers map[topicPartition]*worker
	lost    error // why the membership broke; nil once it has partitions again
	joined  bool
	ending  bool // no worker is started any more
}

type topicPartition struct {
	topic     string
	partition int32
}

func newConsumer(p *Participant, abandon context.CancelCauseFunc) (*consumer, error) {
	c := &consumer{
		p: p, abandon: abandon, pool: keyed.NewPool(p.cfg.Concurrency), consumed: p.consumed(), leftOut: p.leftOut,
		workers: make(map[topicPartition]*worker), built: make(chan struct{}),
	}
	client, err := kafka.NewClient(p.cfg.Brokers, append([]kgo.Opt{
		kgo.ConsumerGroup(p.cfg.Group),
		kgo.ConsumeTopics(c.consumed...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), // a new group must answer every command; and see lostFrom
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // else the low mark would stay behind the end of a topic that a producer writes in transactions
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(sessionTimeout),
		kgo.RebalanceTimeout(rebalanceTimeout),
		kgo.HeartbeatInterval(heartbeatInterval),
		kgo.FetchMaxWait(fetchWait),
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxPartitionBytes(fetchPartitionBytes),
		kgo.MaxDecompressBatchBytes(unpackBytes),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), // else records could reach a worker that was stopped
		kgo.OnPartitionsAssigned(c.assigned),
		kgo.OnPartitionsRevoked(c.revoked),
		kgo.OnPartitionsLost(c.lostThem),
		kgo.OnOffsetsFetched(c.readMetadata),
		kgo.AdjustFetchOffsetsFn(c.adjustOffsets),
		kgo.WithHooks(c),
	}, p.cfg.Kafka...)...)
	if err != nil {
		return nil, err
	}
	c.client = client
	c.offsets = newOffsets(p, client)
	c.drain = p.cfg.Drain
	if limit, ok := client.OptValue(kgo.RebalanceTimeout).(time.Duration); ok {
		c.drain = min(c.drain, limit*2/3)
	}
	close(c.built)
	return c, nil
}

// OnGroupManageError is kgo's hook: the membership broke, and the client will join again.
func (c *consumer) OnGroupManageError(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = err
	c.p.outage(theGroup).report(err)
}

// poll passes fetched records to the workers until ctx ends or the membership is abandoned. It never waits for a worker. It returns nil if ctx was
// cancelled, and the reason if the membership was abandoned. It also returns the error of a fetch that kgo does not retry. After such an error kgo
// does not consume the partition any more, so the member must join again: kgo could not fetch the partition's offset, or the topic was created again.
func (c *consumer) poll(ctx context.Context) (broken error) {
	for {
		fetches := c.client.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			c.client.AllowRebalance()
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			var loss *kgo.ErrDataLoss
			var session *kgo.ErrGroupSession
			switch {
			case errors.Is(err, kgo.ErrMaxDecompress): // blocks the partition, below
			case errors.As(err, &loss):
				c.p.cfg.Log.Error().Err(err).Msg(endLost)
				if w := c.workerOf(topic, partition); w != nil {
					w.loseEnd(c.lostFrom(ctx, loss))
				}
			case errors.As(err, &session):
				c.OnGroupManageError(err)
			case errors.Is(err, kerr.TopicAuthorizationFailed):
				broken = fmt.Errorf("fetch %s/%d: %w", topic, partition, kafka.NotReadable(topic, err))
			default:
				broken = fmt.Errorf("fetch %s/%d: %w", topic, partition, err)
			}
		})
		fetches.EachTopic(func(t kgo.FetchTopic) {
			t.EachPartition(func(f kgo.FetchPartition) {
				if w := c.workerOf(t.Topic, f.Partition); w != nil {
					known := w.progress.recordEnds(f)
					w.recordRead(f)
					if known { // kgo's report of an error is no fetch, and has no id of the topic
						if end, first := w.bound(); first {
							w.resetToEnd(ctx, kafka.TopicID(t.Topic, t.TopicID), end)
						} else if len(f.Records) > 0 {
							w.checkEnd(ctx, end, f.Records[0].Offset)
						}
					}
					w.tellFetched(f.Records)
					w.receive(kafka.TopicID(t.Topic, t.TopicID), f.Records)
					if errors.Is(f.Err, kgo.ErrMaxDecompress) {
						w.block(kafka.TopicID(t.Topic, t.TopicID), f.Err)
					}
				}
			})
		})
		c.client.AllowRebalance()
		if broken != nil {
			return broken
		}
	}
}

// workerOf returns the worker of a partition; nil: this member does not have the partition.
func (c *consumer) workerOf(topic string, partition int32) *worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.workers[topicPartition{topic, partition}]
}

// errWedged ends the membership when a handler does not return after its time-out. Run ends too if the handler still runs after Config.Drain, since
// only a restart of the process ends the handler. With local work Run always ends.
var errWedged = errors.New("a handler ignores its time-out")

// watch ends the membership when a handler ignores its time-out. Otherwise the handler's key would wait for ever, and other messages behind it.
func (c *consumer) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			c.mu.Lock()
			for at, w := range c.workers {
				if ran, wedged := w.wedged(now); wedged {
					c.abandon(fmt.Errorf("%s: %w for %s", at, errWedged, ran.Round(time.Second)))
				}
			}
			c.mu.Unlock()
		}
	}
}

func (c *consumer) assigned(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
	<-c.built
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joined, c.lost = true, nil
	c.p.outage(theGroup).report(nil)
	if c.ending {
		return
	}
	for _, at := range flat(parts) {
		w := newWorker(c, at)
		c.workers[at] = w
		go w.work()
	}
	if len(parts) > 0 {
		c.p.cfg.Log.Info().Interface("partitions", parts).Msg("partitions assigned")
	}
}

// revoked is called by kgo before partitions move to other members. It lets running handlers finish within c.drain, releases the leases, and then
// commits the offsets. If the process dies between the two, the lease is released cleanly: the next owner reads some messages again, and passes over
// the ones that the watermark covers.
func (c *consumer) revoked(ctx context.Context, _ *kgo.Client, parts map[string][]int32) {
	<-c.built
	if len(parts) == 0 {
		return
	}
	wedged := c.stop(c.removeWorkers(parts), c.drain)
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	if err := c.offsets.commit(ctx); err != nil {
		c.p.cfg.Log.Warn().Err(err).Msg("offsets not committed before partitions moved: their messages are delivered again")
	}
	c.offsets.forget(parts)
	c.moved(parts, wedged)
}

// lostThem is called by kgo when partitions have another owner already. It stops their workers, and commits no offset for them.
func (c *consumer) lostThem(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
	<-c.built
	if len(parts) == 0 {
		return
	}
	c.offsets.forget(parts)
	wedged := c.stop(c.removeWorkers(parts), 0)
	c.offsets.forget(parts)
	c.moved(parts, wedged)
}

func (c *consumer) moved(parts map[string][]int32, wedged []string) {
	c.client.ResumeFetchPartitions(parts) // a pause would outlive the assignment
	event := c.p.cfg.Log.Info()
	if len(wedged) > 0 {
		event = c.p.cfg.Log.Error().Strs("wedged", wedged)
	}
	event.Interface("partitions", parts).Msg("partitions given up")
}

// removeWorkers removes and returns the workers of parts. They get no more records.
func (c *consumer) removeWorkers(parts map[string][]int32) []*worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	var taken []*worker
	for _, at := range flat(parts) {
		if w := c.workers[at]; w != nil {
			delete(c.workers, at)
			taken = append(taken, w)
		}
	}
	return taken
}

// stop lets the workers finish their runs within drain, then cancels them, and waits until their leases are released. It returns the names of the
// workers whose handlers still run.
func (c *consumer) stop(workers []*worker, drain time.Duration) (wedged []string) {
	for _, w := range workers {
		close(w.stop)
	}
	within := func(limit time.Duration, done func(*worker) <-chan struct{}) (late []*worker) {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		for _, w := range workers {
			select {
			case <-done(w):
			case <-timer.C:
				timer.Reset(0)
				late = append(late, w)
			}
		}
		return late
	}
	idle := func(w *worker) <-chan struct{} { return w.idle }
	within(drain, idle)
	for _, w := range workers {
		w.cancel()
	}
	for _, w := range within(cancelGrace, idle) {
		wedged = append(wedged, w.at.String())
	}
	if len(wedged) == 0 {
		within(2*releaseLimit, func(w *worker) <-chan struct{} { return w.done })
	}
	return wedged
}

// end stops all workers, which release their leases, then commits the offsets and leaves the group. A crash between these steps has the same effect
// as in revoked, and the partitions have no owner until the member's session time-out is over. The caller fetches no more records.
func (c *consumer) end() error {
	c.mu.Lock()
	c.ending = true
	all := make(map[string][]int32)
	for at := range c.workers {
		all[at.topic] = append(all[at.topic], at.partition)
	}
	c.mu.Unlock()
	wedged := c.stop(c.removeWorkers(all), c.p.cfg.Drain)
	ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	if err := c.offsets.commit(ctx); err != nil {
		c.p.cfg.Log.Warn().Err(err).Msg("offsets not committed at the end: their messages are delivered again")
	}
	if err := c.client.LeaveGroupContext(ctx); err != nil {
		c.p.cfg.Log.Warn().Err(err).Msg("left the group without good-bye")
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.client.CloseAllowingRebalance()
		// Close ends with a poll. kgo's goroutine that leaves the group may begin after it, and would wait for ever for the poll's end.
		c.client.AllowRebalance()
	}()
	select {
	case <-closed:
	case <-ctx.Done(): // a broker that does not answer; the client ends when its requests do
	}
	if len(wedged) > 0 {
		return fmt.Errorf("handlers ignore their context and still run: %w", errors.New(strings.Join(wedged, ", ")))
	}
	return nil
}

func flat(parts map[string][]int32) []topicPartition {
	var all []topicPartition
	for topic, ids := range parts {
		for _, id := range ids {
			all = append(all, topicPartition{topic, id})
		}
	}
	return all
}

func (at topicPartition) String() string { return fmt.Sprintf("%s/%d", at.topic, at.partition) }
