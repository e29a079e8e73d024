package participant

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/topics"
)

var (
	//go:embed sql/read_watermarks.sql
	readWatermarks string
	//go:embed sql/last_local.sql
	lastLocal string
	//go:embed sql/count_local.sql
	countLocal string
)

const (
	// backlogEvery is the interval at which a member reads how much of the backlog is handled.
	backlogEvery = 200 * time.Millisecond
	// backlogLimit is the longest time for which deadlines wait while no message of the backlog ends, for example because a partition cannot be read.
	// If Participant.patience is longer, it applies instead.
	backlogLimit = time.Minute
)

// A backlog measures the messages that were in the group's topics, or in its local work, when this member started, joined the group again or reached
// its database again. Before that moment the group may have handled nothing, or its database may have been set back. So a message that a deadline
// reports as missing may be among them, and have come in time: such a deadline is fired after the group has handled the backlog. Messages also wait
// while a rebuild handles earlier ones again: the backlog is measured when the rebuild begins, and again when it has ended.
type backlog struct {
	p       *Participant
	trouble *repeated

	of      *consumer                // the membership in which the backlog was measured; nil without Kafka
	local   *local                   // the local work in which the backlog was measured; nil with Kafka
	last    int64                    // last position of local work when it was measured; -1: not read yet
	began   time.Time                // when the present measurement began
	ends    map[topicPartition]int64 // end offsets when it was measured; nil: not read yet
	ids     map[string]uuid.UUID     // the topics' ids when it was measured
	handled bool                     // deadlines wait no more
	left    int64                    // messages of the backlog that have not ended, at the last count
	moved   time.Time                // when left last changed
	looked  time.Time                // time of the last count
	rebuilt bool                     // when it was measured, messages waited behind a rebuild: it is measured again after the rebuild
}

func newBacklog(p *Participant) backlog {
	return backlog{p: p, trouble: p.repeated("look for unhandled messages")}
}

// reset makes the next call of isHandled measure the backlog again.
func (b *backlog) reset() { b.of, b.local, b.handled = nil, nil, false }

// isHandled reports whether the group has handled all messages of the backlog, or none of them has ended for backlogLimit.
func (b *backlog) isHandled(ctx context.Context) bool {
	b.p.mu.Lock()
	c, l := b.p.consumer, b.p.local
	b.p.mu.Unlock()
	now, behind := time.Now(), b.p.behindRebuild.Load()
	switch {
	case c == nil && l == nil: // the group is not joined
		return false
	case c != b.of, l != b.local, behind && !b.rebuilt:
		b.of, b.local, b.began, b.ends, b.last, b.handled, b.looked, b.rebuilt = c, l, now, nil, -1, false, time.Time{}, behind
	case b.handled:
		b.rebuilt = behind
		return true
	}
	if now.Sub(b.looked) < backlogEvery {
		return false
	}
	b.looked = now
	left, err := b.count(ctx)
	if ctx.Err() != nil {
		return false
	}
	b.trouble.report(err)
	switch {
	case err != nil:
		return false
	case left == 0 && b.rebuilt && !behind: // other messages have come during the rebuild: measure again
		b.ends, b.rebuilt = nil, false
		return false
	case left != b.left || b.moved.IsZero(): // it may have grown: a rebuild has begun
		if b.moved.IsZero() && left > 0 {
			b.p.cfg.Log.Info().Int64("messages", left).Msg("deadlines that report missing messages wait until the messages that came before them are handled")
		}
		b.left, b.moved = left, now
	case now.Sub(b.moved) > max(b.p.backlogLimit, b.p.patience):
		b.p.cfg.Log.Warn().Int64("messages", left).Msg("deadlines that report missing messages are fired although messages that came " +
			"before them are not handled yet: none of these has ended for a minute or longer")
		b.handled = true
	}
	b.handled = b.handled || left == 0 && !b.rebuilt
	return b.handled
}

