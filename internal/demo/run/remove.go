package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/kafka"
)

// groupsLimit is the time for the brokers to list their groups.
const groupsLimit = 10 * time.Second

// removeFlow deletes the groups and topics whose names begin with the flow's. A member that was killed still counts as a member
// until its session ends, and a static one even after SIGTERM, so all members are removed first.
func removeFlow(ctx context.Context, client *kgo.Client, flow string) error {
	admin := kadm.NewClient(client)
	groups, err := kafka.Groups(ctx, client, groupsLimit)
	var errs []error
	if err != nil {
		err = fmt.Errorf("list groups: %w", err)
		if !errors.Is(err, kafka.ErrIncomplete) {
			return err
		}
		errs = append(errs, err)
	}
	for _, group := range ofFlow(groups.Groups(), flow) {
		if err := removeGroup(ctx, admin, group); err != nil {
			errs = append(errs, fmt.Errorf("delete group %s: %w", group, err))
		}
	}
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("list topics: %w", err))...)
	}
	deleted, err := admin.DeleteTopics(ctx, ofFlow(topics.Names(), flow)...)
	if err != nil {
		errs = append(errs, fmt.Errorf("delete topics: %w", err))
	}
	for _, answer := range deleted {
		if answer.Err != nil && !errors.Is(answer.Err, kerr.UnknownTopicOrPartition) {
			errs = append(errs, fmt.Errorf("delete topic %s: %w", answer.Topic, answer.Err))
		}
	}
	return errors.Join(errs...)
}

func removeGroup(ctx context.Context, admin *kadm.Client, group string) error {
	described, err := admin.DescribeGroups(ctx, group)
	if err != nil {
		return err
	}
	for _, member := range described[group].Members {
		if member.InstanceID == nil {
			continue
		}
		if _, err := admin.LeaveGroup(ctx, kadm.LeaveGroup(group).Reason("the demo is over").InstanceIDs(*member.InstanceID)); err != nil {
			return err
		}
	}
	answers, err := admin.DeleteGroups(ctx, group)
	if err != nil {
		return err
	}
	if err := answers[group].Err; err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return err
	}
	return nil
}

func ofFlow(names []string, flow string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, flow+".") })
}
