package coordinator

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/saga"
)

var (
	//go:embed sql/count_open.sql
	countOpen string
	//go:embed sql/count_stash.sql
	countStash string
)

// Stats counts the open sagas of one coordinator, in all of its processes together, and the stashed events of its database. A stashed event
// names only a type of saga, so the events for types of other coordinators in the database are counted too.
type Stats struct {
	// Hop and Group name the coordinator.
	Hop   string
	Group string
	// Open counts the sagas that have not ended, by type and status. It has each type of Config.Definitions in each status, also with a
	// count of 0, and other types that still run.
	Open []OpenStats
	// Stashed is, by type, the number of events in this database that wait for the next saga of their value. It has each type of Config.Definitions. It
	// leaves out events whose time has passed by the clock. While the coordinator does not run, such events do not expire, and when it
	// runs again they are kept longer and counted again.
	Stashed map[string]int
	// Kept is, by type, the number of events in this database that are kept for sagas which have not ended, until a step awaits them. It has each
	// type of Config.Definitions.
	Kept map[string]int
}

// OpenStats counts the sagas of one type in one status.
type OpenStats struct {
	Saga   string
	Status saga.Status // Waiting, Running, Compensating or Parked
	Count  int
	Oldest time.Duration // the time since the first of these sagas started; 0 if there are none
}

// Stats queries the database. The query reads all open sagas and all stashed events, by index: call it every few seconds, not more
// often.
func (c *Coordinator) Stats(ctx context.Context) (Stats, error) {
	s := Stats{Hop: c.hop.String(), Group: c.cfg.Participant.Group(), Stashed: make(map[string]int), Kept: make(map[string]int)}
	type key struct {
		saga   string
		status saga.Status
	}
	all := make(map[key]OpenStats)
	for _, name := range c.definitions.Names() {
		s.Stashed[name], s.Kept[name] = 0, 0
		for _, status := range decisions.Open {
			all[key{name, status}] = OpenStats{Saga: name, Status: status}
		}
	}
	batch := &pgx.Batch{}
	batch.Queue(countOpen, pg.Args{"hop": s.Hop, "group": s.Group}).Query(func(rows pgx.Rows) error {
		var o OpenStats
		var age float64
		_, err := pgx.ForEachRow(rows, []any{&o.Saga, &o.Status, &o.Count, &age}, func() error {
			o.Oldest = time.Duration(age * float64(time.Second))
			all[key{o.Saga, o.Status}] = o
			return nil
		})
		return err
	})
	batch.Queue(countStash).Query(func(rows pgx.Rows) error {
		var name string
		var kept bool
		var n int
		_, err := pgx.ForEachRow(rows, []any{&name, &kept, &n}, func() error {
			if kept {
				s.Kept[name] = n
			} else {
				s.Stashed[name] = n
			}
			return nil
		})
		return err
	})
	if err := c.cfg.Pool.SendBatch(ctx, batch).Close(); err != nil {
		return s, fmt.Errorf("coordinator: stats: %w", err)
	}
	for _, o := range all {
		s.Open = append(s.Open, o)
	}
	slices.SortFunc(s.Open, func(a, b OpenStats) int {
		return cmp.Or(cmp.Compare(a.Saga, b.Saga), cmp.Compare(slices.Index(decisions.Open, a.Status), slices.Index(decisions.Open, b.Status)))
	})
	return s, nil
}
