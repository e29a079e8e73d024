package participant

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/extension"
	"github.com/troupe-go/troupe/internal/inbox"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/retry"
)

// RunsSerially reports whether batches run one at a time.
func (p *Participant) RunsSerially() bool { return p.serial.on() }

const SerialClass = serialClass

// EndIsRetriable reports whether a member that gets one partition requests the ends of its topic's logs again.
func EndIsRetriable(ends map[int32]kafka.Place, assigned int32) bool {
	return retriable(map[string]map[int32]kafka.Place{"t": ends}, map[string]map[int32]kgo.Offset{"t": {assigned: kgo.NewOffset()}})
}

// PendingRebuild lists the partitions of a group whose members join it again for a rebuild.
var PendingRebuild = pendingRebuild

// FinishRebuild finishes a group's rebuild, if it has ended.
var FinishRebuild = finishRebuild

// QueryCommitted executes a statement at read committed.
func (p *Participant) QueryCommitted(ctx context.Context, sql string, dest ...any) error {
	return p.queryCommitted(ctx, sql, nil, dest...)
}

// FormerAgain sets the waits between the looks for former retry topics.
func (p *Participant) FormerAgain(again retry.Policy) { p.formerAgain = again }

// SizeOf returns the number of bytes of an argument that count towards the limit of a batch.
var SizeOf = sizeOf

// Patience makes a partition count as stalled after d, before Run.
func (p *Participant) Patience(d time.Duration) { p.patience = d }

// OpenLimit sets for how long a transaction may be open, before Run.
func (p *Participant) OpenLimit(d time.Duration) { p.openLimit = d }

// BacklogLimit sets how long deadlines wait for messages of which none ends, before Run. It sets Patience, too.
func (p *Participant) BacklogLimit(d time.Duration) { p.backlogLimit, p.patience = d, d }

// Gather sets how long less than a full batch waits for transactions that run, before Run.
func (p *Participant) Gather(d time.Duration) { p.gather = d }

// StatementLimit limits the statements with which runs begin and failures are recorded, before Run.
func (p *Participant) StatementLimit(d time.Duration) { p.statementTimeout = d }

// Tick sets how often held keys are read and the watermark is moved, before Run.
func (p *Participant) Tick(d time.Duration) { p.tick = d }

const PushAtOnce = pushAtOnce

// Backlog returns the number of records that wait for p's workers.
func (p *Participant) Backlog() (n int) {
	p.mu.Lock()
	c := p.consumer
	p.mu.Unlock()
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		waiting, _ := w.lane.Load()
		n += waiting
	}
	return n
}

// PruneInbox deletes rows that are old enough now, instead of within the next minute.
func (p *Participant) PruneInbox() error { return p.pruneAll(context.Background()) }

// Assigned returns the number of p's partitions.
func (p *Participant) Assigned() int {
	p.mu.Lock()
	c := p.consumer
	p.mu.Unlock()
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.workers)
}

// WithDefaults fills in the defaults of a Config, as New does.
var WithDefaults = Config.withDefaults

// Turn prepares the inbox's ring for a time, and reports whether it has a table for ids of that time.
func (p *Participant) Turn(now time.Time) (takes bool, err error) {
	err = p.prepareRing(context.Background(), &now)
	return p.ring.has(int(now.Unix() / (24 * 60 * 60))), err
}

// Slot returns the ring's slot for an id.
func Slot(id string) (slot int, ok bool) {
	_, day, ok := inbox.Recent(id)
	return day % slots, ok
}

// Run is a run of offsets that have ended, as a leader of an epoch wrote them.
type Run struct {
	Low, High int64
	Epoch     int32
}

// Seen reports whether an offset of an epoch has ended, if all up to a watermark have, and some runs above it.
func Seen(watermark int64, epoch int32, above []Run, offset int64, of int32) bool {
	var s seen
	s.watermark.offset, s.watermark.epoch = watermark, epoch
	runs := make([]offsetRange, len(above))
	for i, r := range above {
		runs[i] = offsetRange{r.Low, r.High, r.Epoch}
	}
	s.above = map[uuid.UUID][]offsetRange{{}: merge(sorted(runs))}
	return s.has(uuid.UUID{}, offset, of)
}

// Classify returns the class of a run's error.
var Classify = classify

// MemberClass is the first half of the key of the lock that each member of local work holds on its number.
const MemberClass = memberClass

// TopicClass is the first half of the key of the lock that each member of local work shares on each topic that it consumes.
const TopicClass = topicClass

// IdleTopics records how long a member has seen topics without a consumer.
type IdleTopics = idleTopics

// Unconsumed records which topics had a consumer at now.
func (t *IdleTopics) Unconsumed(now time.Time, consumed map[string]bool, wait time.Duration) []string {
	return t.unconsumed(now, consumed, wait)
}

// LeaseClass is the first half of the key of the lock that each transaction of a partition shares.
const LeaseClass = leaseClass

