package relay

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Role is what a relay does at the moment.
type Role string

// The roles.
const (
	Starting Role = "starting" // has not seen the lease yet
	Active   Role = "active"   // holds the lease and publishes
	Standby  Role = "standby"  // waits for the lease
	Stopped  Role = "stopped"  // Run has returned
)

// Status is what a relay knows of itself; nothing is asked of the database for it. Counts are since New.
type Status struct {
	Table  string    `json:"table"` // the outbox
	Holder string    `json:"holder"`
	Role   Role      `json:"role"`
	Since  time.Time `json:"since"` // of the role
	Term   int64     `json:"term"`  // own when active, else the last one seen; 0: none
	Leader string    `json:"leader,omitempty"`

	Delivery Delivery `json:"delivery"`
	// Checkpoint is the LSN up to which committed Kafka transactions have published the log; empty unless delivery is exactly-once.
	Checkpoint string `json:"checkpoint,omitempty"`
	// Repeats is why, last, rows were published apart from the log, so that some may come twice if the relay dies at the
	// wrong moment, although delivery is exactly once. It is kept after that is over.
	Repeats   string    `json:"repeats,omitempty"`
	RepeatsAt time.Time `json:"repeats_at,omitzero"`

	Claimed   int64 `json:"claimed"`   // rows read, with each try anew
	Published int64 `json:"published"` // rows that the broker acknowledged
	Deleted   int64 `json:"deleted"`   // rows done
	Retried   int64 `json:"retried"`   // times that a row was put off to a next try
	Parked    int64 `json:"parked"`    // rows put before a person
	InFlight  int64 `json:"in_flight"` // rows sent and not yet acknowledged

	// Lag is the age of the oldest row in the last claim, by this machine's clock; 0 when the last look found none.
	// Rows in trouble do not count.
	Lag time.Duration `json:"lag_ns"`
	// Progress is when the relay last got somewhere: rows acknowledged or deleted, or an outbox found empty; on a
	// standby, the lease read.
	Progress time.Time `json:"progress"`
	// Headroom is how many positions are left in the partitions there are; 0 until known.
	Headroom int64 `json:"headroom"`

	// Shards is into how many the outbox is divided, as last seen; 0: not seen yet. Held are those that this relay holds.
	Shards int   `json:"shards"`
	Held   []int `json:"held,omitempty"`

	// Source that was chosen; empty while none is. While a slot is made for wal, the table is polled.
	Source Source `json:"source,omitempty"`
	// Slot is the replication slot's state, kept while this relay leads; nil: there is none, or it was not read yet.
	Slot *SlotStatus `json:"slot,omitempty"`
	// GivenUp says why the slot was dropped and the table is polled instead, until this relay is started again.
	GivenUp string `json:"given_up,omitempty"`

	LastError   string    `json:"last_error,omitempty"` // kept after it is over
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

type state struct {
	mu      sync.Mutex
	status  Status
	shards  map[int]pace
	failing error // why there is no progress; nil after progress
	broker  error // the last failed connect, nil after a good one
}

func (s *state) update(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

// pace is how one shard gets on.
type pace struct {
	progress time.Time
	lag      time.Duration
}

// progressed changes the status and clears what was failing.
func (s *state) progressed(shard int, change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = nil
	s.pace(shard, func(p *pace) { p.progress = time.Now() })
	change(&s.status)
}

func (s *state) lags(shard int, lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace(shard, func(p *pace) { p.lag = lag })
}

func (s *state) pace(shard int, change func(*pace)) {
	if s.shards == nil {
		s.shards = make(map[int]pace)
	}
	p := s.shards[shard]
	change(&p)
	s.shards[shard] = p
}

// leaves forgets what is no longer ours.
func (s *state) leaves(shard int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shard > 0 {
		delete(s.shards, shard)
	}
}

// slowest is the status with what holds for the shard that is worst off.
func (s *state) slowest(held []int) Status {
	status := s.status
	if len(held) == 0 {
		held = []int{0}
	}
	for n, shard := range held {
		p := s.shards[shard]
		if n == 0 || p.progress.Before(status.Progress) {
			status.Progress = p.progress
		}
		status.Lag = max(status.Lag, p.lag)
	}
	return status
}

func (s *state) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = err
	s.status.LastError, s.status.LastErrorAt = err.Error(), time.Now()
}

func (s *state) brokerIs(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broker = err
}

// Status may be called at any time, from any goroutine.
func (r *Relay) Status() Status {
	held := r.looker.held()
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	s := r.state.slowest(held)
	s.InFlight = r.flight.Load()
	s.Shards, _ = r.shards.now()
	s.Held = held
	if s.Role == Standby && len(s.Held) > 0 {
		s.Role = Active
	}
	return s
}

// Ready is nil while the relay is active and gets somewhere, or a standby that can see the lease. Otherwise it says
// what it waits for. It follows progress, not connections: without any for a lease's length and two intervals it is
// an error, and so is a slot that the server is about to lose or keeps more log for than Config.SlotUnready. Rows in
// trouble do not make it one. It may be called at any time, from any goroutine.
func (r *Relay) Ready() error {
	held := r.looker.held()
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	s := r.state.slowest(held)
	if s.Role == Standby && len(held) > 0 {
		s.Role = Active
	}
	switch s.Role {
	case Starting:
		if r.state.failing != nil {
			return fmt.Errorf("starting: %w", r.state.failing)
		}
		return errors.New("starting: the lease was not read yet")
	case Stopped:
		return errors.New("stopped")
	}
	if s.Role == Active && s.Slot != nil {
		if err := r.worry(s.Slot, r.cfg.SlotUnready); err != nil {
			return fmt.Errorf("%s: %w", s.Role, err)
		}
	}
	if err := r.stuck.unready(); err != nil && s.Role == Active {
		return fmt.Errorf("%s: %w", s.Role, err)
	}
	quiet := time.Since(s.Progress)
	if quiet <= r.cfg.Lease+2*r.cfg.Interval {
		return nil
	}
	quiet = quiet.Round(time.Second)
	switch {
	case r.state.failing != nil:
		return fmt.Errorf("%s: no progress for %s: %w", s.Role, quiet, r.state.failing)
	case r.state.broker != nil && s.Role == Active:
		return fmt.Errorf("%s: no progress for %s: broker: %w", s.Role, quiet, r.state.broker)
	case s.Role == Active && r.flight.Load() > 0:
		return fmt.Errorf("%s: no progress for %s: %d rows wait for the broker's acknowledgement", s.Role, quiet, r.flight.Load())
	}
	return fmt.Errorf("%s: no progress for %s", s.Role, quiet)
}
