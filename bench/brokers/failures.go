package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/troupe-go/troupe/bench/harness"
)

// A failure happens to the brokers of a topic, under load, and has ended when happen returns.
type failure struct {
	name     string
	replicas int // of the topic; 0: the default, 3
	happen   func(ctx context.Context, s *stage, topic string) error
}

const (
	between = 3 * time.Second  // from one failure to the next
	watched = 10 * time.Second // without a leader
	outage  = 15 * time.Second
)

var failures = []failure{
	{name: "leader killed, three times", happen: killLeaders},
	{name: "leader frozen", happen: freezeLeader},
	{name: "two of three away for 15 s", happen: killTwo},
	{name: "rolling restart", happen: roll},
	{name: "coordinators moved, three times", happen: moveCoordinators},
	{name: "unclean election refused", replicas: 2, happen: loseInSync},
}

// killLeaders kills the leader of the first partition, three times, each for 2 s or more.
func killLeaders(ctx context.Context, s *stage, topic string) error {
	for range nodes {
		node, err := s.cluster.leader(ctx, topic)
		if err != nil {
			return err
		}
		if err := s.cluster.away(ctx, node, func() error { return harness.Sleep(ctx, 2*time.Second) }); err != nil {
			return err
		}
		if err := s.cluster.untilWhole(ctx); err != nil {
			return err
		}
		if err := harness.Sleep(ctx, between); err != nil {
			return err
		}
	}
	return nil
}

// freezeLeader stops the process of the leader of the first partition for a while, as on a host that is cut off.
func freezeLeader(ctx context.Context, s *stage, topic string) error {
	node, err := s.cluster.leader(ctx, topic)
	if err != nil {
		return err
	}
	if err := s.cluster.node(ctx, "freeze", node); err != nil {
		return err
	}
	slept := harness.Sleep(ctx, s.frozen)
	if err := s.cluster.node(context.WithoutCancel(ctx), "thaw", node); err != nil {
		return err
	}
	if slept != nil {
		return slept
	}
	return s.cluster.untilWhole(ctx)
}

// killTwo kills the leader of the first partition and another node, so that a write has fewer replicas than min.insync.replicas, and the
// controllers have no majority.
func killTwo(ctx context.Context, s *stage, topic string) error {
	node, err := s.cluster.leader(ctx, topic)
	if err != nil {
		return err
	}
	err = s.cluster.away(ctx, node, func() error {
		return s.cluster.away(ctx, node%nodes+1, func() error { return harness.Sleep(ctx, outage) })
	})
	if err != nil {
		return err
	}
	return s.cluster.untilWhole(ctx)
}

// roll stops each node in order and starts it again, as an upgrade does.
func roll(ctx context.Context, s *stage, _ string) error {
	for node := int32(1); node <= nodes; node++ {
		for _, command := range []string{"stop", "start"} {
			if err := s.cluster.node(ctx, command, node); err != nil {
				return err
			}
		}
		if err := s.cluster.untilWhole(ctx); err != nil {
			return err
		}
	}
	return nil
}

// moveCoordinators moves the coordinators of all groups and of all transactions to another node, three times, while all nodes run.
func moveCoordinators(ctx context.Context, s *stage, _ string) error {
	for range nodes {
		for _, topic := range []string{"__consumer_offsets", "__transaction_state"} {
			if err := s.cluster.rotate(ctx, topic); err != nil {
				return err
			}
		}
		if err := harness.Sleep(ctx, between); err != nil {
			return err
		}
	}
	return nil
}

// rotate makes the second replica of each partition of a topic the leader. A topic that does not exist is no error: no group or
// transaction has used it.
func (c *cluster) rotate(ctx context.Context, topic string) error {
	details, err := c.admin.ListTopicsWithInternal(ctx, topic)
	if err != nil || details[topic].Err != nil {
		return err
	}
	var moved kadm.AlterPartitionAssignmentsReq
	var all kadm.TopicsSet
	first := make(map[int32]int32)
	for _, p := range details[topic].Partitions {
		replicas := append(slices.Clone(p.Replicas[1:]), p.Replicas[0])
		moved.Assign(topic, p.Partition, replicas)
		all.Add(topic, p.Partition)
		first[p.Partition] = replicas[0]
	}
	altered, err := c.admin.AlterPartitionAssignments(ctx, moved)
	if err == nil {
		err = altered.Error()
	}
	if err != nil {
		return fmt.Errorf("assign %s: %w", topic, err)
	}
	return harness.Until(ctx, limit, "the leaders of "+topic+" have not moved", func(ctx context.Context) (bool, error) {
		if _, err := c.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, all); err != nil {
			return false, err
		}
		now, err := c.partitionsOf(ctx, topic)
		return !slices.ContainsFunc(now, func(p kadm.PartitionDetail) bool { return p.Leader != first[p.Partition] }), err
	})
}

// loseInSync kills the one of the topic's two replicas that has the last rows, while the other one, which lacks them, is back. No leader
// may be elected until the first one is back.
func loseInSync(ctx context.Context, s *stage, topic string) error {
	leads, err := s.cluster.leader(ctx, topic)
	if err != nil {
		return err
	}
	behind := 3 - leads // the replicas are on nodes 1 and 2
	if err := s.cluster.node(ctx, "kill", behind); err != nil {
		return err
	}
	err = s.cluster.until(ctx, topic, "the killed replica is in sync", func(p kadm.PartitionDetail) bool { return slices.Equal(p.ISR, []int32{leads}) })
	if err != nil {
		return err
	}
	if err := harness.Sleep(ctx, between); err != nil { // these rows are on one node
		return err
	}
	return s.cluster.away(ctx, leads, func() error {
		if err := s.cluster.node(ctx, "start", behind); err != nil {
			return err
		}
		for until := time.Now().Add(watched); time.Now().Before(until); {
			all, err := s.cluster.partitionsOf(ctx, topic)
			if err != nil {
				return err
			}
			for _, p := range all {
				if p.Leader == behind && !s.unclean {
					return fmt.Errorf("partition %d: node %d was elected, which lacks rows", p.Partition, behind)
				}
			}
			if err := harness.Sleep(ctx, 200*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	})
}
