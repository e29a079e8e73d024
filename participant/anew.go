package participant

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/internal/kafka"
)

// A topic that was deleted and made anew, or restored elsewhere, has the same name and offsets that mean something
// else. Brokers before OffsetCommit version 10 take and give offsets by name. Each committed offset therefore names its
// topic's id in its metadata, and one that names another topic is not believed: the new topic is read from its start,
// and the inbox tells what was handled before. Offsets without such a note, as tools set them, are believed.

const topicNotePrefix = "topic id "

func topicNote(id uuid.UUID) string { return topicNotePrefix + id.String() }

// compare remembers which of the fetched offsets belong to a topic that is no more.
func (c *consumer) compare(ctx context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	<-c.built
	ids, err := kafka.TopicIDs(ctx, c.client, c.consumed...)
	if err != nil {
		return fmt.Errorf("topic ids: %w", err)
	}
	names := make(map[uuid.UUID]string, len(ids))
	for name, id := range ids {
		names[id] = name
	}
	c.stale = nil
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			if t.Topic == "" {
				t.Topic = names[t.TopicID]
			}
			for _, p := range t.Partitions {
				at := topicPartition{t.Topic, p.Partition}
				if p.Metadata != nil && strings.HasPrefix(*p.Metadata, topicNotePrefix) && *p.Metadata != topicNote(ids[t.Topic]) {
					c.stale = append(c.stale, at)
				}
			}
		}
	}
	return nil
}

// adjust sends the partitions that compare found to their start. kgo calls the one right after the other.
func (c *consumer) adjust(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	for topic, partitions := range offsets {
		for id := range partitions {
			at := topicPartition{topic, id}
			if slices.Contains(c.stale, at) {
				partitions[id] = kgo.NewOffset().AtStart()
				c.p.cfg.Log.Warn().Stringer("partition", at).Msg("the topic was made anew: it is read from its start")
			}
			c.begins(at, partitions[id].EpochOffset().Offset)
		}
	}
	return offsets, nil
}
