package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A Topic is a topic to provision. The zero values of Partitions and Replicas select the broker's defaults.
type Topic struct {
	Name       string
	Partitions int32
	Replicas   int16
	Config     map[string]string
}

// Provision creates the topics that do not exist, and does not change existing ones.
func Provision(ctx context.Context, client *kgo.Client, topics ...Topic) error {
	admin := kadm.NewClient(client)
	var errs []error
	for _, t := range topics {
		config := make(map[string]*string, len(t.Config))
		for _, k := range slices.Sorted(maps.Keys(t.Config)) {
			v := t.Config[k]
			config[k] = &v
		}
		_, err := admin.CreateTopic(ctx, orBroker(t.Partitions), orBroker(t.Replicas), config, t.Name)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			errs = append(errs, fmt.Errorf("kafka: create topic %s: %w", t.Name, err))
		}
	}
	return errors.Join(errs...)
}

// orBroker returns n, or -1 for 0: the broker then uses its default (KIP-464).
func orBroker[N int16 | int32](n N) N {
	if n == 0 {
		return -1
	}
	return n
}

// TopicIDs returns Kafka's ids of those topics that exist. A topic that was deleted and created again has another id.
func TopicIDs(ctx context.Context, client *kgo.Client, names ...string) (map[string][16]byte, error) {
	details, err := kadm.NewClient(client).ListTopics(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("kafka: list topics: %w", err)
	}
	ids := make(map[string][16]byte, len(names))
	for name, d := range details {
		switch {
		case d.Err == nil:
			ids[name] = d.ID
		case !errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			return nil, fmt.Errorf("kafka: topic %s: %w", name, d.Err)
		}
	}
	return ids, nil
}

// MayRead reports whether a topic exists. It returns an error if this client may not see or read the topic, or if the broker does not answer. If a
// broker does not list the rights of its clients, MayRead assumes that this one may read each topic that it sees.
func MayRead(ctx context.Context, client *kgo.Client, name string) (exists bool, err error) {
	details, err := kadm.NewClient(client).ListTopics(kadm.WithAuthorizedOps(ctx), name)
	if err != nil {
		return false, fmt.Errorf("kafka: list topics: %w", err)
	}
	d, rights := details[name], details[name].AuthorizedOperations
	switch {
	case errors.Is(d.Err, kerr.UnknownTopicOrPartition):
		return false, nil
	case d.Err != nil:
		return false, fmt.Errorf("kafka: topic %s: %w", name, d.Err)
	case len(rights) > 0 && !slices.Contains(rights, kadm.OpRead) && !slices.Contains(rights, kadm.OpAll):
		return true, NotReadable(name, kerr.TopicAuthorizationFailed)
	}
	return true, nil
}

// NotReadable adds to err, the broker's refusal to let this client read a topic, how to allow it.
func NotReadable(topic string, err error) error {
	return fmt.Errorf("kafka: this client may not read the topic: kafka-acls --add --allow-principal User:… --operation read --topic %s: %w", topic, err)
}

// TopicID returns Kafka's own id, or a hash of the name if the broker has no topic ids: then a topic that was deleted and created
// again is not noticed.
func TopicID(name string, id [16]byte) uuid.UUID {
	if id == [16]byte{} {
		return uuid.NewSHA1(uuid.NameSpaceURL, []byte("kafka:"+name))
	}
	return id
}

// Partitions returns the number of partitions of each of the topics that exist.
func Partitions(ctx context.Context, client *kgo.Client, names ...string) (map[string]int32, error) {
	details, err := kadm.NewClient(client).ListTopics(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("kafka: list topics: %w", err)
	}
	partitions := make(map[string]int32, len(names))
	for name, d := range details {
		if d.Err == nil {
			partitions[name] = int32(len(d.Partitions))
		}
	}
	return partitions, nil
}

// Retention returns how long each of the topics that exist keeps its messages; negative: for ever.
func Retention(ctx context.Context, client *kgo.Client, names ...string) (map[string]time.Duration, error) {
	configs, err := kadm.NewClient(client).DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("kafka: describe topics: %w", err)
	}
	kept := make(map[string]time.Duration, len(names))
	for _, c := range configs {
		if c.Err != nil {
			continue
		}
		for _, entry := range c.Configs {
			if entry.Key != "retention.ms" || entry.Value == nil {
				continue
			}
			ms, err := strconv.ParseInt(*entry.Value, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("kafka: topic %s: retention.ms %q: %w", c.Name, *entry.Value, err)
			}
			if ms > math.MaxInt64/int64(time.Millisecond) {
				ms = -1
			}
			kept[c.Name] = time.Duration(ms) * time.Millisecond
		}
	}
	return kept, nil
}
