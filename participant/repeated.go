package participant

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
)

const repeatEvery = 30 * time.Second

// repeated logs one kind of failure: the first time, then at most every 30 s with the count, and the recovery from what
// was logged. What fails and recovers ten times a second is no more than two lines in 30 s. It may be used concurrently.
type repeated struct {
	log  zerolog.Logger
	what string

	mu     sync.Mutex
	count  int  // since it was last logged
	told   bool // that it fails, and not yet that it works again
	logged time.Time
}

func (p *Participant) repeated(what string) *repeated {
	return &repeated{log: p.cfg.Log, what: what}
}

// report takes an error or, with nil, a success.
func (r *repeated) report(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		if r.told {
			r.log.Info().Msg(r.what + " works again")
		}
		r.told = false
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
	r.count, r.told, r.logged = 0, true, time.Now()
}

// remedied adds what to do where Troupe's tables are not there, which no waiting mends.
func remedied(err error) error {
	var answer *pgconn.PgError
	if errors.As(err, &answer) && (answer.Code == "42P01" || answer.Code == "3F000") && strings.Contains(answer.Message, "troupe") {
		return fmt.Errorf("%w: the database has not all of Troupe's tables: migrations.Up makes them, or outbox-relay migrate", err)
	}
	return err
}

// outage is what is said of something that messages need.
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

// failures are the runs that count, told apart by handler and class.
type failures struct {
	p  *Participant
	mu sync.Mutex
	by map[string]*repeated
}

// failed logs a run that counts, with the stack of a panic, and tells the hook.
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
