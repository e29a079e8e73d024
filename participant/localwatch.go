package participant

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/pg"
)

//go:embed sql/unclaimed_local.sql
var unclaimedLocal string

// watchDivertedEvery is the interval at which a participant with Brokers looks for messages that do not reach Kafka.
const watchDivertedEvery = 30 * time.Second

// unclaimed is a local topic of a group, with the number of keys that wait although no member of the group claims any.
type unclaimed struct {
	Topic, Group string
	Keys         int
}

func (p *Participant) findUnclaimed(ctx context.Context, own bool, topics ...string) ([]unclaimed, error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	rows, _ := p.cfg.Pool.Query(ctx, unclaimedLocal, pg.Args{"group": p.cfg.Group, "own": own, "topics": topics})
	return pgx.CollectRows(rows, pgx.RowToStructByPos[unclaimed])
}

// watchDiverted looks for local topics of a participant with Brokers. Such a participant may handle the messages that had reached
// Kafka, while another one with Config.Local handles the others. If there is no other one, Ready returns an error.
func (p *Participant) watchDiverted(ctx context.Context) {
	trouble, waits := p.repeated("look for local topics"), p.repeated("consumption of local topics")
	tick := time.NewTicker(watchDivertedEvery)
	defer tick.Stop()
	topics := append(slices.Collect(maps.Keys(p.handlers)), p.cfg.Hop.Commands())
	warned := false
	for {
		found, err := p.findUnclaimed(ctx, true, topics...)
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "42501" {
			p.cfg.Log.Info().Err(err).Msg("the role may not read which topics are local: none is looked for")
			return
		}
		if ctx.Err() != nil {
			return
		}
		if trouble.report(err); err == nil {
			var diverted error
			for _, u := range found {
				if !warned {
					p.cfg.Log.Warn().Str("topic", u.Topic).Msg("the topic is local for this group: new messages of it do not reach Kafka, " +
						"until the owner of Troupe's tables runs SELECT troupe.end_local for it")
				}
				if u.Keys > 0 {
					diverted = fmt.Errorf("topic %s is local for this group, and no member with Config.Local handles its messages (%d keys): "+
						"have the owner of Troupe's tables run SELECT troupe.end_local('%s')", u.Topic, u.Keys, u.Topic)
				}
			}
			warned = len(found) > 0
			waits.report(diverted)
			p.mu.Lock()
			p.diverted = diverted
			p.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// watchUnclaimed logs local work of another group of the hop's commands that no member claims, such as of the group's name before
// it was changed.
func (p *Participant) watchUnclaimed(ctx context.Context) {
	trouble := p.repeated("look for local work of other groups")
	tick := time.NewTicker(warnHeldEvery)
	defer tick.Stop()
	for {
		found, err := p.findUnclaimed(ctx, false, p.cfg.Hop.Commands())
		if ctx.Err() != nil {
			return
		}
		trouble.report(err)
		for _, u := range found {
			if u.Keys > 0 {
				p.cfg.Log.Error().Str("topic", u.Topic).Str("former", u.Group).Int("keys", u.Keys).
					Msg("local work of another group waits and no member claims it, and each command is stored for both groups; if the group " +
						"was renamed, stop its members, have the owner of Troupe's tables run SELECT troupe.end_local for the topic, and start " +
						"them again")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
