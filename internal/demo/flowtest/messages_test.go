package flow_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// onlooker collects every message of the flow.
func (f *flow) onlooker() *testkit.Consumer {
	return testkit.Consume(f.t, testkit.Kafka(f.t), f.topics()...)
}

func (f *flow) topics() (names []string) {
	for service := range services {
		hop := topics.MustHop(f.name, service)
		names = append(names, hop.Commands(), hop.Events())
	}
	return names
}

// all returns every message: it waits until the onlooker has as many as the broker.
func (f *flow) all(t *testing.T, c *testkit.Consumer) []*kgo.Record {
	t.Helper()
	cl, err := kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), f.topics()...)
	require.NoError(t, err)
	require.NoError(t, ends.Error())
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return c.WaitN(int(n))
}

// of returns the messages of one order. Messages of different topics are in no order.
func of(t *testing.T, records []*kgo.Record, orderID string) []envelope.Message {
	t.Helper()
	var all []envelope.Message
	for _, r := range records {
		if string(r.Key) == orderID {
			m, err := kafka.Message(r)
			require.NoError(t, err)
			all = append(all, m)
		}
	}
	return all
}

// awaitMessages returns the order's messages once there are n of them.
func awaitMessages(t *testing.T, c *testkit.Consumer, orderID string, n int) (all []envelope.Message) {
	t.Helper()
	testkit.Wait(t, fmt.Sprintf("%d messages of %s", n, orderID), func() (bool, error) {
		if all = of(t, c.Records(), orderID); len(all) < n {
			return false, fmt.Errorf("%d so far", len(all))
		}
		return true, nil
	})
	require.Len(t, all, n)
	return all
}

// again sends records a second time: unchanged, or each with a new id.
func again(t *testing.T, records []*kgo.Record, newIDs bool) {
	t.Helper()
	cl, err := kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	defer cl.Close()
	for _, r := range records {
		m, err := kafka.Message(r)
		require.NoError(t, err)
		if newIDs {
			m.ID = envelope.NewID()
		}
		require.NoError(t, cl.ProduceSync(t.Context(), kafka.Record(m)).FirstErr())
	}
}

// awaitQuiet waits until every group has handled all messages and every outbox is empty.
func (f *flow) awaitQuiet(t *testing.T) {
	t.Helper()
	cl, err := kafka.NewClient(testkit.Kafka(t))
	require.NoError(t, err)
	defer cl.Close()
	var groups []string
	for service := range services {
		groups = append(groups, topics.MustHop(f.name, service).String())
	}
	// During one check, a message can move from an outbox that is not read yet to a topic that was: then the topics have grown by
	// the next check.
	before := int64(-1)
	testkit.Wait(t, "a quiet flow", func() (bool, error) {
		busy, published, err := f.busy(t, kadm.NewClient(cl), groups)
		if err == nil && busy > 0 {
			err = fmt.Errorf("%d messages under way", busy)
		}
		if err != nil {
			before = -1
			return false, err
		}
		quiet := published == before
		before = published
		return quiet, nil
	})
}

// busy returns how many messages wait on topics and then in databases, and how many the topics had.
func (f *flow) busy(t *testing.T, admin *kadm.Client, groups []string) (n, published int64, err error) {
	lags, err := admin.Lag(t.Context(), groups...)
	if err != nil {
		return 0, 0, err
	}
	for _, l := range lags {
		if l.Error() != nil {
			return 0, 0, l.Error()
		}
		n += l.Lag.Total()
		for _, partition := range l.Lag.Sorted() {
			published += partition.End.Offset
		}
	}
	for service := range services {
		n += ask[int64](t, f, service, "SELECT (SELECT count(*) FROM troupe.outbox) + (SELECT count(*) FROM troupe.held)")
	}
	return n, published, nil
}
