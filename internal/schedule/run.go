package schedule

import (
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

// pollInterval is the longest time between two queries of the table, so the longest until a new schedule is seen.
const pollInterval = 5 * time.Second

// A Runner runs the schedules of a database. Several may run at once.
type Runner struct {
	Pool   *pgxpool.Pool
	Outbox *outbox.Outbox
	// Sagas returns the types of sagas that Start can start.
	Sagas func() []string
	// Start starts a saga in tx, with this key. existed reports whether a saga with the key was there already; then it starts none.
	Start func(ctx context.Context, tx pgx.Tx, saga, key string, data json.RawMessage) (existed bool, err error)
	Log   zerolog.Logger
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
			r.Log.Warn().Err(err).Msg("schedules are not run, because the database cannot be used: trying again")
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

// RunDue runs the occurrences that are due, each in its own transaction, and returns the time until it should be called again.
func (r *Runner) RunDue(ctx context.Context) (wait time.Duration, err error) {
	for {
		found, err := r.runNext(ctx)
		if err != nil {
			return pollInterval, err
		}
		if !found {
			break
		}
	}
	const next = `
SELECT extract(epoch FROM min(greatest(next_at, retry_at)) - clock_timestamp())::float8
FROM troupe.schedules
WHERE paused_at IS NULL AND (saga IS NULL OR saga = ANY (@sagas))`
	var seconds *float64
	if err := r.Pool.QueryRow(ctx, next, pg.Args{"sagas": r.Sagas()}).Scan(&seconds); err != nil {
		return pollInterval, err
	}
	if seconds == nil || *seconds > pollInterval.Seconds() {
		return pollInterval, nil
	}
	if *seconds <= 0 { // another transaction has locked it
		return time.Second / 2, nil
	}
	return time.Duration(*seconds*float64(time.Second)) + time.Millisecond, nil
}

// claim locks a schedule that is due. It ignores a retry_at that is far ahead: a clock that was later set back has written it.
const claim = `
SELECT ` + columns + `, seed, clock_timestamp()
FROM troupe.schedules
WHERE (requested_at IS NOT NULL OR paused_at IS NULL AND next_at <= clock_timestamp())
  AND (retry_at IS NULL OR retry_at <= clock_timestamp() OR retry_at > clock_timestamp() + interval '10 minutes')
  AND (saga IS NULL OR saga = ANY (@sagas))
ORDER BY next_at, name
LIMIT 1
FOR UPDATE SKIP LOCKED`

// advance moves a schedule to its next occurrence. @run is the occurrence that has run, or null.
const advance = `
UPDATE troupe.schedules
SET next_at = @next, last_at = CASE WHEN @requested OR @run::timestamptz IS NULL THEN last_at ELSE @run END,
    ran_at = CASE WHEN @run::timestamptz IS NULL THEN ran_at ELSE clock_timestamp() END,
    requested_at = NULL, error = NULL, tries = 0, retry_at = NULL
WHERE name = @name`

// runNext runs one occurrence that is due, and reports whether it found one.
func (r *Runner) runNext(ctx context.Context) (found bool, err error) {
	var s Schedule
	var d decision
	var failure error // of this schedule, and not of the database
	err = pgx.BeginTxFunc(ctx, r.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		var seed uuid.UUID
		var now time.Time
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
		found = true
		c, err := s.Check()
		if err != nil {
			failure = err
			return err
		}
		if d = s.decide(c, now); d.next.IsZero() {
			failure = errors.New("the cron expression has no further time")
			return failure
		}
		var run *time.Time
		if !d.run.IsZero() {
			run = &d.run
			if failure = r.runOccurrence(ctx, tx, s, d.run, seed); failure != nil {
				return failure
			}
		}
		_, err = tx.Exec(ctx, advance, pg.Args{"name": s.Name, "next": d.next, "run": run, "requested": s.RequestedAt != nil})
		return err
	})
	switch {
	case err == nil && found:
		r.logRun(s, d)
	case failure != nil && ctx.Err() == nil && pg.Classify(failure) != pg.Unavailable:
		return true, r.storeError(ctx, s, failure)
	}
	return found, err
}

func (r *Runner) logRun(s Schedule, d decision) {
	if d.skipped {
		r.Log.Warn().Str("schedule", s.Name).Time("from", s.NextAt).Msg("missed occurrences of a schedule were skipped")
	}
	if !d.run.IsZero() {
		r.Log.Info().Str("schedule", s.Name).Time("occurrence", d.run).Msg("ran an occurrence of a schedule")
	}
}

// runOccurrence starts the saga of an occurrence, or writes its message.
func (r *Runner) runOccurrence(ctx context.Context, tx pgx.Tx, s Schedule, at time.Time, seed uuid.UUID) error {
	occurrence := s.Occurrence(at)
	id := uuid.NewSHA1(seed, []byte(occurrence)).String()
	if s.Saga != "" {
		// The saga's correlation and the ids of its first messages are derived from the occurrence, too.
		ctx = envelope.WithCause(ctx, &envelope.Cause{Name: id, Message: envelope.Message{ID: id}, At: at})
		existed, err := r.Start(ctx, tx, s.Saga, occurrence, s.Data)
		if err == nil && existed {
			r.Log.Warn().Str("schedule", s.Name).Str("key", occurrence).Msg("the saga of an occurrence exists already: no other one is started")
		}
		return err
	}
	key := s.Key
	if key == "" {
		key = s.Name
	}
	return r.Outbox.Write(ctx, tx, outbox.Entry{
		ID: id, Topic: s.Topic, Key: key, Type: s.Type, Payload: s.Data, ContentType: "application/json", IdempotencyKey: occurrence,
	})
}

// storeError stores the error of a schedule, unless the schedule has advanced meanwhile.
func (r *Runner) storeError(ctx context.Context, s Schedule, failure error) error {
	const store = `
UPDATE troupe.schedules
SET error = @error, tries = tries + 1, retry_at = clock_timestamp() + least(interval '5 minutes', interval '1 second' * power(2, least(tries, 9)))
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
		r.Log.Error().Err(failure).Str("schedule", s.Name).Time("next", s.NextAt).Msg("an occurrence of a schedule cannot be run: it will be tried again")
	}
	return nil
}
