package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/schedule"
	"github.com/troupe-go/troupe/saga"
)

// A Scheduled is an occurrence of a schedule that this process has run.
type Scheduled struct {
	Schedule string    // the name of the schedule
	At       time.Time // the time of the occurrence
	// Late is the time from At until the occurrence was run, by the database's clock. It is zero for an occurrence that an operator
	// requested.
	Late time.Duration
}

// runSchedules runs the schedules of the database alongside the participant: the ones that send messages, and the ones that start sagas
// of the types in Config.Definitions.
func (c *Coordinator) runSchedules() {
	r := &schedule.Runner{
		Pool: c.cfg.Pool, Outbox: c.cfg.Participant.Outbox(), Log: c.cfg.Log, Sagas: c.definitions.Names, Start: c.startScheduled,
	}
	if c.cfg.Scheduled != nil {
		r.Began = func(b schedule.Began) { c.cfg.Scheduled(Scheduled(b)) }
	}
	c.cfg.Participant.Extension().Alongside(r.Run)
}

// startScheduled starts the saga of an occurrence of a schedule, with key as its key.
func (c *Coordinator) startScheduled(ctx context.Context, tx pgx.Tx, name, key string, data json.RawMessage) (existed bool, err error) {
	d, err := c.definitions.Named(name)
	if err != nil {
		return false, err
	}
	fields, err := saga.ReadFields(data)
	if err != nil {
		return false, fmt.Errorf("data: %w", err)
	}
	if fields, err = d.WithKey(fields, key); err != nil {
		return false, err
	}
	started, err := c.Start(ctx, tx, name, fields)
	return started.Existed, err
}
