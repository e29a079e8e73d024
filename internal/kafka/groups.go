package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrIncomplete means that some brokers have not answered, so their groups are missing.
var ErrIncomplete = errors.New("some brokers have not answered")

// Groups lists the groups of the cluster. Each broker lists the groups that it coordinates: if one has not answered within limit,
// or answers with an error, Groups returns the groups of the others with an error that wraps ErrIncomplete and names the broker. With
// any other error it returns none.
func Groups(ctx context.Context, client *kgo.Client, limit time.Duration) (kadm.ListedGroups, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	listed, err := kadm.NewClient(client).ListGroups(limited)
	partly, some := errors.AsType[*kadm.ShardErrors](err)
	if !some || partly.AllFailed {
		return listed, err
	}
	missing := fmt.Errorf("%w, and the groups that they coordinate are missing", ErrIncomplete)
	for _, of := range partly.Errs {
		why := of.Err
		if errors.Is(why, context.DeadlineExceeded) {
			why = fmt.Errorf("no answer in %s", limit)
		}
		missing = fmt.Errorf("%w; broker %d: %w", missing, of.Broker.NodeID, why)
	}
	return listed, missing
}

// GroupTopics returns the topics that the members of a group subscribe to. It returns an error while the group rebalances: the broker then does not
// return the subscriptions. The group may use either protocol, the classic one or the one of KIP-848.
func GroupTopics(ctx context.Context, client *kgo.Client, group string) ([]string, error) {
	admin := kadm.NewClient(client)
	classic, err := admin.DescribeGroups(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("kafka: describe group %s: %w", group, err)
	}
	switch of := classic[group]; {
	case errors.Is(of.Err, kerr.GroupIDNotFound), of.Err == nil && of.ProtocolType == "": // no classic group
	case of.Err != nil:
		return nil, fmt.Errorf("kafka: describe group %s: %w", group, of.Err)
	case of.State == "Empty":
		return nil, nil
	case of.State != "Stable":
		return nil, fmt.Errorf("kafka: group %s is in state %s", group, of.State)
	default:
		return of.JoinTopics(), nil
	}
	next, err := admin.DescribeConsumerGroups(ctx, group)
	if err == nil {
		err = next[group].Err
	}
	if err != nil {
		return nil, fmt.Errorf("kafka: describe group %s: %w", group, err)
	}
	return next[group].SubscribedTopics(), nil
}
