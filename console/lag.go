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
	"github.com/twmb/franz-go/pkg/kgo"
)

// lagFacts are how far the flow's consumer groups are behind, as the brokers tell it.
type lagFacts struct {
	Error  string     `json:"error,omitempty"` // why it is not known, or not of all groups
	Groups []groupLag `json:"groups"`
}

type groupLag struct {
	Group string `json:"group"`
	Topic string `json:"topic"`
	State string `json:"state"` // of the group, as Kafka says it: Stable, Empty, …
	Lag   int64  `json:"lag"`   // messages behind the end, of all partitions
}

const (
	lagLimit   = 3 * time.Second // for the brokers to answer: the page does not wait longer
	mostGroups = 200
)

// lag asks the brokers; nil: there are none to ask. What they do not answer in time is said, and the rest of the page stands.
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
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(cfg.Brokers...), kgo.ClientID("troupe-console")}, cfg.Kafka...)...)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	listed, err := admin.ListGroups(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, name := range listed.Groups() {
		if strings.HasPrefix(name, cfg.Flow+".") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	lags, err := admin.Lag(ctx, names[:min(len(names), mostGroups)]...)
	if err != nil {
		return err
	}
	var failed error
	for _, of := range lags.Sorted() {
		if err := of.Error(); err != nil {
			failed = cmp.Or(failed, fmt.Errorf("group %s: %w", of.Group, err))
			continue
		}
		for _, topic := range of.Lag.TotalByTopic().Sorted() {
			f.Groups = append(f.Groups, groupLag{of.Group, topic.Topic, of.State, topic.Lag})
		}
	}
	if len(names) > mostGroups {
		failed = cmp.Or(failed, fmt.Errorf("only the first %d of %d groups were asked for", mostGroups, len(names)))
	}
	return failed
}
