package participant

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/internal/extension"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/topics"
)

// A Participant handles the messages of one hop: its commands, its deadlines and the events of other hops. Register handlers with Handle, Call, On,
// React, OnAll and OnDeadline. Then call Run once.
type Participant struct {
	cfg Config
	out *outbox.Outbox
	// checked writes the entries of the service itself, which its contract may refuse. out writes the entries of this package.
	checked  *outbox.Outbox
	contract extension.Contract // not changed once running

	failures        *failures
	badRetryHeaders *repeated     // logs headers of ce.HeaderRetry that cannot be read
	patience        time.Duration // how long nothing may end before a partition counts as stalled
	gather          time.Duration // the constant gatherLimit, except in tests
	formerAgain     retry.Policy  // sets the waits of awaitFormer

	// backlogLimit is the constant backlogLimit, except in tests. If patience is longer, deadlines wait for patience.
	backlogLimit     time.Duration
	openLimit        time.Duration // the constant openLimit, except in tests
	statementTimeout time.Duration // the constant statementLimit, except in tests
	tick             time.Duration // the constant tickEvery, except in tests
	ring             ring
	quarantineLock   sync.RWMutex // held for writing by a quarantined run that must be the only one; for reading by quarantined groups
	serial           *serial
	// awaited holds the messages that wait for a member with a handler.
	awaited awaited
	more    chan struct{} // receives when topics were added since the group was joined
	// messagesLost receives when messages of the commands topic were lost, or skipped, before a member has read them: deadlines may be among them.
	messagesLost chan struct{}

	outages map[string]*repeated // by dependency; shared by the partitions, which all lose a dependency at once

	mu            sync.Mutex
	handlers      atomic.Pointer[handlers] // once running, it is replaced as a whole
	former        formerTopics             // changed between memberships only
	observed      []observer
	eventObserver *eventObserver              // nil: none
	leftOut       []string                    // optional topics that the next membership does not consume
	selfObservers []extension.SelfObserver    // not changed once running
	alongside     []func(ctx context.Context) // not changed once running
	notRebuilt    string                      // why no handler of the group can be rebuilt; not changed once running
	afterBacklog  map[string]bool             // names of deadlines that wait for the backlog; not changed once running
	mistakes      []error
	running       bool
	limited       bool                    // a handler has a limit; not changed once running
	rates         []*rate                 // not changed once running
	slots         []*callSlots            // not changed once running
	endRun        context.CancelCauseFunc // ends Run with an error
	consumer      *consumer
	local         *local
	state         error // why no message is consumed; nil: messages are
	unfired       error // why deadlines cannot be fired; nil: they can
	blocked       error // names a session of another role for whose lock a transaction waits; nil: none
	stranded      []Stranded
	behindRebuild atomic.Bool  // messages wait behind ones that a rebuild of the group handles again, or will soon
	notUTF8       atomic.Bool  // the database is not in UTF-8
	crashLogged   atomic.Int64 // when a crash of an owner was last logged as a warning
}

var (
	errNotRunning = errors.New("not running")
	errLate       = errors.New("a handler was registered after Run")
)

// mistake is an error in the use of a Participant that is found after the start of Run. It ends Run.
type mistake struct{ error }

func (m mistake) Unwrap() error { return m.error }

// New checks the configuration and fills in the defaults. It does no I/O.
func New(cfg Config) (*Participant, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("participant: %w", err)
	}
	cfg.Log = cfg.Log.With().Str("group", cfg.Group).Logger()
	oc := outbox.Config{Source: cfg.Source, Encoder: cfg.Codec, Trace: cfg.Trace}
	if cfg.Local {
		oc.NotifyEvery, oc.NotifyTopics = localHints, true
	}
	out, err := outbox.New(oc)
	if err != nil {
		return nil, fmt.Errorf("participant: %w", err)
	}
	p := &Participant{cfg: cfg, out: out, serial: newSerial(), state: errNotRunning, more: make(chan struct{}, 1), messagesLost: make(chan struct{}, 1)}
	p.handlers.Store(&handlers{})
	p.checked = out.Checked(p.mayEmit)
	p.failures = &failures{p: p}
	p.badRetryHeaders = p.repeated("reading header " + ce.HeaderRetry)
	p.backlogLimit, p.openLimit = backlogLimit, openLimit
	p.patience, p.gather, p.tick, p.statementTimeout = max(cfg.Timeout, statementLimit)+stallAfter, gatherLimit, tickEvery, statementLimit
	p.formerAgain = formerAgain
	return p, nil
}

// Hop returns Config.Hop.
func (p *Participant) Hop() topics.Hop { return p.cfg.Hop }

// Group returns the consumer group.
func (p *Participant) Group() string { return p.cfg.Group }

// Outbox returns the outbox to which handlers write entries in addition to their outcome: commands for other hops, events of
// their own. Called with a handler's context, its Write takes correlation and causation from the message being handled.
func (p *Participant) Outbox() *outbox.Outbox { return p.checked }

func (p *Participant) register(h *handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		p.endRun(mistake{errLate})
		return
	}
	if err := p.registered().add(h); err != nil {
		p.mistakes = append(p.mistakes, err)
	}
}

