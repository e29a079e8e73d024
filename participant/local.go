package participant

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/retry"
)

// Local work reaches a participant without Kafka, since its writers share the database.
//
//	INSERT INTO troupe.outbox ──trigger──► troupe.local_work ──claim──► run ──► done, failed, or pending again
//
// Moving an entry. A trigger on the outbox moves it, in the writer's own transaction: it inserts the entry into troupe.local_work, and not into the
// outbox. So it works for a writer in any language. No relay must know of it: a relay that reads the WAL finds no row of the outbox there. No other
// process need run. The positions of a key have the same order as in the outbox. If no topic is local, a row costs nothing more; if other topics are
// local, it costs a comparison. The disadvantage: the writer's INSERT reports that it inserted no row, and RETURNING returns none.
//
// There is one trigger for each local topic, rather than one that looks the topic up in a table: a transaction whose snapshot was taken before the
// topic became local would not find it there. troupe.make_local and troupe.end_local create and drop the trigger while no other transaction writes to
// the outbox, and move the entries that have not ended.
//
// Owning an entry. A claim is a statement of its own, which commits. After that every session can see that the entry is in progress, by which member,
// and since when. The first statement of the run locks the entry's row until the run's end; it finds the row by the entry's term.
//
// Taking over an entry. An entry in progress is taken over if no session has its row locked and the participant that claimed it is dead. Each
// participant holds an advisory lock on its number while it lives; Postgres releases the lock as soon as the session ends. If a participant lives but
// makes no progress, such as a frozen one, its claim is taken over after Config.Stale. A call that takes longer than that does not run twice, since
// its row is locked. The previous owner cannot end an entry that was taken over, since the entry's term has changed.
//
// Crashes. A crash leaves the entry in progress, and is counted when the entry is taken over. From then on the entry runs alone, one such entry in a
// process at a time, and after the fifth crash it is poison. A run that ends in any way is no crash.

var (
	//go:embed sql/claim_local.sql
	claimLocal string
	//go:embed sql/end_local.sql
	endLocal string
	//go:embed sql/retry_local.sql
	retryLocal string
	//go:embed sql/return_local.sql
	returnLocal string
	//go:embed sql/age_local.sql
	ageLocal string
	//go:embed sql/prune_local.sql
	pruneLocal string
	//go:embed sql/reset_future_local.sql
	resetFutureLocal string
)

const (
	memberClass = 0x7472756c // "trul": the first half of the advisory locks' keys; the second is the member's number

	// Entries without a notification are found by polling. The interval is minPoll after an entry was found, and doubles up to maxPoll.
	minPoll, maxPoll = 20 * time.Millisecond, time.Second

	// localHints is the shortest time between two notifications of a topic. An entry whose notification is left out is found by polling, up to
	// minPoll later, at each hop. With 5 ms, the outbox's default, a saga of eight messages took 26 ms (median); with this value it took 11 ms
	// (bench/saga, 50 sagas a second).
	localHints = time.Millisecond

	localKeep = time.Hour // how long ended entries are kept
	// topicsLock limits how long making a topic local may block writers. It is less than deadlock_timeout (1 s): after that Postgres looks for
	// deadlocks, and could roll back a writer.
	topicsLock = 800 * time.Millisecond
)

// local is the source of the messages in troupe.local_work, and the runner of these messages.
type local struct {
	*runner
	member   atomic.Int32          // this participant's number; 0 while it does not hold the lock on it
	noNumber atomic.Pointer[error] // error of its connection, while it has no number; nil: none
	wake     chan struct{}         // there may be entries
	hints    atomic.Int64          // counts the hints that there may be entries
	work     sync.WaitGroup
	soon     chan struct{} // there were entries: poll again soon
	broken   context.CancelCauseFunc
	try      atomic.Bool // one turn is allowed although the gate is shut
	types    []string    // that have handlers

	unconsumed atomic.Pointer[[]string] // local topics of the group that no member consumes
	lost       atomic.Pointer[[]string] // consumed topics that are not local any more; nil: none

	mu     sync.Mutex
	had    []int32            // its earlier numbers, the last 100
	forget context.CancelFunc // gives the number up
	kept   []*message         // claimed entries that did not run and could not be given back
}

