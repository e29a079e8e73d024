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
// without effect. Time in which the member could not look does not count: no other member could take its lock while the database was away.

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

// knownUnconsumed returns the topics that were unconsumed when this member looked last.
func (l *local) knownUnconsumed() []string {
	if topics := l.unconsumed.Load(); topics != nil {
		return *topics
	}
	return nil
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
	var looks looks
	warned := make(map[string]bool)
	tick := time.NewTicker(lookOften)
	defer tick.Stop()
	for {
		found, err := l.findUnconsumed(ctx, &looks)
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
func (l *local) findUnconsumed(ctx context.Context, looks *looks) (unconsumed []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	wait := l.p.cfg.UnknownTypeWait
	rows, _ := l.p.cfg.Pool.Query(ctx, otherTopics, pg.Args{
		"class": int32(topicClass), "group": l.p.cfg.Group, "topics": l.consumedTopics(), "wait": wait.Seconds(),
	})
	consumed := make(map[string]bool)
	var topic string
	var is bool
	_, err = pgx.ForEachRow(rows, []any{&topic, &is}, func() error {
		consumed[topic] = is
		return nil
	})
	if err != nil {
		return nil, err
	}
	return looks.unconsumed(time.Now(), consumed, wait), nil
}

// looks records how long a member has seen each topic without a consumer. Before its first look, and in longer gaps than mostGap, it cannot
// know that there was none.
type looks struct {
	last time.Time
	idle map[string]time.Duration
}

// mostGap limits the time between two looks that counts.
const mostGap = 2 * lookOften

// unconsumed records a look at topics, and returns the ones without a consumer for wait.
func (l *looks) unconsumed(now time.Time, consumed map[string]bool, wait time.Duration) (topics []string) {
	idle := make(map[string]time.Duration, len(consumed))
	for topic, is := range consumed {
		if before, known := l.idle[topic]; known && !is {
			idle[topic] = before + min(now.Sub(l.last), mostGap)
		} else {
			idle[topic] = 0
		}
		if !is && idle[topic] >= wait {
			topics = append(topics, topic)
		}
	}
	l.last, l.idle = now, idle
	slices.Sort(topics)
	return topics
}
