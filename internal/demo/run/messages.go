package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/topics"
)

// A message holds the parts of a record that the checks read.
type message struct {
	topic, key, id, typ, cause string
	written                    time.Time // when its row was written, by its database's clock
}

// flowTopics returns the topics of commands and events of the flow. The flow's other topics contain only copies.
func flowTopics(ctx context.Context, client *kgo.Client, flow string) ([]string, error) {
	all, err := kadm.NewClient(client).ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	return slices.DeleteFunc(ofFlow(all.Names(), flow), func(name string) bool {
		t, err := topics.Parse(name)
		return err != nil || t.Kind != topics.Commands && t.Kind != topics.Events
	}), nil
}

// readMessages reads the flow's topics from their beginning to their current end.
func readMessages(ctx context.Context, brokers []string, client *kgo.Client, flow string) ([]message, error) {
	names, err := flowTopics(ctx, client, flow)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, names...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list offsets: %w", err)
	}
	left := make(map[string]map[int32]int64)
	from := make(map[string]map[int32]kgo.Offset)
	partitions := 0
	ends.Each(func(end kadm.ListedOffset) {
		if end.Offset == 0 {
			return
		}
		if left[end.Topic] == nil {
			left[end.Topic], from[end.Topic] = make(map[int32]int64), make(map[int32]kgo.Offset)
		}
		left[end.Topic][end.Partition], from[end.Topic][end.Partition] = end.Offset, kgo.NewOffset().AtStart()
		partitions++
	})
	if partitions == 0 {
		return nil, nil
	}
	// Control records are kept, since one may be the last of its partition.
	reader, err := kafka.NewClient(brokers, kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var all []message
	for partitions > 0 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read the flow's topics: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end := left[r.Topic][r.Partition]
			if r.Offset >= end {
				return
			}
			if !r.Attrs.IsControl() {
				all = append(all, newMessage(r))
			}
			if r.Offset == end-1 {
				partitions--
			}
		})
	}
	return all, nil
}

func newMessage(r *kgo.Record) message {
	m, _ := kafka.Message(r) // an unreadable message is missing in the result, and the checks find that
	return message{
		topic: r.Topic, key: string(r.Key), id: m.ID, typ: m.Type[strings.LastIndexByte(m.Type, '.')+1:], cause: m.CausationID,
		written: m.Time,
	}
}

// readUnread returns how many messages each group of the flow has not yet committed. With an error that wraps kafka.ErrPartly,
// groups of brokers that are absent are missing.
func readUnread(ctx context.Context, client *kgo.Client, flow string) (map[string]int64, error) {
	groups, missing := kafka.Groups(ctx, client, groupsLimit)
	if missing != nil {
		missing = fmt.Errorf("list groups: %w", missing)
		if !errors.Is(missing, kafka.ErrIncomplete) {
			return nil, missing
		}
	}
	unread := make(map[string]int64)
	names := ofFlow(groups.Groups(), flow)
	if len(names) == 0 {
		return unread, missing
	}
	lags, err := kadm.NewClient(client).Lag(ctx, names...)
	if err == nil {
		err = lags.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("read what the groups have consumed: %w", err)
	}
	for group, lag := range lags {
		unread[strings.TrimPrefix(group, flow+".")] = lag.Lag.Total()
	}
	return unread, missing
}
