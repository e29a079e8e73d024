package console

import (
	"cmp"
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

// lagFacts are the lags of the flow's consumer groups, as the brokers report them.
type lagFacts struct {
	Error  string     `json:"error,omitempty"` // why the lags are unknown, or some of them
	Groups []groupLag `json:"groups"`
}

type groupLag struct {
	Group string `json:"group"`
	Topic string `json:"topic"`
	State string `json:"state"` // of the group, as Kafka names it: Stable, Empty, …
	Lag   int64  `json:"lag"`   // messages up to the end, of all partitions whose end is known
	// Unknown counts the partitions whose end is not known, since their broker does not answer.
	Unknown int `json:"unknown_partitions,omitempty"`
}

const (
	lagLimit    = 3 * time.Second        // for the brokers to respond: the page does not wait longer
	brokerLimit = 700 * time.Millisecond // for one broker to respond to one of four requests
	mostGroups  = 200
)

// lag queries the brokers; it returns nil if there are none. An error or a time-out is in Error, and does not fail the page.
func (c *Console) lag(ctx context.Context) *lagFacts {
	if len(c.cfg.Brokers) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lagLimit)
	defer cancel()
	f := &lagFacts{Groups: []groupLag{}}
	if err := f.read(ctx, c.cfg); err != nil {
		f.Error = err.Error()
		if errors.Is(err, context.DeadlineExceeded) {
			f.Error = fmt.Sprintf("the brokers have not answered in %s: %s", lagLimit, strings.Join(c.cfg.Brokers, ", "))
		}
	}
	return f
}

func (f *lagFacts) read(ctx context.Context, cfg Config) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(cfg.Brokers...), kgo.ClientID("troupe-console"),
		// A broker that does not answer must leave time for the others.
		kgo.DialTimeout(brokerLimit), kgo.RequestTimeoutOverhead(brokerLimit), kgo.RetryTimeout(brokerLimit),
	}
	client, err := kgo.NewClient(append(options, cfg.Kafka...)...)
	if err != nil {
		return err
	}
	defer client.Close()
	listed, err := kafka.Groups(ctx, client, brokerLimit)
	if err != nil && !errors.Is(err, kafka.ErrIncomplete) {
		return err
	}
	missing := err
	var names []string
	for _, name := range listed.Groups() {
		if strings.HasPrefix(name, cfg.Flow+".") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return missing
	}
	slices.Sort(names)
	lags, err := kadm.NewClient(client).Lag(ctx, names[:min(len(names), mostGroups)]...)
	if err != nil {
		return cmp.Or(missing, err)
	}
	for _, of := range lags.Sorted() {
		if err := of.Error(); err != nil {
			missing = cmp.Or(missing, fmt.Errorf("group %s: %w", of.Group, err))
			continue
		}
		for _, topic := range of.Lag.TotalByTopic().Sorted() {
			partitions, err := unknown(of.Lag[topic.Topic])
			if err != nil {
				missing = cmp.Or(missing, fmt.Errorf("group %s, topic %s: %w", of.Group, topic.Topic, err))
			}
			f.Groups = append(f.Groups, groupLag{of.Group, topic.Topic, of.State, topic.Lag, partitions})
		}
	}
	if len(names) > mostGroups {
		missing = cmp.Or(missing, fmt.Errorf("only the first %d of %d groups were asked for", mostGroups, len(names)))
	}
	return missing
}

// unknown counts the partitions of a topic for which a broker has not said where they end, and returns why. A topic that was
// deleted has no lag.
func unknown(lags map[int32]kadm.GroupMemberLag) (partitions int, why error) {
	for _, lag := range lags {
		if lag.Err != nil && !errors.Is(lag.Err, kerr.UnknownTopicOrPartition) {
			partitions, why = partitions+1, lag.Err
		}
	}
	return partitions, why
}
