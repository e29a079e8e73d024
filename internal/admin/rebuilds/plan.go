package rebuilds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/pg"
)

// A Spec is a rebuild as an operator requests it.
type Spec struct {
	Handlers []string  // such as order.summary/PaymentCharged; all of one group
	From     time.Time // messages of this time or later are handled again
	Emit     bool      // the handlers write to the outbox and schedule deadlines
	Wait     bool      // start although partitions wait for held messages or dead letters
}

// A Plan is a Spec with the offsets of the topics.
type Plan struct {
	Spec
	Group      string             `json:"group"`
	Partitions []PlannedPartition `json:"partitions"`
	// Held counts the held messages of the partitions, and DeadLetters the dead letters of the group that are open, or redriven and not
	// handled yet: partitions wait for them.
	Held        int `json:"held"`
	DeadLetters int `json:"dead_letters"`
}

// A PlannedPartition is a partition that a rebuild would read again.
type PlannedPartition struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	From      int64      `json:"from"`
	First     *time.Time `json:"first,omitempty"` // the time of the message at From; nil: there is none, or the broker does not return it
	Messages  int64      `json:"messages"`        // offsets up to the end of the log, at most
	// Deleted is true if the log begins at From, so that earlier messages may have been deleted.
	Deleted bool `json:"deleted"`

	topicID  uuid.UUID
	handlers []string // the plan's handlers of this topic
}

// Messages returns the number of offsets that the plan reads again.
func (p Plan) Messages() (n int64) {
	for _, of := range p.Partitions {
		n += of.Messages
	}
	return n
}

// Plan finds the topics of the handlers, and the offsets from which the rebuild would read them. It changes nothing.
func (d Desk) Plan(ctx context.Context, client *kgo.Client, s Spec) (p Plan, err error) {
	p.Spec = s
	handlers, err := d.topics(ctx, &p)
	if err != nil {
		return p, admin.Explain(err, rightsPage)
	}
	topics := slices.Sorted(maps.Keys(handlers))
	ids, err := kafka.TopicIDs(ctx, client, topics...)
	if err != nil {
		return p, err
	}
	from, err := kafka.Since(ctx, client, s.From, topics...)
	if err == nil {
		err = from.Error()
	}
	if err != nil {
		return p, fmt.Errorf("kafka: offsets from %s on: %w", s.From.UTC().Format(time.RFC3339), err)
	}
	starts, err := kafka.Starts(ctx, client, topics...)
	if err != nil {
		return p, err
	}
	ends, err := kafka.Ends(ctx, client, topics...)
	if err != nil {
		return p, err
	}
	for _, o := range from.Offsets().Sorted() {
		start, end := starts[o.Topic][o.Partition], ends[o.Topic][o.Partition]
		if err := errors.Join(start.Err, end.Err); err != nil {
			return p, fmt.Errorf("kafka: %s/%d: %w", o.Topic, o.Partition, err)
		}
		of := PlannedPartition{
			Topic: o.Topic, Partition: o.Partition, From: o.At, Messages: max(end.Offset-o.At, 0), Deleted: start.Offset > 0 && start.Offset == o.At,
			topicID: kafka.TopicID(o.Topic, ids[o.Topic]), handlers: handlers[o.Topic],
		}
		if l, _ := from.Lookup(o.Topic, o.Partition); l.Timestamp >= 0 {
			if first := time.UnixMilli(l.Timestamp).UTC(); first.Year() <= 9999 { // JSON cannot have a later year
				of.First = &first
			}
		}
		p.Partitions = append(p.Partitions, of)
	}
	return p, admin.Explain(p.blocking(ctx, d.Pool), rightsPage)
}

// topics returns the plan's handlers by topic, and sets the plan's group. It returns an error if a handler cannot be rebuilt.
func (d Desk) topics(ctx context.Context, p *Plan) (all map[string][]string, err error) {
	rows, err := d.Pool.Query(ctx, "SELECT consumer_group, handler, topic, coalesce(refusal, '') FROM troupe.handlers ORDER BY handler, topic")
	if err != nil {
		return nil, err
	}
	var group, handler, topic, refusal string
	groups, known, may := make(map[string]bool), make(map[string]bool), []string{}
	all = make(map[string][]string)
	var refused error
	_, err = pgx.ForEachRow(rows, []any{&group, &handler, &topic, &refusal}, func() error {
		known[handler] = true
		if refusal == "" && !slices.Contains(may, handler) {
			may = append(may, handler)
		}
		if !slices.Contains(p.Handlers, handler) {
			return nil
		}
		if refusal != "" {
			refused = errors.Join(refused, fmt.Errorf("handler %s on %s cannot be rebuilt: %s", handler, topic, refusal))
		}
		groups[group] = true
		all[topic] = append(all[topic], handler)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, name := range p.Handlers {
		if !known[name] {
			return nil, fmt.Errorf("no handler %q: participants record their handlers in the database when they start; these can be rebuilt: %s",
				name, strings.Join(may[:min(len(may), 20)], ", "))
		}
	}
	switch {
	case refused != nil:
		return nil, refused
	case len(groups) == 0:
		return nil, errors.New("no handlers: name at least one")
	case len(groups) > 1:
		return nil, fmt.Errorf("handlers of several groups: %s: start a rebuild for each", strings.Join(slices.Sorted(maps.Keys(groups)), ", "))
	}
	p.Group = slices.Collect(maps.Keys(groups))[0]
	return all, nil
}

// blocking counts the messages for which partitions wait, as begin_rebuild.sql of package participant does.
func (p *Plan) blocking(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	var topics []string
	var partitions []int32
	for _, of := range p.Partitions {
		topics, partitions = append(topics, of.Topic), append(partitions, of.Partition)
	}
	return db.QueryRow(ctx, `
SELECT (SELECT count(*)
        FROM troupe.held AS h
        JOIN unnest(@topics::text[], @partitions::integer[]) AS p (topic, partition) ON p.topic = h.topic AND p.partition = h.partition
        WHERE h.consumer_group = @group),
       troupe.unsettled_letters(@group)`, pg.Args{
		"group": p.Group, "topics": topics, "partitions": partitions,
	}).Scan(&p.Held, &p.DeadLetters)
}
