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

// A member claims only entries of topics that it consumes. It holds a shared advisory lock on each of these topics. A topic on which a member has
// seen no lock for UnknownTypeWait is unconsumed for this member. The member then claims the entries of this topic and ends them: events without
// effect, commands as dead letters. Otherwise later entries of their keys would wait for them for ever. Time in which the member could not check does
// not count: no other member could take its lock while the database was away.

var (
	//go:embed sql/lock_topics.sql
	lockTopics string
	//go:embed sql/other_topics.sql
	otherTopics string
)

// topicClass is the first half of the advisory locks on topics; see leaseClass.
const topicClass = 0x74727563 // "truc"

// consumedTopics returns the topics that have handlers here, and the hop's commands topic.
func (l *local) consumedTopics() []string {
	commands := l.p.cfg.Hop.Commands()
	return slices.AppendSeq([]string{commands}, maps.Keys(l.p.registered()))
}

// knownUnconsumed returns the topics that were unconsumed at the last check.
func (l *local) knownUnconsumed() []string {
	if topics := l.unconsumed.Load(); topics != nil {
		return *topics
	}
	return nil
}

// lockTopics takes the locks on the consumed topics. They are held until the connection ends.
func (l *local) lockTopics(ctx context.Context, conn *pgx.Conn) error {
	rows, _ := conn.Query(ctx, lockTopics, pg.Args{"class": int32(topicClass), "group": l.p.cfg.Group, "topics": l.consumedTopics()})
	var topic string
	var object int32
	taken := false
	if _, err := pgx.ForEachRow(rows, []any{&topic, &object}, func() error { taken = true; return nil }); err != nil || !taken {
		return err
	}
	return cmp.Or(l.p.foreignLock(ctx, topicClass, object), fmt.Errorf("another session has the lock on topic %s", topic))
}

// watchOthers looks for unconsumed topics until ctx ends, and logs each once.
func (l *local) watchOthers(ctx context.Context) {
	var idle idleTopics
	warned := make(map[string]bool)
	l.p.repeat(ctx, "find local topics without a consumer", maxPoll, func(ctx context.Context) error {
		found, err := l.findUnconsumed(ctx, &idle)
		for _, topic := range found {
			if !warned[topic] {
				warned[topic] = true
				l.p.cfg.Log.Warn().Str("topic", topic).Msg("no member of the group consumes this local topic: its events end without effect, and its commands become dead letters; " +
					"register a handler, or have the owner of Troupe's tables run SELECT troupe.end_local for the topic")
			}
		}
		if before := l.unconsumed.Swap(&found); before == nil || !slices.Equal(*before, found) {
			l.hint()
		}
		return err
	})
}

// findUnconsumed returns the local topics of the group that are unconsumed. With an error it returns none.
func (l *local) findUnconsumed(ctx context.Context, idle *idleTopics) (unconsumed []string, err error) {
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
	return idle.unconsumed(time.Now(), consumed, wait), nil
}

// idleTopics records for how long a member has seen each topic without a consumer. The time before the member's first check does not count. Of the
// time between two checks at most maxGap counts, since a consumer may have come and gone in between.
type idleTopics struct {
	last time.Time
	idle map[string]time.Duration
}

// maxGap is the longest time between two checks that counts as time without a consumer.
const maxGap = 2 * maxPoll

// unconsumed records which topics have a consumer at the time now, and returns the topics that have had none for the duration wait.
func (t *idleTopics) unconsumed(now time.Time, consumed map[string]bool, wait time.Duration) (topics []string) {
	idle := make(map[string]time.Duration, len(consumed))
	for topic, is := range consumed {
		if before, known := t.idle[topic]; known && !is {
			idle[topic] = before + min(now.Sub(t.last), maxGap)
		} else {
			idle[topic] = 0
		}
		if !is && idle[topic] >= wait {
			topics = append(topics, topic)
		}
	}
	t.last, t.idle = now, idle
	slices.Sort(topics)
	return topics
}
