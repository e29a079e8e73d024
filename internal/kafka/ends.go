package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A Place is an offset in a partition, or the error of reading it.
type Place struct {
	Offset int64
	Err    error
}

// Ends returns the last stable offsets of topics, by topic and partition: a consumer of committed messages reads up to them. It
// costs one request to each broker that leads one of the partitions. A broker that does not answer is the error of its partitions.
func Ends(ctx context.Context, client *kgo.Client, topics ...string) (map[string]map[int32]Place, error) {
	listed, err := kadm.NewClient(client).ListCommittedOffsets(ctx, topics...)
	return places(listed, err)
}

// HighWatermarks returns the ends of the logs, with the messages of transactions that are open; else it is like Ends.
func HighWatermarks(ctx context.Context, client *kgo.Client, topics ...string) (map[string]map[int32]Place, error) {
	listed, err := kadm.NewClient(client).ListEndOffsets(ctx, topics...)
	return places(listed, err)
}

// Starts returns the offsets of the first messages that are not deleted yet; else it is like Ends.
func Starts(ctx context.Context, client *kgo.Client, topics ...string) (map[string]map[int32]Place, error) {
	listed, err := kadm.NewClient(client).ListStartOffsets(ctx, topics...)
	return places(listed, err)
}

// Since returns the offset of the first message of each partition whose time is at or after a time. A partition without such a message
// has the end of its log. That end is read before the messages are looked for, so a message that arrives in the meantime is not passed
// over. A partition that is added in the meantime has its start. Errors are reported as [kadm.Client.ListOffsetsAfterMilli] reports them: with an error of some brokers, it returns the offsets of the
// others.
func Since(ctx context.Context, client *kgo.Client, at time.Time, topics ...string) (kadm.ListedOffsets, error) {
	admin := kadm.NewClient(client)
	ends, endsErr := admin.ListEndOffsets(ctx, topics...)
	if endsErr != nil && len(ends) == 0 {
		return nil, endsErr
	}
	listed, err := admin.ListOffsetsAfterMilli(ctx, at.UnixMilli(), topics...)
	for topic, partitions := range listed {
		for partition, l := range partitions {
			if l.Err != nil || l.Timestamp >= 0 {
				continue
			}
			switch end, known := ends.Lookup(topic, partition); {
			case known:
				l.Offset, l.Err = min(l.Offset, end.Offset), end.Err
			case endsErr != nil: // the partition's broker did not answer the first time
				l.Err = endsErr
			default: // the partition was added in the meantime: it begins at its start
				l.Offset = 0
			}
			partitions[partition] = l
		}
	}
	return listed, cmp.Or(err, endsErr)
}

func places(listed kadm.ListedOffsets, err error) (map[string]map[int32]Place, error) {
	if err != nil && len(listed) == 0 {
		return nil, fmt.Errorf("kafka: list offsets: %w", err)
	}
	all := make(map[string]map[int32]Place, len(listed))
	add := func(topic string, partition int32, p Place) {
		if all[topic] == nil {
			all[topic] = make(map[int32]Place)
		}
		all[topic][partition] = p
	}
	listed.Each(func(l kadm.ListedOffset) { add(l.Topic, l.Partition, Place{l.Offset, l.Err}) })
	var brokers *kadm.ShardErrors
	if errors.As(err, &brokers) {
		for _, failed := range brokers.Errs { // a broker has not answered for its partitions
			if asked, is := failed.Req.(*kmsg.ListOffsetsRequest); is {
				for _, t := range asked.Topics {
					for _, p := range t.Partitions {
						add(t.Topic, p.Partition, Place{Err: failed.Err})
					}
				}
			}
		}
	}
	return all, nil
}