// runLocal handles local work until ctx ends.
func (p *Participant) runLocal(ctx context.Context) error {
	p.setState(errors.New("topics are not local yet"), nil)
	if err := p.makeLocal(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	ctx, broken := context.WithCancelCause(ctx)
	defer broken(nil)
	l := &local{wake: make(chan struct{}, 1), soon: make(chan struct{}, 1), broken: broken, types: p.registered().types()}
	l.runner = newRunner(p, l, topicPartition{p.cfg.Hop.Commands(), localPartition})
	defer l.cancel()
	p.setLocal(l)

	// The member keeps its connection, and so the lock on its number, until its last entry was given back.
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	var background sync.WaitGroup
	background.Go(func() { l.holdNumber(connected) })
	background.Go(func() { l.poll(connected) })
	background.Go(func() { l.prune(connected) })
	background.Go(func() { l.keepPartitions(connected) })
	background.Go(func() { l.removeRecords(connected) })
	background.Go(func() { l.watch(connected) })
	background.Go(func() { p.addLocal(ctx, l.renew) })
	background.Go(func() { l.watchOthers(connected) })
	background.Go(func() { l.watchNumber(connected) })
	background.Go(func() { l.keepLocal(ctx) })
	background.Go(func() { p.watchStranded(connected, nil) })
	for range p.cfg.Concurrency {
		l.work.Go(l.worker)
	}
	<-ctx.Done()
	err := l.end()
	disconnect()
	background.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, errWedged) {
		err = errors.Join(cause, err)
	}
	return err
}

// end lets running handlers finish within Config.Drain, then cancels them. It returns an error if a handler still runs.
func (l *local) end() error {
	close(l.stop)
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		l.work.Wait()
	}()
	for _, limit := range []time.Duration{l.p.cfg.Drain, cancelGrace + releaseLimit} {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-idle:
			return nil
		case <-timer.C:
			l.cancel()
		}
	}
	_, running := l.clocks.longest(time.Now())
	return fmt.Errorf("%d handlers ignore their context and still run", running)
}

// makeLocal makes the participant's topics local. It tries again while the database is away, and returns an error if the role lacks the right. It
// only logs an optional topic for which the role lacks the right.
func (p *Participant) makeLocal(ctx context.Context) error {
	wanted := map[string]bool{p.cfg.Hop.Commands(): true}
	for topic := range p.registered() {
		wanted[topic] = true
	}
	trouble := p.repeated("make topics local")
	policy := retry.Policy{Initial: 100 * time.Millisecond, Cap: 5 * time.Second}
	for _, topic := range slices.Sorted(maps.Keys(wanted)) {
		for failed := 1; ; failed++ {
			err := p.makeTopicLocal(ctx, topic)
			var refused *pgconn.PgError
			switch class := pg.Classify(err); {
			case err == nil || ctx.Err() != nil:
			case errors.As(err, &refused) && refused.Code == "42501":
				err = fmt.Errorf("topic %s is not local for this group, and the role may not make it so: have the owner of Troupe's "+
					"tables run SELECT troupe.make_local('%s', '%s'): %w", topic, topic, p.cfg.Group, err)
				if !p.registered().optional(topic) {
					return err
				}
				p.cfg.Log.Error().Err(err).Msg("a topic that only saga definitions of other versions read is not consumed: it is consumed once it is local")
				err = nil
			case errors.As(err, &refused) && class != pg.Unavailable && class != pg.Conflict:
				return fmt.Errorf("make topic %s local: %w", topic, err)
			}
			if ctx.Err() != nil {
				return nil
			}
			trouble.report(err)
			if err == nil {
				break
			}
			if !pause(ctx, policy.Wait(failed)) {
				return nil
			}
		}
	}
	return nil
}

func (p *Participant) makeTopicLocal(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, p.statementTimeout)
	defer cancel()
	const is = "SELECT EXISTS (SELECT FROM troupe.local_topics WHERE topic = $1 AND consumer_group = $2)"
	var already bool
	if err := p.cfg.Pool.QueryRow(ctx, is, topic, p.cfg.Group).Scan(&already); err != nil || already {
		return err
	}
	return pgx.BeginTxFunc(ctx, p.cfg.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		const limit = "SELECT set_config('lock_timeout', $1, true)"
		if _, err := tx.Exec(ctx, limit, fmt.Sprint(topicsLock.Milliseconds())); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "SELECT troupe.make_local($1, $2)", topic, p.cfg.Group)
		return err
	})
}

// holdNumber holds the lock on the member's number until ctx ends, on the connection that also listens for notifications. The lock shows other
// members that this one runs. Each connection gets another number. Entries that were claimed under an earlier number are taken over, unless they run.
func (l *local) holdNumber(ctx context.Context) {
	listener := pg.Listener{
		Config: l.p.cfg.Pool.Config(), Channel: outboxrow.Channel, OnConnect: l.takeNumber, Concerns: l.concerns,
		OnError: func(err error) {
			l.member.Store(0)
			l.noNumber.Store(&err)
			l.p.outage(theDatabase).report(err)
		},
	}
	for ctx.Err() == nil {
		listening, forget := context.WithCancel(ctx)
		l.mu.Lock()
		l.forget = forget
		l.mu.Unlock()
		listener.Run(listening, l.wake)
		l.member.Store(0)
		forget()
	}
}

