package sagadesk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/saga"
)

// A ParkedRetry selects the parked sagas of one type, to retry their stuck steps. Saga is required.
type ParkedRetry struct {
	Saga string // the type's name
	// Actor and Reason are stored in the log of each saga. PlanRetry needs neither.
	Actor, Reason string
	// Rate limits the retried sagas per second, so as not to overload the hop that has just failed. Default: 50; negative: no limit.
	Rate float64
}

// A RetriedSaga is a parked saga with the result of its retry.
type RetriedSaga struct {
	ID string `json:"id"`
	// Steps are the stuck steps, with their phase, such as "inventory exhausted".
	Steps []string `json:"steps"`
	// Obstacle is the reason why it cannot be retried; "": it can, or was.
	Obstacle string `json:"obstacle,omitempty"`
}

const parkedOfType = "saga = @saga AND status = 'parked'"

// CountParked returns how many sagas of a type are parked. If the database has no saga and no definition of the type, the error
// wraps decisions.ErrNotFound.
func (d *Desk) CountParked(ctx context.Context, name string) (int, error) {
	n, _, err := d.countParked(ctx, name)
	return n, err
}

func (d *Desk) countParked(ctx context.Context, name string) (n int, now time.Time, err error) {
	const read = `
SELECT (SELECT count(*) FROM troupe.sagas WHERE ` + parkedOfType + `), clock_timestamp(),
       EXISTS (SELECT FROM troupe.saga_definitions WHERE saga = @saga) OR EXISTS (SELECT FROM troupe.sagas WHERE saga = @saga)`
	var known bool
	if err := d.cfg.Pool.QueryRow(ctx, read, pg.Args{"saga": name}).Scan(&n, &now, &known); err != nil {
		return 0, now, fmt.Errorf("count parked sagas: %w", explain(err))
	}
	if !known {
		return 0, now, fmt.Errorf("saga type %q: %w: troupe saga list --counts shows what there is", name, decisions.ErrNotFound)
	}
	return n, now, nil
}

// PlanRetry calls do for each parked saga of a type, in the order of their ids, with whether its stuck steps can be retried. It
// changes nothing. It stops at the first error of do, and returns that error.
func (d *Desk) PlanRetry(ctx context.Context, name string, do func(RetriedSaga) error) error {
	_, now, err := d.countParked(ctx, name)
	if err != nil {
		return fmt.Errorf("plan retry: %w", err)
	}
	return d.planRetry(ctx, name, now, func(one RetriedSaga, _ *Detail) error { return do(one) })
}

// planRetry leaves out sagas that have changed after before. Otherwise a run would not end while more sagas are parked.
func (d *Desk) planRetry(ctx context.Context, name string, before time.Time, do func(RetriedSaga, *Detail) error) error {
	return d.each(ctx, parkedOfType+" AND updated_at <= @before", pg.Args{"saga": name, "before": before}, func(g *Detail, err error) error {
		one := RetriedSaga{ID: g.ID, Steps: []string{}}
		if err != nil {
			one.Obstacle = err.Error()
			return do(one, g)
		}
		var events []saga.Event
		if events, one.Steps, one.Obstacle = stuckRetries(g); one.Obstacle == "" {
			one.Obstacle = d.refusal(g, events)
		}
		return do(one, g)
	})
}

// stuckRetries returns the events that retry all stuck steps of a saga, and the steps, or the reason why there are none.
func stuckRetries(g *Detail) (events []saga.Event, steps []string, obstacle string) {
	steps = []string{}
	for _, name := range saga.Stuck(g.Definition, g.State) {
		events = append(events, saga.Event{Kind: saga.ActRetry, Step: name})
		for _, ss := range g.State.Steps {
			if ss.Name == name {
				steps = append(steps, name+" "+string(ss.Phase))
			}
		}
	}
	if len(events) == 0 {
		obstacle = "no step is stuck: correct the cause, then resume it"
	}
	return events, steps, obstacle
}

// refusal returns the reason why one of the events would be refused; "": none would.
func (d *Desk) refusal(g *Detail, events []saga.Event) string {
	s := g.State
	for _, e := range events {
		next, fx := saga.Decide(g.Definition, s, e, g.Now)
		if fx.Refused != "" {
			return fx.Refused
		}
		if err := d.canWrite(g.ContentType, decisions.Decided{ID: g.ID, Effects: fx}); err != nil {
			return err.Error()
		}
		s = next
	}
	return ""
}

// RetryParked retries the stuck steps of each parked saga of a type, all steps of a saga in one transaction, and calls do for each
// saga with the result. It takes the sagas that were parked before it began. Each retry is an entry of the saga's log, with the actor
// and the reason.
//
// A saga that cannot be retried, that has changed since it was read, or that another transaction has locked is left as it is, with
// the reason in Obstacle. Each saga is tried once, even if it is parked again meanwhile. After an interruption the same call continues
// with the sagas that are still parked. It stops at the first error of the database or of do.
func (d *Desk) RetryParked(ctx context.Context, r ParkedRetry, do func(RetriedSaga) error) error {
	var now time.Time
	err := decisions.CheckActor(saga.Event{Actor: r.Actor, Reason: r.Reason})
	if err == nil {
		_, now, err = d.countParked(ctx, r.Saga)
	}
	if err != nil {
		return fmt.Errorf("retry parked sagas: %w", err)
	}
	pace, end := admin.NewPace(r.Rate)
	defer end()
	return d.planRetry(ctx, r.Saga, now, func(one RetriedSaga, read *Detail) error {
		if one.Obstacle != "" {
			return do(one)
		}
		if err := pace(ctx); err != nil {
			return fmt.Errorf("retry parked sagas: %w", err)
		}
		err := d.change(ctx, one.ID, func(w *decisions.Work, g *Detail) error {
			if g.Status != saga.Parked || g.Version != read.Version {
				return decisions.NewObstacle("it has changed meanwhile, and is %s", g.Status)
			}
			events, _, _ := stuckRetries(g)
			for _, e := range events {
				e.Actor, e.Reason, e.Message = r.Actor, r.Reason, envelope.NewID()
				if _, err := w.Act(ctx, one.ID, e); err != nil {
					return err
				}
			}
			return d.canWrite(g.ContentType, w.Decided()...)
		})
		var in decisions.Obstacle
		switch {
		case errors.As(err, &in):
			one.Obstacle = in.Error()
		case errors.Is(err, decisions.ErrRefused), errors.Is(err, decisions.ErrConflict), errors.Is(err, decisions.ErrNotFound), errors.Is(err, admin.ErrBusy):
			one.Obstacle = strings.TrimPrefix(err.Error(), "saga "+one.ID+": ")
		case err != nil:
			return fmt.Errorf("retry parked sagas: saga %s: %w", one.ID, err)
		}
		return do(one)
	})
}
