package participant

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/retry"
)

var (
	//go:embed sql/next_deadline.sql
	nextDeadline string
	//go:embed sql/fire_deadlines.sql
	fireDeadlines string
	//go:embed sql/fire_again.sql
	fireAgain string
	//go:embed sql/unknown_deadlines.sql
	unknownDeadlines string
	//go:embed sql/overdue_deadlines.sql
	overdueDeadlines string
)

// Members find due deadlines by polling. Notifications would need a connection for each member, and commits that notify wait for each other.
//
// A member polls every lookEvery, and earlier if it knows that a deadline is due earlier. Most polls read only deadlines that were due within the last
// lookBack. While an old snapshot is open, the index keeps entries of deadlines that have fired, and these polls do not read the older ones. About every
// wholeEvery a poll has no such limit. It finds deadlines whose transaction committed late, and deadlines that became due while no member polled.
//
// After a member has fired deadlines, it waits for fireEvery before it looks again. So the deadlines that become due in that time fire together. This
// keeps notifications of the relay rare: each commit that notifies takes a lock that exists once per server.
const (
	lookEvery  = 50 * time.Millisecond
	fireEvery  = 5 * time.Millisecond
	lookBack   = 10 * time.Second
	wholeEvery = time.Second
	fireLimit  = 500
	allTheWay  = time.Duration(-1)
)

// foreignLockEvery is the shortest time between two searches for a session of another role that holds the lock.
const foreignLockEvery = time.Second

// fireClass is the first half of the advisory lock under which a group's deadlines are fired; see leaseClass.
const fireClass = 0x74727564 // "trud"

// Fired reports due deadlines that a member fired.
type Fired struct {
	Deadlines int           // number of deadlines whose messages are in the outbox now
	Lag       time.Duration // of the deadline that waited longest, from its due time, by the database's clock
}

// firer writes the messages of due deadlines to the outbox. Each member has one firer, which fires the deadlines of the whole group.
type firer struct {
	p       *Participant
	names   []string  // names of the deadlines that this pass fires: all or atOnce
	atOnce  []string  // names that have handlers here and do not wait for the backlog
	all     []string  // all names that have handlers here
	whole   time.Time // when to poll without limit again
	backlog backlog

	server     time.Time // the start of the server that answered last
	answeredAt time.Time // that server's time at its last answer
	changedAt  time.Time // when the server that answers last changed
	lateAt     time.Time // when an answer was last late
	vain       int       // number of statements in a row that fired nothing although deadlines were due

	looked  time.Time // when foreignLock read who holds the lock
	blocked error     // its result
}

// lateAnswer is the duration after which an answer is late: a connection pooler may have queued the statement while the server was away.
const lateAnswer = time.Second

// vainFires is the number of statements in a row that may fire nothing although deadlines are due. After that number any server may execute the next
// statement, and not only the one that answered last.
const vainFires = 10

