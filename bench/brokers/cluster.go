package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/internal/kafka"
)

const (
	nodes      = 3
	partitions = 3
	limit      = 3 * time.Minute // for one step, on a busy machine
)

// A cluster is three nodes that apachekafka.sh has started. Their ids are 1, 2 and 3.
type cluster struct {
	script, dir, port string
	addrs             []string
	client            *kgo.Client // leaves a silent broker after 2 s
	admin             *kadm.Client
}

func openCluster(ctx context.Context, script, dir string, port int, session time.Duration) (*cluster, error) {
	c := &cluster{script: script, dir: dir, port: strconv.Itoa(port)}
	addrs, err := c.run(ctx, "start", "--nodes", strconv.Itoa(nodes), "--set", fmt.Sprint("broker.session.timeout.ms=", session.Milliseconds()))
	if err != nil {
		return nil, err
	}
	c.addrs = strings.Split(addrs, ",")
	const answer = 2 * time.Second
	c.client, err = kgo.NewClient(kgo.SeedBrokers(c.addrs...), kgo.RequestTimeoutOverhead(answer), kgo.DialTimeout(answer),
		kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	c.admin = kadm.NewClient(c.client)
	return c, nil
}

func (c *cluster) run(ctx context.Context, command string, args ...string) (string, error) {
	return harness.Output(ctx, c.script, append([]string{command, "--dir", c.dir, "--port", c.port}, args...)...)
}

// node runs a command of the script on one node.
func (c *cluster) node(ctx context.Context, command string, node int32) error {
	_, err := c.run(ctx, command, "--node", strconv.Itoa(int(node)))
	return err
}

// provision creates a topic. With replicas the partitions have as many, each on the same nodes, and one of them is enough for a write.
func (c *cluster) provision(ctx context.Context, name string, replicas int, unclean bool) error {
	if replicas == 0 {
		return kafka.Provision(ctx, c.client, kafka.Topic{Name: name, Partitions: partitions})
	}
	var on []int32
	for n := range replicas {
		on = append(on, int32(n+1))
	}
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	for n := range partitions {
		one := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		one.Partition, one.Replicas = int32(n), on
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, one)
	}
	for key, value := range map[string]string{"min.insync.replicas": "1", "unclean.leader.election.enable": strconv.FormatBool(unclean)} {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = key, &value
		topic.Configs = append(topic.Configs, config)
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics, request.TimeoutMillis = append(request.Topics, topic), 10_000
	response, err := request.RequestWith(ctx, c.client)
	if err != nil {
		return err
	}
	for _, t := range response.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("create topic %s: %w", name, err)
		}
	}
	return nil
}

// partitionsOf returns the partitions of a topic, or of all topics for "". It asks again while no broker answers.
func (c *cluster) partitionsOf(ctx context.Context, topic string) (all []kadm.PartitionDetail, err error) {
	var names []string
	if topic != "" {
		names = append(names, topic)
	}
	err = harness.Until(ctx, limit, "no broker answers", func(ctx context.Context) (bool, error) {
		details, err := c.admin.ListTopicsWithInternal(ctx, names...)
		if err != nil {
			return false, nil
		}
		all = nil
		details.EachPartition(func(p kadm.PartitionDetail) { all = append(all, p) })
		return len(all) > 0 || topic == "", nil
	})
	return all, err
}

// removeTopics deletes all topics but Kafka's own.
func (c *cluster) removeTopics(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	details, err := c.admin.ListTopics(limited)
	if err == nil && len(details) > 0 {
		_, err = c.admin.DeleteTopics(limited, details.Names()...)
	}
	return err
}

// until waits until each partition of a topic, or of all topics for "", is as wanted.
func (c *cluster) until(ctx context.Context, topic, late string, wanted func(kadm.PartitionDetail) bool) error {
	return harness.Until(ctx, limit, late, func(ctx context.Context) (bool, error) {
		all, err := c.partitionsOf(ctx, topic)
		for _, p := range all {
			if !wanted(p) {
				return false, nil
			}
		}
		return true, err
	})
}

// untilWhole waits until each partition has a leader and all its replicas.
func (c *cluster) untilWhole(ctx context.Context) error {
	return c.until(ctx, "", "some replicas are out of sync", func(p kadm.PartitionDetail) bool {
		return p.Leader >= 0 && len(p.ISR) == len(p.Replicas)
	})
}

// leader returns the node that leads the first partition of a topic.
func (c *cluster) leader(ctx context.Context, topic string) (node int32, err error) {
	err = harness.Until(ctx, limit, "no leader of "+topic, func(ctx context.Context) (bool, error) {
		all, err := c.partitionsOf(ctx, topic)
		if err == nil {
			node = all[slices.IndexFunc(all, func(p kadm.PartitionDetail) bool { return p.Partition == 0 })].Leader
		}
		return node > 0, err
	})
	return node, err
}

// away runs do while a node is killed, and starts the node again.
func (c *cluster) away(ctx context.Context, node int32, do func() error) (err error) {
	if err := c.node(ctx, "kill", node); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.node(ctx, "start", node)) }()
	return do()
}
