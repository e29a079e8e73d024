package participant

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

//go:embed sql/unclaimed_local.sql
var unclaimedLocal string

// watchUnclaimed logs local work of another group of the hop's commands that no member claims, such as of the group's name before
// it was changed.
func (p *Participant) watchUnclaimed(ctx context.Context) {
	trouble := p.repeated("look for local work of other groups")
	tick := time.NewTicker(strandedWarn * strandedEvery)
	defer tick.Stop()
	for {
		err := p.warnUnclaimed(ctx)
		if ctx.Err() != nil {
			return
		}
		trouble.report(err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *Participant) warnUnclaimed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	topic := p.cfg.Hop.Commands()
	rows, _ := p.cfg.Pool.Query(ctx, unclaimedLocal, pg.Args{"group": p.cfg.Group, "topic": topic})
	var group string
	var keys int
	_, err := pgx.ForEachRow(rows, []any{&group, &keys}, func() error {
		p.cfg.Log.Error().Str("topic", topic).Str("former", group).Int("keys", keys).
			Msg("local work of another group waits and no member claims it, and each command is stored for both groups; if the group was " +
				"renamed, stop its members, have the owner of Troupe's tables run SELECT troupe.end_local for the topic, and start them again")
		return nil
	})
	return err
}
