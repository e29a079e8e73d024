package schedule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/outbox"
)

// look is the longest time between two looks at the table: a schedule that was set is seen within it.
const look = 5 * time.Second

// bounds makes a statement of a transaction fail that waits for a lock, such as of a saga that another session has locked, so that other
// schedules run meanwhile. It ends the transaction of a member whose machine is gone, which has its schedule locked.
const bounds = `
SELECT set_config('lock_timeout', '5s', true), set_config('idle_in_transaction_session_timeout', $1, true),
       set_config('statement_timeout', '0', true)`

// A Runner runs the schedules of a database. Several may run at once.
type Runner struct {
	Pool   *pgxpool.Pool
	Outbox *outbox.Outbox
	// Sagas returns the types of sagas that Start can start.
	Sagas func() []string
	// Start starts a saga in tx, with key as the value of its key. existed reports that there was one.
	Start func(ctx context.Context, tx pgx.Tx, saga, key string, data json.RawMessage) (existed bool, err error)
	Log   zerolog.Logger
	// Began is called for each occurrence that has run, after the commit. It may be nil.
	Began func(Began)
	// Limit is the longest time for a transaction. Default: 30 s.
	Limit time.Duration
}

// A Began is an occurrence of a schedule that has run.
type Began struct {
	Schedule string
	At       time.Time // its time
	// Late is the time from At until the transaction ran it, by the database's clock. It is zero for an occurrence that an operator requested.
	Late time.Duration
}

// Run runs the schedules until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	var logged time.Time
	for {
		wait, err := r.RunDue(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && time.Since(logged) >= 30*time.Second:
			logged = time.Now()
			r.Log.Warn().Err(err).Msg("schedules are not run: trying again")
		case err == nil && !logged.IsZero():
			logged = time.Time{}
			r.Log.Info().Msg("schedules are run again")
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// RunDue runs the occurrences that are due, one transaction each, and returns the time until it should look again.
func (r *Runner) RunDue(ctx context.Context) (wait time.Duration, err error) {
	for {
		some, err := r.one(ctx)
		if err != nil {
			return look, err
		}
		if !some {
			break
		}
	}
	ctx, cancel := r.limited(ctx)
	defer cancel()
	const next = `
SELECT extract(epoch FROM min(greatest(next_at, retry_at)) - clock_timestamp())::float8
FROM troupe.schedules
WHERE paused_at IS NULL AND (saga IS NULL OR saga = ANY (@sagas))`
	var seconds *float64
	if err := r.Pool.QueryRow(ctx, next, pg.Args{"sagas": r.Sagas()}).Scan(&seconds); err != nil {
		return look, err
	}
	if seconds == nil || *seconds > look.Seconds() {
		return look, nil
	}
	if *seconds <= 0 { // another transaction has locked it
		return time.Second / 2, nil
	}
	return time.Duration(*seconds*float64(time.Second)) + time.Millisecond, nil
}

// claim locks a schedule that is due. A retry_at far ahead was set by a clock that has been set back since.
const claim = `
SELECT ` + columns + `, seed, clock_timestamp()
FROM troupe.schedules
WHERE (requested_at IS NOT NULL OR paused_at IS NULL AND next_at <= clock_timestamp())
  AND (retry_at IS NULL OR retry_at <= clock_timestamp() OR retry_at > clock_timestamp() + interval '10 minutes')
  AND (saga IS NULL OR saga = ANY (@sagas))
ORDER BY next_at, name
LIMIT 1
FOR UPDATE SKIP LOCKED`

const moveOn = `
UPDATE troupe.schedules
SET next_at = @next, last_at = CASE WHEN @requested OR @run::timestamptz IS NULL THEN last_at ELSE @run END,
    ran_at = CASE WHEN @run::timestamptz IS NULL THEN ran_at ELSE clock_timestamp() END,
    requested_at = NULL, error = NULL, tries = 0, retry_at = NULL
WHERE name = @name`

func (r *Runner) limit() time.Duration { return cmp.Or(r.Limit, 30*time.Second) }

// limited ends ctx after the Limit: a server whose machine is gone does not answer.
func (r *Runner) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.limit())
}

