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

// lagFacts are the lags of the flow's consumer groups, as the brokers report them.
type lagFacts struct {
	Error  string     `json:"error,omitempty"` // why the lags are unknown, or some of them
	Groups []groupLag `json:"groups"`
}

type groupLag struct {
	Group string `json:"group"`
	Topic string `json:"topic"`
	State string `json:"state"` // of the group, as Kafka names it: Stable, Empty, …
	Lag   int64  `json:"lag"`   // messages up to the end, of all partitions
}

const (
	lagLimit   = 3 * time.Second // for the brokers to respond: the page does not wait longer
	mostGroups = 200
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
