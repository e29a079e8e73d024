package flows_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/flow/telemetry"
	"github.com/troupe-go/troupe/internal/flow/watch"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/metrics/catalogue"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var rewrite = flag.Bool("update", false, "rewrite the watchers' section of docs/metrics-reference.md")

// TestTheReferenceIsWhatAWatcherServes: an order was placed an hour ago, and no service has answered.
func TestTheReferenceIsWhatAWatcherServes(t *testing.T) {
	t.Parallel()
	name, brokers := testkit.Flow(t), testkit.Kafka(t)
	placed := flow.Message{Topic: name + ".order.events", Type: "Placed"}
	place(t, brokers, placed)

	reader := sdkmetric.NewManualReader()
	m, err := flows.New(flows.Config{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	require.NoError(t, err)
	told := 0
	w, err := watch.New(m.Instrument(watch.Config{
		Pool: testkit.Database(t), Brokers: brokers, Flow: name, Log: testkit.Logger(t),
		Declared: []flow.Declaration{
			{Hop: name + ".order", Starts: []flow.Message{placed}},
			{Hop: name + ".payment", Reactions: []flow.Reaction{{
				On: placed, Success: []flow.Message{{Topic: name + ".payment.events", Type: "Paid", Last: true}},
			}}},
		},
		Found: func(context.Context, watch.Finding) { told++ },
	}))
	require.NoError(t, err)
	require.NoError(t, m.Observe(w))
	collect := func() (all metricdata.ResourceMetrics) {
		require.NoError(t, reader.Collect(t.Context(), &all))
		return all
	}
	require.Equal(t, map[string]int64{"missing": 0, "late": 0, "stuck_join": 0, "unexpected": 0}, findings(collect()))

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	testkit.Wait(t, "the finding", func() (bool, error) { return findings(collect())["missing"] == 1, nil })
	stop()
	require.NoError(t, <-ended)
	require.Equal(t, map[string]int64{"missing": 1, "late": 0, "stuck_join": 0, "unexpected": 0}, findings(collect()))
	require.Equal(t, 1, told, "the hook that was there before")
	require.EqualValues(t, 1, w.Stats().Messages)

	seen := make(catalogue.Collection)
	seen.Add(t, collect())
	catalogue.Section{Title: "Watchers", Page: "../../../docs/metrics-reference.md", Metrics: seen.Metrics()}.
		Hold(t, *rewrite, "go test ./internal/flow/telemetry -run Reference -update")
}

// place publishes that an order was placed an hour ago.
func place(t *testing.T, brokers []string, placed flow.Message) {
	client, err := kafka.NewClient(brokers)
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, kafka.Provision(t.Context(), client, kafka.Topic{Name: placed.Topic, Partitions: 1}))
	testkit.Wait(t, placed.Topic, func() (bool, error) {
		ids, err := kafka.TopicIDs(t.Context(), client, placed.Topic)
		return len(ids) == 1, err
	})
	require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{
		Topic: placed.Topic, Key: []byte("o-1"), Timestamp: time.Now().Add(-time.Hour),
		Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte("1")}, {Key: "ce_type", Value: []byte(placed.Type)}},
	}).FirstErr())
}

// findings returns the counter's values by kind.
func findings(all metricdata.ResourceMetrics) map[string]int64 {
	counted := make(map[string]int64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if data, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "troupe.watch.findings" {
				for _, p := range data.DataPoints {
					kind, _ := p.Attributes.Value(flows.KeyKind)
					counted[kind.AsString()] = p.Value
				}
			}
		}
	}
	return counted
}
