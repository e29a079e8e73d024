package participant

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/pg"
)

var (
	//go:embed sql/stranded_held.sql
	strandedHeld string
	//go:embed sql/stranded_topics.sql
	strandedTopics string
	//go:embed sql/stranded_local.sql
	strandedLocal string
	//go:embed sql/local_elsewhere.sql
	localElsewhere string
)

// Stranded counts stored messages of the group that no member with this member's configuration handles: held messages of a topic that
// the member does not consume, or of a partition that the topic does not have any more. Only members without Local handle held messages,
// and only members with Local handle local work. So a member also counts the messages of the other kind, if they are overdue by five
// minutes: held messages if it has Local, else entries of local work.
type Stranded struct {
	Topic     string
	Partition int32 // -1: entries of local work
	Messages  int   // with Partition -1: keys
}

const (
	strandedEvery = time.Minute
	strandedWarn  = 10 // checks from one log line to the next
)

// watchStranded finds stranded messages for Stats, and logs them every ten minutes. It also logs rows of the outbox that no relay
// publishes. client is nil for local work.
func (p *Participant) watchStranded(ctx context.Context, client *kgo.Client) {
	tick := time.NewTicker(strandedEvery)
	defer tick.Stop()
	trouble := p.repeated("find messages that no member handles")
	unread := p.repeated("find rows that no relay publishes")
	var warned time.Time
	for n := 0; ; n++ {
		found, err := p.findStranded(ctx, client)
		if ctx.Err() != nil {
			return
		}
		trouble.report(err)
		p.mu.Lock()
		p.stranded = found
		p.mu.Unlock()
		if n%strandedWarn == 0 {
			p.warnStranded(found)
			if client != nil {
				trouble.report(p.warnElsewhere(ctx))
			}
		}
		if time.Since(warned) >= unpublishedWarn {
			now, err := p.warnUnpublished(ctx)
			if ctx.Err() != nil {
				return
			}
			unread.report(err)
			if now {
				warned = time.Now()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// findStranded returns the messages that it finds. With an error the list may be incomplete.
func (p *Participant) findStranded(ctx context.Context, client *kgo.Client) (found []Stranded, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	if client == nil {
		return p.readStranded(ctx, strandedTopics, pg.Args{"group": p.cfg.Group})
	}
	consumed := p.consumed()
	there, kafkaErr := kafka.Partitions(ctx, client, consumed...)
	var names []string
	var partitions []int32
	for topic, n := range there {
		names, partitions = append(names, topic), append(partitions, n)
	}
	held, heldErr := p.readStranded(ctx, strandedHeld, pg.Args{
		"group": p.cfg.Group, "consumed": consumed, "topics": names, "partitions": partitions,
	})
	local, localErr := p.readStranded(ctx, strandedLocal, pg.Args{"group": p.cfg.Group, "member_class": int32(memberClass)})
	return slices.Concat(held, local), errors.Join(kafkaErr, heldErr, localErr)
}

// warnElsewhere logs consumed topics that are local for other groups, so that this group does not get their messages from Kafka.
func (p *Participant) warnElsewhere(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	rows, _ := p.cfg.Pool.Query(ctx, localElsewhere, pg.Args{"group": p.cfg.Group, "consumed": p.consumed()})
	var topic, groups string
	_, err := pgx.ForEachRow(rows, []any{&topic, &groups}, func() error {
		p.cfg.Log.Error().Str("topic", topic).Str("groups", groups).Msg("the topic is local for other groups: rows of this database's outbox do " +
			"not reach Kafka, and this group gets none of them: run this group with Local; within an hour after the other groups it still gets all of them")
		return nil
	})
	return err
}

func (p *Participant) readStranded(ctx context.Context, sql string, args pg.Args) ([]Stranded, error) {
	rows, err := p.cfg.Pool.Query(ctx, sql, args)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Stranded])
}

func (p *Participant) warnStranded(found []Stranded) {
	consumed := p.consumed()
	for _, s := range found {
		line := p.cfg.Log.Error().Str("topic", s.Topic).Int("messages", s.Messages)
		switch {
		case s.Partition < 0:
			line.Msg("entries of local work wait that no participant with Local claims: run one for this group, or call troupe.end_local for the topic")
		case p.cfg.Local:
			line.Int32("partition", s.Partition).Msg("messages are held that no participant with Brokers tries again: " +
				"run one for this group until they have ended, or make them dead letters with troupe held dead-letter")
		case slices.Contains(consumed, s.Topic):
			line.Int32("partition", s.Partition).Msg("messages are held of a partition that the topic does not have any more: " +
				"add partitions to it, or make them dead letters with troupe held dead-letter")
		case slices.Contains(p.leftOut, s.Topic):
			line.Int32("partition", s.Partition).Msg("messages are held of a topic that is not consumed, since it does not exist or may not be read: " +
				"they are tried again once it exists and this client may read it; otherwise make them dead letters with troupe held dead-letter")
		default:
			line.Int32("partition", s.Partition).Msg("messages are held of a topic that this group does not consume any more: " +
				"register its handler again, or make them dead letters with troupe held dead-letter")
		}
	}
}