// concerns reports whether a notification is about a topic that is consumed here. If so, it counts the notification as a hint.
func (l *local) concerns(topic string) bool {
	ours := topic == "" || topic == l.p.cfg.Hop.Commands() || l.p.registered()[topic] != nil
	if ours {
		l.hints.Add(1)
	}
	return ours
}

// takeNumber takes a number, the lock on it, and the locks on the consumed topics.
func (l *local) takeNumber(ctx context.Context, conn *pgx.Conn) error {
	const number = "SELECT n, pg_try_advisory_lock($1, n) FROM (SELECT nextval('troupe.local_members')::integer AS n OFFSET 0) AS next"
	var n int32
	var locked bool
	err := conn.QueryRow(ctx, number, int32(memberClass)).Scan(&n, &locked)
	if err == nil && !locked {
		err = cmp.Or(l.p.foreignLock(ctx, memberClass, n), fmt.Errorf("member number %d is taken", n))
	}
	if err == nil {
		err = l.lockTopics(ctx, conn)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.had = append(l.had, n)
	l.had = l.had[max(0, len(l.had)-100):]
	l.mu.Unlock()
	l.p.outage(theDatabase).report(nil)
	l.noNumber.Store(nil)
	l.member.Store(n)
	l.hints.Add(1) // earlier notifications were not received
	return nil
}

// renew gives up this number, so that the entries that were claimed under it do not count as in progress. holdNumber then takes another one.
func (l *local) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.member.Store(0)
	if l.forget != nil {
		l.forget()
	}
}

// numbers returns the present number and the earlier ones. now is 0 while there is none.
func (l *local) numbers() (now int32, before []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now = l.member.Load()
	return now, slices.DeleteFunc(slices.Clone(l.had), func(n int32) bool { return n == now })
}

// poll wakes a worker at intervals: some writers do not notify, and some notifications are left out.
func (l *local) poll(ctx context.Context) {
	wait := minPoll
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-l.soon:
			timer.Stop()
			wait = minPoll
		case <-timer.C:
			wait = min(2*wait, maxPoll)
			l.hint()
		}
	}
}

// hint records that there may be entries, and wakes a worker.
func (l *local) hint() {
	l.hints.Add(1)
	l.another()
}

// another wakes one worker that waits, if there is one.
func (l *local) another() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// watch ends Run when a handler ignores its time-out.
func (l *local) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if ran, wedged := l.wedged(now); wedged {
				l.broken(fmt.Errorf("local work: %w for %s", errWedged, ran.Round(time.Second)))
			}
		}
	}
}

// prune deletes entries an hour after their end. It also makes entries due that failed while the database's clock was ahead.
func (l *local) prune(ctx context.Context) {
	args := pg.Args{"group": l.p.cfg.Group, "keep": localKeep.Seconds(), "limit": pruneBatch}
	l.p.repeat(ctx, "prune local work", pruneEvery, func(ctx context.Context) error {
		reset := l.p.resetFutureTimes(ctx, resetFutureLocal)
		for {
			limited, cancel := context.WithTimeout(ctx, statementLimit)
			tag, err := l.p.cfg.Pool.Exec(limited, pruneLocal, args)
			cancel()
			if err != nil || tag.RowsAffected() < pruneBatch {
				return errors.Join(reset, err)
			}
		}
	})
}

// ready returns the reason why local work is not handled as it comes, or nil.
func (l *local) ready(now time.Time) error {
	if waits := l.gate.waits.Load(); waits != nil {
		return fmt.Errorf("local work waits for %s since %s: %w", waits.what, now.Sub(waits.since).Round(time.Second), waits.unavailable)
	}
	if why := l.noNumber.Load(); l.member.Load() == 0 && why != nil {
		return fmt.Errorf("local work has no connection of its own to the database: %w", *why)
	}
	if l.member.Load() == 0 {
		return errors.New("local work has no connection of its own to the database yet, or lost it")
	}
	if lost := l.lost.Load(); lost != nil {
		return fmt.Errorf("topics %s are not local any more, and their messages go to Kafka: a failover or a restore set the database back, or "+
			"troupe.end_local was called; they are made local again if the role may do so", strings.Join(*lost, ", "))
	}
	if l.died.Load() {
		return errors.New("local work: a handler ended its goroutine")
	}
	if ran, wedged := l.wedged(now); wedged {
		return fmt.Errorf("local work: a handler runs for %s and ignores its time-out", ran.Round(time.Second))
	}
	return nil
}