// count returns how many messages of the backlog have not ended.
func (b *backlog) count(ctx context.Context) (left int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	if b.local != nil {
		return b.countLocal(ctx)
	}
	watermarks, err := b.watermarks(ctx)
	if err == nil && b.ends == nil {
		err = b.measure(ctx, watermarks)
	}
	if err != nil {
		return 0, err
	}
	for at, end := range b.ends {
		next := watermarks[at].offset + 1
		if next == 0 || watermarks[at].topicID != b.ids[at.topic] { // no message of the partition has ended, or the watermark is of an earlier topic of this name
			next = b.of.fetchedFrom(at)
		}
		left += max(0, end-next)
	}
	return left, nil
}

// countLocal counts the entries of local work in the backlog that were not tried and have not ended. It first reads the last position of the backlog,
// if that is not known.
func (b *backlog) countLocal(ctx context.Context) (left int64, err error) {
	if b.last < 0 {
		if err := b.p.cfg.Pool.QueryRow(ctx, lastLocal, pg.Args{"group": b.p.cfg.Group}).Scan(&b.last); err != nil {
			return 0, err
		}
		b.left, b.moved = 0, time.Time{}
	}
	err = b.p.cfg.Pool.QueryRow(ctx, countLocal, pg.Args{"group": b.p.cfg.Group, "last": b.last}).Scan(&left)
	return left, err
}

// watermarks returns, for each partition that a member of the group has consumed, the offset up to which all messages have ended.
func (b *backlog) watermarks(ctx context.Context) (map[topicPartition]lowMark, error) {
	rows, err := b.p.cfg.Pool.Query(ctx, readWatermarks, pg.Args{"group": b.p.cfg.Group})
	if err != nil {
		return nil, err
	}
	all := make(map[topicPartition]lowMark)
	var at topicPartition
	var topicID *uuid.UUID
	var watermark int64
	_, err = pgx.ForEachRow(rows, []any{&at.topic, &at.partition, &topicID, &watermark}, func() error {
		m := lowMark{offset: watermark}
		if topicID != nil {
			m.topicID = *topicID
		}
		all[at] = m
		return nil
	})
	return all, err
}

// measure stores the end offsets of the partitions that the group has consumed before. It includes optional topics that the group does not consume
// now, if the broker lets this client see them. It leaves out topics that the group begins to consume, since they may have messages of months, and
// retry topics, since their messages were tried before.
func (b *backlog) measure(ctx context.Context, consumed map[topicPartition]lowMark) error {
	var names []string
	for at := range consumed {
		t, err := topics.Parse(at.topic)
		if err != nil || t.Kind == topics.Retry || slices.Contains(names, at.topic) {
			continue
		}
		if slices.Contains(b.of.leftOut, at.topic) {
			there, err := kafka.TopicIDs(ctx, b.of.client, at.topic)
			switch _, exists := there[at.topic]; {
			case err != nil && kafka.Classify(err) == kafka.Unavailable:
				return err
			case exists:
				names = append(names, at.topic)
			}
		} else if slices.Contains(b.of.consumed, at.topic) {
			names = append(names, at.topic)
		}
	}
	ends, ids := make(map[topicPartition]int64), make(map[string]uuid.UUID)
	if len(names) > 0 {
		there, err := kafka.TopicIDs(ctx, b.of.client, names...)
		if err != nil {
			return err
		}
		for name, id := range there {
			ids[name] = kafka.TopicID(name, id)
		}
		first, err := kafka.Starts(ctx, b.of.client, names...)
		if err != nil {
			return err
		}
		last, err := kafka.Ends(ctx, b.of.client, names...)
		if err != nil {
			return err
		}
		var errs []error
		for at := range consumed {
			start, end := first[at.topic][at.partition], last[at.topic][at.partition]
			if err := errors.Join(start.Err, end.Err); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", at, err))
			} else if end.Offset > start.Offset { // in an empty partition the watermark would stay below the end for ever
				ends[at] = end.Offset
			}
		}
		if len(errs) > 0 && time.Since(b.began) < b.p.backlogLimit { // afterwards the backlog is measured without these partitions
			return errors.Join(errs...)
		}
	}
	b.ends, b.ids, b.left, b.moved = ends, ids, 0, time.Time{}
	return nil
}

// fetchedFrom returns the first offset of a partition whose message has not ended; 0 if this member does not consume it.
func (c *consumer) fetchedFrom(at topicPartition) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.workers[at]; w != nil {
		return max(0, w.progress.from())
	}
	return 0
}
