package relay

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Role is the current role of a relay.
type Role string

// The roles.
const (
	Starting Role = "starting" // has not read the lease yet
	Active   Role = "active"   // holds the lease and publishes
	Standby  Role = "standby"  // waits for the lease
	Stopped  Role = "stopped"  // Run has returned
)

// Status describes a relay. It is kept in memory: to return it sends no query. Counts begin at New.
type Status struct {
	Table  string    `json:"table"` // the outbox
	Holder string    `json:"holder"`
	Role   Role      `json:"role"`
	Since  time.Time `json:"since"` // when the role began
	Term   int64     `json:"term"`  // the relay's own term while it is active, else the term read last; 0: none
	Leader string    `json:"leader,omitempty"`
	// PausedSince is the time at which the method Pause was called. It is zero if Pause was not called, or if Resume was called after it. A
	// pause in the database does not set it: see StoredPause.
	PausedSince time.Time `json:"paused_since,omitzero"`
	// StoredPause is the pause in the database, as this relay last read it; nil: there is none. A relay that holds no lease does
	// not read it.
	StoredPause *StoredPause `json:"paused_in_database,omitempty"`

	Delivery Delivery `json:"delivery"`
	// Checkpoint is the LSN up to which committed Kafka transactions have published the log. It is empty unless delivery is exactly-once.
	Checkpoint string `json:"checkpoint,omitempty"`
	// Repeats is the last reason why rows may be published twice although delivery is exactly-once. There are two kinds of reasons. Rows are
	// read from the table, and some are repeated if the relay dies meanwhile. Or the checkpoint is not known. Repeats stays when the reason
	// has ended.
	Repeats   string    `json:"repeats,omitempty"`
	RepeatsAt time.Time `json:"repeats_at,omitzero"`

	Claimed   int64 `json:"claimed"`   // rows claimed; a row counts again with each claim
	Published int64 `json:"published"` // rows that the broker acknowledged
	Deleted   int64 `json:"deleted"`   // acknowledged rows that are settled, see Hooks.Deleted
	Retried   int64 `json:"retried"`   // times that a row was recorded for a next try
	Parked    int64 `json:"parked"`    // rows parked, for an operator
	InFlight  int64 `json:"in_flight"` // rows sent and not yet acknowledged

	// Lag is the age of the first row of the last claim, by this machine's clock; 0 if there was no row. With several shards it is the
	// greatest lag of a shard. A failed row counts only in the claim that tries it again. Rows that the server has not sent yet do not count:
	// while it sends no part of its log, Lag is 0, and Ready returns the reason.
	Lag time.Duration `json:"lag_ns"`
	// Progress is the last time at which rows were acknowledged, deleted or recorded as failed, or the outbox was found empty. For a standby
	// it is the last time at which the lease was read. With several shards it is the oldest of the shards' times.
	Progress time.Time `json:"progress"`
	// Headroom is the number of positions left in the existing partitions; 0: not known yet.
	Headroom int64 `json:"headroom"`

	// Shards is the number of shards as last read; 0: not read yet. Held lists the shards that this relay holds.
	Shards int   `json:"shards"`
	Held   []int `json:"held,omitempty"`

	// Source is the chosen source; empty: none is chosen. It is wal also while the table is polled until the slot exists.
	Source Source `json:"source,omitempty"`
	// Slot is the state of the replication slot, as this relay last read it. It is nil if there is no slot, if the slot was not read yet,
	// if this relay is not the leader, or if Config.Source is Poll.
	Slot *SlotStatus `json:"slot,omitempty"`
	// GivenUp is the reason why the slot was dropped, and the table is polled, until this process ends; empty: it was not dropped.
	GivenUp string `json:"given_up,omitempty"`

	LastError   string    `json:"last_error,omitempty"` // kept after recovery
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// A state holds the data of Status and Ready.
type state struct {
	mu      sync.Mutex
	status  Status
	shards  map[int]pace
	failing error // last failure since there was progress; nil: none
	broker  error // result of the last connect to a broker
	held    error // why the server holds the log back; nil: it does not

	storeError      error         // error of the last attempt to take a sample or to store a checkpoint; nil: it succeeded
	storeErrorSince time.Time     // when the first attempt failed since one succeeded
	storeErrorFor   time.Duration // time from this attempt to the last one
	storeBegan      time.Time     // when the statement of the present attempt was sent; zero: there is none
}

func (s *state) update(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

// A pace holds the progress and the lag of one shard.
type pace struct {
	progress time.Time
	lag      time.Duration
}

// progressed records that a shard makes progress, and clears the last failure. It also changes the status by change.
func (s *state) progressed(shard int, change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = nil
	s.pace(shard, func(p *pace) { p.progress = time.Now() })
	change(&s.status)
}

// lags sets the lag of a shard.
func (s *state) lags(shard int, lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace(shard, func(p *pace) { p.lag = lag })
}

// pace changes the pace of a shard. The caller holds mu.
func (s *state) pace(shard int, change func(*pace)) {
	if s.shards == nil {
		s.shards = make(map[int]pace)
	}
	p := s.shards[shard]
	change(&p)
	s.shards[shard] = p
}

// leaves deletes the pace of a shard that this relay has released. The pace of shard 0 stays.
func (s *state) leaves(shard int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shard > 0 {
		delete(s.shards, shard)
	}
}

// slowest returns the status, with the progress of the held shard that made progress least recently, and with the greatest lag.
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

// failed records an error in Status.LastError. Ready returns it if there is no progress for some time.
func (s *state) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = err
	s.status.LastError, s.status.LastErrorAt = err.Error(), time.Now()
}

// setHeldBack sets the reason why the server holds the log back; nil: it does not.
func (s *state) setHeldBack(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = why
}

// setStoreError records the result of an attempt to take a sample or to store a checkpoint: why is the error, nil if it succeeded. It also
// records for how long these attempts have failed, for Ready.
func (s *state) setStoreError(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.storeError == nil {
		s.storeErrorSince = time.Now()
	}
	s.storeError, s.storeErrorFor = why, time.Since(s.storeErrorSince)
}

// setStoreBegan records when the statement of such an attempt was sent; the zero time: it has ended.
func (s *state) setStoreBegan(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storeBegan = began
}

// unstored returns for how long no checkpoint could be stored, and why; nil: the last attempt succeeded. An attempt without an answer counts
// after timeout.
func (s *state) unstored(timeout time.Duration) (time.Duration, error) {
	if s.storeBegan.IsZero() || time.Since(s.storeBegan) < timeout {
		return s.storeErrorFor, s.storeError
	}
	since := s.storeBegan
	if s.storeError != nil {
		since = s.storeErrorSince
	}
	return time.Since(since), errSlowStore
}

// brokerIs records the result of a connect to a broker; nil: it succeeded.
func (s *state) brokerIs(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broker = err
}

// Status returns the relay's status. It may be called at any time, from any goroutine.
func (r *Relay) Status() Status {
	held := r.looker.held()
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	s := r.state.slowest(held)
	s.InFlight = r.flight.Load()
	s.Shards, _ = r.shards.now()
	s.Held = held
	s.PausedSince, s.StoredPause = r.gate.pauses()
	if s.Role == Standby && len(s.Held) > 0 {
		s.Role = Active
	}
	return s
}

// Ready returns nil while the relay is active and makes progress, or is a standby that can read the lease. Otherwise it returns an error
// with the reason. It depends on progress, not on connections: no progress for a lease's length and two intervals is an error.
//
// An active relay is not ready either in these cases:
//
//   - The server is about to lose the slot, or keeps more log for it than Config.SlotUnready.
//   - The stream repeatedly ends at one LSN.
//   - The server holds the log back from the stream, for a standby or while it decodes a large transaction.
//   - The checkpoint of the stream could not be stored for a lease's length and two intervals. If the server does not answer, for at least 30 s.
//
// Failed rows are not an error. Ready may be called at any time, from any goroutine.
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
		if err := s.Slot.problem(r.cfg.SlotUnready); err != nil {
			return fmt.Errorf("%s: %w", s.Role, err)
		}
	}
	if err := r.stuck.unready(); err != nil && s.Role == Active {
		return fmt.Errorf("%s: %w", s.Role, err)
	}
	if r.state.held != nil && s.Role == Active {
		return fmt.Errorf("%s: %w", s.Role, r.state.held)
	}
	most := r.cfg.Lease + 2*r.cfg.Interval
	if unstored, err := r.state.unstored(r.storeTimeout); err != nil && unstored > most && s.Role == Active {
		return fmt.Errorf("%s: the checkpoint was not stored for %s: %w", s.Role, unstored.Round(time.Second), err)
	}
	quiet := time.Since(s.Progress)
	if quiet <= most {
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