// Look polls for the next deadline, without limit or as usual.
func (p *Participant) Look(whole bool) error {
	back := lookBack
	if whole {
		back = allTheWay
	}
	_, err := (&firer{p: p}).untilNext(context.Background(), back)
	return err
}

// StrandedTopics is the statement that finds held messages of a group with local work.
var StrandedTopics = strandedTopics

// Concerns reports whether local work of a topic wakes p.
func (p *Participant) Concerns(topic string) bool {
	p.mu.Lock()
	l := p.local
	p.mu.Unlock()
	return l != nil && l.concerns(topic)
}

// TurnNow prepares the inbox's ring for now.
func (p *Participant) TurnNow() error { return p.prepareRing(context.Background(), nil) }

// Effect is the effect of a statement on its transaction or session.
type Effect = effect

const (
	EndsTransaction = endsTransaction
	Sets            = sets
	SetsSession     = setsSession
)

// EffectsOf parses the text of a statement.
var EffectsOf = effectsOf

// Unpublished returns the number of rows of the outbox that no relay publishes.
func (p *Participant) Unpublished(ctx context.Context) (rows int, err error) {
	u, err := p.findUnpublished(ctx)
	return u.rows, err
}

// The headers that tests write themselves.
const (
	HeaderDeadline      = ce.HeaderDeadline
	HeaderDeadlineScope = ce.HeaderDeadlineScope
	HeaderDoubt         = ce.HeaderDoubt
	HeaderRetry         = ce.HeaderRetry
	HeaderSince         = ce.HeaderSince
)

// The values of Passed.Reason that tests wait for.
const (
	Duplicate = reasonDuplicate
	Elsewhere = reasonElsewhere
)

// The extension's types and functions under the names by which tests use them.
type (
	Contract   = extension.Contract
	Registered = extension.Registered
	Deadlines  = deadlineSet
)

func (p *Participant) Obey(c Contract) { p.obey(c) }

func (p *Participant) Observe(topic, typ string, fn observe) { p.observe(topic, typ, fn) }

func (p *Participant) Plan(ctx context.Context, ds *Deadlines, d Deadline) error {
	return p.plan(ctx, ds, d)
}

func (p *Participant) PlanCancel(ctx context.Context, ds *Deadlines, name, scope string) error {
	return p.planCancel(ctx, ds, name, scope)
}

func (p *Participant) QueueDeadlines(b *pgx.Batch, ds *Deadlines) { p.queueDeadlines(b, ds) }

// Ask is Call for commands of the named type, whose bodies stay undecoded, with typed answers.
func Ask[A any](
	p *Participant, typ string,
	call func(ctx context.Context, c Command[[]byte]) (A, error),
	decide func(ctx context.Context, tx pgx.Tx, c Command[[]byte], answer A) (Outcome, error),
	opts ...HandlerOption,
) {
	p.callUndecoded(typ,
		func(ctx context.Context, m envelope.Message, attempt int) (any, error) {
			return call(ctx, Command[[]byte]{Body: m.Payload, Message: m, Attempt: attempt})
		},
		func(ctx context.Context, tx pgx.Tx, m envelope.Message, attempt int, answer any) (Outcome, error) {
			return decide(ctx, tx, Command[[]byte]{Body: m.Payload, Message: m, Attempt: attempt}, answer.(A))
		}, opts...)
}

// A RateClaimer claims permits of a rate limit, as a member does.
type RateClaimer struct {
	p *Participant
	r *rate
}

func NewRateClaimer(p *Participant, handler string, n int, per time.Duration) RateClaimer {
	r := newRate(n, per)
	r.handler = handler
	return RateClaimer{p, r}
}

// Claim returns the times between which each claimed permit may be used, or how long to wait.
func (c RateClaimer) Claim(ctx context.Context, demand int) (permits [][2]time.Time, wait time.Duration, err error) {
	starts, wait, err := c.r.claim(ctx, c.p, demand)
	for _, s := range starts {
		permits = append(permits, [2]time.Time{s.begin, s.expires})
	}
	return permits, wait, err
}

// FetchedOffset returns the error of a member that has fetched the committed offset of a topic.
func FetchedOffset(ctx context.Context, client *kgo.Client, topic string) error {
	c := &consumer{client: client, consumed: []string{topic}, built: make(chan struct{})}
	close(c.built)
	of := kmsg.NewOffsetFetchResponseGroupTopic()
	of.Topic, of.Partitions = topic, []kmsg.OffsetFetchResponseGroupTopicPartition{kmsg.NewOffsetFetchResponseGroupTopicPartition()}
	group := kmsg.NewOffsetFetchResponseGroup()
	group.Topics = append(group.Topics, of)
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Groups = append(resp.Groups, group)
	return c.readMetadata(ctx, client, resp)
}

var ErrLargeAnswers = errLargeAnswers

// ReadAnswers returns the number of stored answers that are read for so many messages.
func ReadAnswers(results pgx.BatchResults, messages int) (int, error) {
	all, err := readAnswers(results, messages)
	return len(all), err
}
