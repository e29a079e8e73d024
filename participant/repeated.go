package participant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
)

const repeatEvery = 30 * time.Second

// repeated logs one kind of failure: the first one, and then at most one line every 30 s with the number of failures. After a logged failure it logs
// the recovery. A failure that comes and goes ten times a second costs at most two lines in 30 s. It may be used concurrently.
type repeated struct {
	log  zerolog.Logger
	what string

	mu      sync.Mutex
	count   int  // failures since the last line
	failing bool // a failure was logged, and no recovery since
	logged  time.Time
}

func (p *Participant) repeated(what string) *repeated {
	return &repeated{log: p.cfg.Log, what: what}
}

// repeat calls do at once and then at intervals, until ctx ends. It logs the errors of do.
func (p *Participant) repeat(ctx context.Context, what string, every time.Duration, do func(context.Context) error) {
	failures := p.repeated(what)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := do(ctx)
		if ctx.Err() != nil {
			return
		}
		failures.report(err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// pause returns true after the duration wait, or false as soon as ctx ends.
func pause(ctx context.Context, wait time.Duration) bool {
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// report counts err as a failure. If err is nil, it records a success.
func (r *repeated) report(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		if r.failing {
			r.log.Info().Msg(r.what + " works again")
		}
		r.failing = false
		return
	}
	r.count++
	if time.Since(r.logged) < repeatEvery {
		return
	}
	event := r.log.Warn().Err(remedied(err)).Int("failures", r.count)
	var panicked panicked
	if errors.As(err, &panicked) {
		event = event.Bytes("stack", panicked.stack)
	}
	event.Msg(r.what + " failed")
	r.count, r.failing, r.logged = 0, true, time.Now()
}

// remedied adds a remedy to err if Troupe's tables are missing: waiting does not repair that.
func remedied(err error) error {
	var answer *pgconn.PgError
	if errors.As(err, &answer) && (answer.Code == "42P01" || answer.Code == "3F000") && strings.Contains(answer.Message, "troupe") {
		return fmt.Errorf("%w: the database has not all of Troupe's tables: migrations.Up makes them, or outbox-relay migrate", err)
	}
	return err
}

// outage returns the failure log of a dependency. All partitions share it.
func (p *Participant) outage(what string) *repeated {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.outages == nil {
		p.outages = make(map[string]*repeated)
	}
	if p.outages[what] == nil {
		p.outages[what] = p.repeated(what)
	}
	return p.outages[what]
}

// failures logs the runs that count as attempts, separately for each handler and class.
type failures struct {
	p  *Participant
	mu sync.Mutex
	by map[string]*repeated
}

// failed logs a run that has failed and counts as an attempt, with the stack if it panicked, and calls Hooks.Failed. Repeated failures are logged as
// one line.
func (p *Participant) failed(d Delivery) {
	p.failures.of(d).report(d.Err)
	tell(p.cfg.Hooks.Failed, d)
}

func (f *failures) of(d Delivery) *repeated {
	f.mu.Lock()
	defer f.mu.Unlock()
	what := "attempt of " + d.Handler + " (" + string(d.Class) + ")"
	if f.by == nil {
		f.by = make(map[string]*repeated)
	}
	if f.by[what] == nil {
		f.by[what] = f.p.repeated(what)
	}
	return f.by[what]
}
