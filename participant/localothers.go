package participant

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

// A member claims only entries of topics that it consumes. It holds a shared advisory lock on each of these topics. A topic on which a
// member has seen no lock for UnknownTypeWait is unconsumed for it: its entries, which hold up later ones of their keys, are claimed and end
// without effect.

var (
	//go:embed sql/lock_topics.sql
	lockTopics string
	//go:embed sql/other_topics.sql
	otherTopics string
)

// topicClass is the first half of the advisory locks on topics; see leaseClass.
const topicClass = 0x74727563 // "truc"

// consumedTopics returns the topics of which this member has handlers, and its commands.
func (l *local) consumedTopics() []string {
	commands := l.p.cfg.Hop.Commands()
	return slices.AppendSeq([]string{commands}, maps.Keys(l.p.registered()))
}

// claimable returns the topics whose entries this member claims.
func (l *local) claimable() []string {
	if topics := l.unconsumed.Load(); topics != nil {
		return append(l.consumedTopics(), *topics...)
	}
	return l.consumedTopics()
}

// lockTopics takes the locks on the consumed topics, until the connection ends.
func (l *local) lockTopics(ctx context.Context, conn *pgx.Conn) error {
	rows, _ := conn.Query(ctx, lockTopics, pg.Args{"class": int32(topicClass), "group": l.p.cfg.Group, "topics": l.consumedTopics()})
	var topic string
	var object int32
	taken := false
	if _, err := pgx.ForEachRow(rows, []any{&topic, &object}, func() error { taken = true; return nil }); err != nil || !taken {
		return err
	}
	return cmp.Or(l.p.stranger(ctx, topicClass, object), fmt.Errorf("another session has the lock on topic %s", topic))
}

// watchOthers looks for unconsumed topics until ctx ends.
func (l *local) watchOthers(ctx context.Context) {
	trouble := l.p.repeated("look for local topics of other members")
	used := make(map[string]time.Time) // when a topic was last seen with a consumer, or first seen at all
	warned := make(map[string]bool)
	tick := time.NewTicker(lookOften)
	defer tick.Stop()
	for {
		found, err := l.findUnconsumed(ctx, used)
		if ctx.Err() != nil {
			return
		}
		trouble.report(err)
		for _, topic := range found {
			if !warned[topic] {
				warned[topic] = true
				l.p.cfg.Log.Warn().Str("topic", topic).Msg("no member of the group consumes this local topic: its messages end without effect; " +
					"register a handler, or have the owner of Troupe's tables run SELECT troupe.end_local for the topic")
			}
		}
		if before := l.unconsumed.Swap(&found); before == nil || !slices.Equal(*before, found) {
			l.hint()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// findUnconsumed returns the local topics of the group that are unconsumed; none with an error.
func (l *local) findUnconsumed(ctx context.Context, used map[string]time.Time) (unconsumed []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	wait := l.p.cfg.UnknownTypeWait
	rows, _ := l.p.cfg.Pool.Query(ctx, otherTopics, pg.Args{
		"class": int32(topicClass), "group": l.p.cfg.Group, "topics": l.consumedTopics(), "wait": wait.Seconds(),
	})
	now := time.Now()
	var topic string
	var isUsed bool
	_, err = pgx.ForEachRow(rows, []any{&topic, &isUsed}, func() error {
		since, seen := used[topic]
		if isUsed || !seen { // before its first look this member cannot know that the topic had no consumer
			used[topic], since = now, now
		}
		if !isUsed && now.Sub(since) >= wait {
			unconsumed = append(unconsumed, topic)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return unconsumed, nil
}