// one runs one occurrence, and reports whether one was due.
func (r *Runner) one(outer context.Context) (some bool, err error) {
	ctx, cancel := r.limited(outer)
	defer cancel()
	var s Schedule
	var t turn
	var now time.Time
	var failure error // of this schedule
	err = pgx.BeginTxFunc(ctx, r.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		var seed uuid.UUID
		if _, err := tx.Exec(ctx, bounds, fmt.Sprint(2*r.limit().Milliseconds())); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, claim, pg.Args{"sagas": r.Sagas()})
		if err != nil {
			return err
		}
		s, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Schedule, error) { return scanSchedule(row, &seed, &now) })
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		some = true
		c, err := s.Check()
		if err != nil {
			failure = err
			return err
		}
		if t = s.decide(c, now); t.next.IsZero() {
			failure = errors.New("the cron expression has no further time")
			return failure
		}
		var run *time.Time
		if !t.run.IsZero() {
			run = &t.run
			if failure = r.run(ctx, tx, s, t.run, seed); failure != nil {
				return failure
			}
		}
		_, err = tx.Exec(ctx, moveOn, pg.Args{"name": s.Name, "next": t.next, "run": run, "requested": s.RequestedAt != nil})
		return err
	})
	switch {
	case err == nil && some:
		r.report(s, t, now)
	case failure != nil && outer.Err() == nil && pg.Classify(failure) != pg.Unavailable:
		return true, r.fail(outer, s, failure)
	}
	return some, err
}

func (r *Runner) report(s Schedule, t turn, now time.Time) {
	if t.skipped {
		r.Log.Warn().Str("schedule", s.Name).Time("from", s.NextAt).Msg("missed occurrences of the schedule are skipped")
	}
	if !t.run.IsZero() {
		r.Log.Info().Str("schedule", s.Name).Time("occurrence", t.run).Msg("occurrence run")
		if r.Began != nil {
			began := Began{Schedule: s.Name, At: t.run}
			if s.RequestedAt == nil {
				began.Late = max(0, now.Sub(t.run))
			}
			r.Began(began)
		}
	}
}

// run starts the saga, or writes the message, of an occurrence.
func (r *Runner) run(ctx context.Context, tx pgx.Tx, s Schedule, at time.Time, seed uuid.UUID) error {
	occurrence := s.Occurrence(at)
	id := uuid.NewSHA1(seed, []byte(occurrence)).String()
	if s.Saga != "" {
		// The ids of the saga's first messages and its correlation are derived from the occurrence too.
		ctx = envelope.WithCause(ctx, &envelope.Cause{Name: id, Message: envelope.Message{ID: id}, At: at})
		existed, err := r.Start(ctx, tx, s.Saga, occurrence, s.Data)
		if err == nil && existed {
			r.Log.Warn().Str("schedule", s.Name).Str("key", occurrence).Msg("the saga of the occurrence exists: none is started")
		}
		return err
	}
	key := s.Key
	if key == "" {
		key = s.Name
	}
	return r.Outbox.Write(ctx, tx, outbox.Entry{
		ID: id, Topic: s.Topic, Key: key, Type: s.Type, Payload: s.Data, ContentType: "application/json",
		IdempotencyKey: occurrence + "/" + id, // another service may have a schedule of this name
	})
}

// fail stores the error, unless the schedule has moved on meanwhile.
func (r *Runner) fail(ctx context.Context, s Schedule, failure error) error {
	ctx, cancel := r.limited(ctx)
	defer cancel()
	const store = `
UPDATE troupe.schedules
SET error = @error, tries = least(tries, 1000000) + 1, retry_at = clock_timestamp() + least(interval '5 minutes', interval '1 second' * power(2, least(tries, 9)))
WHERE name = @name AND next_at = @next AND requested_at IS NOT DISTINCT FROM @requested`
	message := failure.Error()
	if len(message) > 1000 {
		message = message[:1000]
	}
	_, err := r.Pool.Exec(ctx, store, pg.Args{"name": s.Name, "next": s.NextAt, "requested": s.RequestedAt, "error": sanitize(message)})
	if err != nil {
		return fmt.Errorf("schedule %s: store its error: %w", s.Name, err)
	}
	if s.Tries == 0 {
		r.Log.Error().Err(failure).Str("schedule", s.Name).Time("next", s.NextAt).Msg("the schedule cannot be run: it is tried again")
	}
	return nil
}