// Run creates the topics that are missing, joins the group and handles messages until ctx ends. Then it fetches no more, lets
// running handlers finish within Config.Drain, commits the offsets, leaves the group and returns nil. It may be called once.
//
// Run returns an error if it did not start (a mistake in the registrations, or a topic that is missing and that the broker
// refuses to create), or if a handler was still running when it had to end. It does not fail while broker or database are away:
// it waits and logs, and Ready reports it.
func (p *Participant) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := p.begin(cancel); err != nil {
		return fmt.Errorf("participant %s: %w", p.cfg.Group, err)
	}
	err := p.run(ctx)
	var found mistake
	if errors.As(context.Cause(ctx), &found) {
		err = errors.Join(err, found)
	}
	if err != nil {
		p.setState(fmt.Errorf("%w: %w", errNotRunning, err), nil)
		return fmt.Errorf("participant %s: %w", p.cfg.Group, err)
	}
	p.setState(errNotRunning, nil)
	return nil
}

func (p *Participant) begin(endRun context.CancelCauseFunc) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.running:
		return errors.New("Run was called before")
	case len(p.mistakes) > 0:
		return errors.Join(p.mistakes...)
	}
	switch mode := p.cfg.Pool.Config().ConnConfig.DefaultQueryExecMode; mode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
		return fmt.Errorf("the pool executes statements in mode %q, which cannot send all arguments: set its default_query_exec_mode to cache_describe", mode)
	}
	if err := p.addObservers(); err != nil {
		return err
	}
	if len(p.registered()) == 0 {
		return errors.New("no handlers")
	}
	if err := p.checkContract(); err != nil {
		return err
	}
	if p.cfg.Local {
		if h := p.registered().delayed(); h != nil {
			return fmt.Errorf("handler %s has retry topics, which local work has not", h.name)
		}
	}
	if err := p.applyLimits(); err != nil {
		return err
	}
	p.registered().withRetryTopics(p.cfg.Hop)
	p.running, p.endRun = true, endRun
	return nil
}

// run starts the work in the background, and joins the group again whenever a membership has ended and cannot be repaired. With Local it handles
// local work instead.
func (p *Participant) run(ctx context.Context) error {
	var background sync.WaitGroup
	defer background.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	background.Go(func() { p.prune(ctx) })
	p.setState(errors.New("the database has not answered yet"), nil)
	background.Go(func() { p.watchUnknown(ctx) })
	background.Go(func() { p.watchForeignLocks(ctx) })
	background.Go(func() { p.runRates(ctx) })
	if p.fires() {
		background.Go(func() { p.fire(ctx) })
		if !p.cfg.Local { // local work is not lost
			background.Go(func() { p.fireLost(ctx) })
		}
	}
	for _, fn := range p.alongside {
		background.Go(func() { fn(ctx) })
	}
	if p.cfg.Local {
		background.Go(func() { p.watchUnclaimed(ctx) })
		return p.runLocal(ctx)
	}
	trouble := p.repeated("membership")
	policy := retry.Policy{Initial: 500 * time.Millisecond, Cap: 30 * time.Second}
	for failed := 1; ; failed++ {
		p.setState(errors.New("topics are not there yet"), nil)
		if err := p.provision(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		began := time.Now()
		broken, err := p.join(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		p.setState(broken, nil)
		if errors.Is(broken, errMoreTopics) || errors.Is(broken, errRebuild) {
			failed = 0
			continue
		}
		trouble.report(broken)
		if time.Since(began) > time.Minute || errors.Is(broken, errSkipped) {
			failed = 1
		}
		if !pause(ctx, policy.Wait(failed)) {
			return nil
		}
	}
}

// join joins the group, and keeps the membership until ctx ends or the membership is broken. broken is the reason why a new membership is needed. err
// ends Run.
func (p *Participant) join(ctx context.Context) (broken, err error) {
	member, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	select {
	case <-p.more: // newConsumer consumes the added topics too
	default:
	}
	c, err := newConsumer(p, abandon)
	if err != nil {
		return nil, err
	}
	p.setState(nil, c)
	committing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	background.Go(func() { c.commitOften(committing) })
	background.Go(func() { c.watch(committing) })
	background.Go(func() { p.awaitMore(committing, func() { abandon(errMoreTopics) }) })
	background.Go(func() { c.watchProgress(committing) })
	background.Go(func() { p.watchStranded(committing, c.client) })
	background.Go(func() { p.watchRebuilds(committing, c) })
	background.Go(func() { p.awaitFormer(committing, c.client, abandon) })
	if len(p.leftOut) > 0 {
		background.Go(func() { p.awaitLeftOut(committing, c.client, abandon) })
	}
	if broken = c.poll(member); broken != nil {
		p.setState(broken, nil) // nothing is handled while the consumer ends
	}
	err = c.end()
	cancel()
	background.Wait()
	if err != nil && errors.Is(broken, errWedged) {
		err = errors.Join(broken, err)
	}
	return broken, err
}

// setState sets the state that Ready reports (nil: messages are handled), and the present membership (nil: none).
func (p *Participant) setState(state error, c *consumer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.consumer, p.local = state, c, nil
}

func (p *Participant) setLocal(l *local) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.local = nil, l
}
