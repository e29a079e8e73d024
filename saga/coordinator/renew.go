package coordinator

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/pg"
)

var (
	//go:embed sql/lost_definitions.sql
	lostDefinitions string
	//go:embed sql/last_ran.sql
	lastRan string
	//go:embed sql/extend_stash.sql
	extendStash string
	//go:embed sql/record_run.sql
	recordRun string
)

// ranEvery is the interval at which a coordinator records that it runs. If there is more than a minute between two records, the
// coordinator did not run: see internal/decisions/sql/prune_stash.sql.
const ranEvery = 20 * time.Second

// renew records that the coordinator runs. It also stores this process's definitions again if the database has lost them, as after a
// restore or a failover to a standby that lagged. renew returns no error: watch calls it again, and the participant reports an outage of
// the database.
func (c *Coordinator) renew(ctx context.Context) {
	for _, hash := range c.missingDefinitions(ctx) {
		for _, d := range c.cfg.Definitions {
			if d.Hash() == hash && decisions.StoreDefinition(ctx, c.cfg.Pool, d) == nil {
				c.cfg.Log.Warn().Str("definition", d.String()).Msg("the database had lost a definition, which is stored again: was it restored, or failed over?")
			}
		}
	}
	if c.cfg.Participant.Ready() == nil {
		_ = c.recordRunning(ctx)
	}
}

// missingDefinitions returns the hashes of the definitions in Config.Definitions that are not stored.
func (c *Coordinator) missingDefinitions(ctx context.Context) []string {
	var hashes []string
	for _, d := range c.cfg.Definitions {
		hashes = append(hashes, d.Hash())
	}
	rows, err := c.cfg.Pool.Query(ctx, lostDefinitions, pg.Args{"hashes": hashes})
	if err != nil {
		return nil
	}
	missing, _ := pgx.CollectRows(rows, pgx.RowTo[string])
	return missing
}

// recordRunning records that the coordinator runs, at most once every ranEvery. If the coordinator did not run for more than a minute,
// recordRunning extends the times of the stashed events by that pause: the events that start their sagas may have waited in Kafka.
func (c *Coordinator) recordRunning(ctx context.Context) error {
	group := c.cfg.Participant.Group()
	return pgx.BeginTxFunc(ctx, c.cfg.Pool, decisions.Committed, func(tx pgx.Tx) error {
		var ago *float64
		if err := tx.QueryRow(ctx, lastRan, pg.Args{"group": group}).Scan(&ago); err != nil {
			return err
		}
		if ago != nil && *ago < ranEvery.Seconds() {
			return nil
		}
		if ago != nil && *ago > time.Minute.Seconds() {
			if _, err := tx.Exec(ctx, extendStash, pg.Args{"sagas": c.definitions.Names(), "seconds": *ago}); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, recordRun, pg.Args{"group": group})
		return err
	})
}