// fire fires deadlines until ctx ends.
func (p *Participant) fire(ctx context.Context) {
	f := firer{p: p, all: p.deadlineNames(), backlog: newBacklog(p)}
	f.atOnce = slices.DeleteFunc(slices.Clone(f.all), func(name string) bool { return p.afterBacklog[name] })
	trouble := p.repeated("fire deadlines")
	policy := retry.Policy{Initial: lookEvery, Cap: 2 * time.Second}
	for failed := 0; ; {
		wait, err := f.pass(ctx)
		if ctx.Err() != nil {
			return
		}
		trouble.report(err)
		p.cannotFire(err)
		if failed++; err == nil {
			failed = 0
		} else {
			wait = policy.Wait(failed)
			f.backlog.reset()
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// pass fires the deadlines that are due, and returns the time until the next pass.
func (f *firer) pass(ctx context.Context) (wait time.Duration, err error) {
	back, began := lookBack, time.Now()
	if f.names = f.all; len(f.atOnce) < len(f.all) && !f.backlog.isHandled(ctx) {
		f.names = f.atOnce
	}
	if began.After(f.whole) {
		back = allTheWay
	}
	server := f.server
	wait, err = f.untilNext(ctx, back)
	if f.wasAway(server, time.Since(began)) && err == nil && len(f.atOnce) < len(f.all) {
		if f.backlog.reset(); !f.backlog.isHandled(ctx) {
			f.names = f.atOnce
		}
	}
	if wait > 0 && back == allTheWay {
		f.vain = 0
	}
	if back == allTheWay {
		f.whole = time.Now().Add(wholeEvery + 20*time.Since(began))
	}
	for n := fireLimit; err == nil && wait <= 0 && n == fireLimit; {
		n, err = f.fire(ctx, back)
		switch {
		case n == 0:
			wait = lookEvery // another member fires the due ones, or a transaction cancels them
			if err == nil {
				err = f.foreignLock(ctx)
			}
		case n < fireLimit:
			wait = fireEvery
		}
	}
	return wait, err
}

// A deadline that fired more than lostAfter ago and was not handled fires again: its message may be lost, since a broker may lose the end of its log.
// Members look for such deadlines every lostEvery.
const (
	lostAfter = 24 * time.Hour
	lostEvery = time.Hour
	lostLimit = 500
)

// fireLost calls fireAgain at once, every lostEvery, and whenever this member detects a loss, until ctx ends. It has its own goroutine: while it
// fails, other deadlines fire.
func (p *Participant) fireLost(ctx context.Context) {
	trouble := p.repeated("look for deadlines whose messages are lost")
	policy := retry.Policy{Initial: time.Second, Cap: time.Minute}
	for found, failed := false, 0; ; {
		err := p.fireAgain(ctx, found)
		if ctx.Err() != nil {
			return
		}
		trouble.report(err)
		wait := lostEvery
		if failed++; err == nil {
			found, failed = false, 0
		} else {
			wait = policy.Wait(failed)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-p.messagesLost:
			found = true
		}
		timer.Stop()
	}
}

// fireAgain makes fired deadlines that were not handled fire again, since no other service can send their messages again. found is true if this
// member has detected a loss: then all of these deadlines fire again. Otherwise only the ones that fired more than lostAfter ago do. A message that
// was not lost then comes twice, and the second one is ignored.
//
// Each transaction resets at most lostLimit deadlines, the newest first. Deadlines that fire meanwhile are newer, so the loop ends. The log line comes
// after the last transaction: if the process ends before, there is none.
func (p *Participant) fireAgain(ctx context.Context, found bool) error {
	args := pg.Args{
		"group": p.cfg.Group, "limit": lostLimit, "age": (*float64)(nil), "before": (*time.Time)(nil), "scope": "", "name": "",
	}
	if !found {
		if u, err := p.findUnpublished(ctx); err == nil && u.rows > 0 {
			return nil // their messages may wait for a relay
		}
		args["age"] = lostAfter.Seconds()
	}
	total, err := 0, error(nil)
	for n := lostLimit; err == nil && n == lostLimit; total += n {
		n, err = p.resetFired(ctx, args)
	}
	if total > 0 {
		p.cfg.Log.Warn().Int("deadlines", total).
			Msg("deadlines fire again: they had fired and were not handled, and their messages may be lost, skipped, parked or not published yet")
	}
	return err
}

// resetFired executes fire_again.sql, and sets args so that the next call continues with older deadlines.
func (p *Participant) resetFired(ctx context.Context, args pg.Args) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	var scope, name string
	var before time.Time
	err = p.queryCommitted(ctx, fireAgain, args, &before, &scope, &name, &n)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	args["before"], args["scope"], args["name"] = &before, scope, name
	return n, nil
}

// wasAway reports whether the database may have been away since the last pass although no statement failed: another server answers, or the answer was
// late. Each of the two signs counts only once per backlogLimit. So deadlines fire even if all answers are late, or if a proxy sends each statement
// to another server.
func (f *firer) wasAway(before time.Time, took time.Duration) (was bool) {
	count := func(last *time.Time, is bool) {
		if is && time.Since(*last) >= f.p.backlogLimit {
			*last, was = time.Now(), true
		}
	}
	count(&f.changedAt, !before.IsZero() && !f.server.Equal(before))
	count(&f.lateAt, took >= lateAnswer)
	return was
}

// foreignLock returns an error if a session of another role holds the lock under which deadlines are fired. It searches at most once in
// foreignLockEvery; in between it returns the last result.
func (f *firer) foreignLock(ctx context.Context) error {
	if time.Since(f.looked) < foreignLockEvery {
		return f.blocked
	}
	ctx, cancel := context.WithTimeout(ctx, f.p.statementTimeout)
	defer cancel()
	const hash = "SELECT hashtext($1)" // as fire_deadlines.sql
	var object int32
	if err := f.p.cfg.Pool.QueryRow(ctx, hash, f.p.cfg.Group).Scan(&object); err != nil {
		return err
	}
	f.looked, f.blocked = time.Now(), f.p.foreignLock(ctx, fireClass, object)
	return f.blocked
}

// untilNext returns the time until the next deadline is due, at most lookEvery. It also stores which server answered, and when.
func (f *firer) untilNext(ctx context.Context, back time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	var next *float64
	err := f.p.cfg.Pool.QueryRow(ctx, nextDeadline, pg.Args{
		"group": f.p.cfg.Group, "names": f.names, "back": from(back), "ahead": lookEvery.Seconds(),
	}).Scan(&next, &f.server, &f.answeredAt)
	if next == nil {
		return lookEvery, err
	}
	return seconds(*next), err
}

// from returns back in seconds, or nil for allTheWay.
func from(back time.Duration) *float64 {
	if back == allTheWay {
		return nil
	}
	s := back.Seconds()
	return &s
}

// fire fires due deadlines, at most fireLimit, the earliest first. If the process ends after the statement has committed, no member reports these
// deadlines to Hooks.Fired.
func (f *firer) fire(ctx context.Context, back time.Duration) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	var lag float64
	server := &f.server
	if f.vain++; f.vain > vainFires {
		server = nil
	}
	var topics []string // the statement looks for a rebuild of them; nil if this member knows that one has begun
	if b := &f.backlog; b.of != nil && !b.rebuilt {
		topics = b.of.consumed
	}
	err = f.p.queryCommitted(ctx, fireDeadlines, pg.Args{
		"group": f.p.cfg.Group, "names": f.names, "back": from(back), "limit": fireLimit, "class": int32(fireClass),
		"topic": f.p.cfg.Hop.Commands(), "channel": outboxrow.Channel, "server": server, "asked": f.answeredAt,
		"at_once": f.atOnce, "topics": topics,
	}, &n, &lag, nil)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err == nil {
		f.vain = 0
		tell(f.p.cfg.Hooks.Fired, Fired{Deadlines: n, Lag: seconds(lag)})
	}
	return n, err
}

// fires reports whether this participant has a handler of any deadline.
func (p *Participant) fires() bool { return len(p.deadlineNames()) > 0 }

// deadlineNames returns the names of deadlines that have handlers here. It never returns nil, since statements need an array.
func (p *Participant) deadlineNames() []string {
	names := []string{}
	for to := range p.registered()[p.cfg.Hop.Commands()] {
		if to.deadline != "" {
			names = append(names, to.deadline)
		}
	}
	return names
}

// warnUnknownEvery is the interval at which pending deadlines without a handler are logged.
const warnUnknownEvery = 10 * time.Minute

// watchUnknown logs pending deadlines whose names have no handler here, at the start and every warnUnknownEvery. An earlier or a later version of the
// service scheduled them. They wait in the table until a member that has the handler fires them. It also logs overdue deadlines of other groups: such
// a group may be the former name of this one.
func (p *Participant) watchUnknown(ctx context.Context) {
	trouble := p.repeated("look for deadlines without a handler")
	policy := retry.Policy{Initial: 100 * time.Millisecond, Cap: 5 * time.Second}
	for failed := 0; ; {
		pending, err := p.pendingUnknown(ctx)
		late := p.warnOverdue(ctx)
		if ctx.Err() != nil {
			return
		}
		trouble.report(errors.Join(err, late))
		wait := warnUnknownEvery
		if failed++; err == nil {
			failed = 0
		} else {
			wait = policy.Wait(failed)
		}
		if len(pending) > 0 {
			p.cfg.Log.Error().Strs("deadlines", pending).Msg("deadlines are pending that no OnDeadline handles here: they wait for a member " +
				"that does; register their names, or delete them from troupe.deadlines")
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// cannotFire stores the reason why deadlines are not fired, for Ready; nil if they are fired.
func (p *Participant) cannotFire(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fires() {
		p.unfired = why
	}
}

func (p *Participant) pendingUnknown(ctx context.Context) (pending []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	rows, _ := p.cfg.Pool.Query(ctx, unknownDeadlines, pg.Args{"group": p.cfg.Group, "names": p.deadlineNames()})
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var name string
		var n int
		err := row.Scan(&name, &n)
		return fmt.Sprintf("%s (%d)", name, n), err
	})
}

// warnOverdue logs deadlines of other groups that are overdue by more than an hour. Their members are away, or the group was renamed or removed and
// has no members any more.
func (p *Participant) warnOverdue(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	rows, _ := p.cfg.Pool.Query(ctx, overdueDeadlines, pg.Args{"group": p.cfg.Group})
	var group string
	var n int
	_, err := pgx.ForEachRow(rows, []any{&group, &n}, func() error {
		p.cfg.Log.Error().Str("overdue_group", group).Int("deadlines", n).Msg("deadlines of another group in this database are overdue by more than an hour: " +
			"start its members; if the group was renamed, see docs/participant.md, When you rename a group; if it was removed, delete them")
		return nil
	})
	return err
}
