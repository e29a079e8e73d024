package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/telemetry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func TestMain(m *testing.M) {
	short.Only(
		"Example", "TestInstrumentKeepsTheHooksThatAreThere", "TestTheDocumentNamesEveryMetric",
	)
	testkit.Main(m)
}

// Charge is a command. Fail selects how it fails.
type Charge struct {
	Fail string `json:"fail,omitempty"`
}

// Charged is its answer.
type Charged struct{}

// Declined is its refusal.
type Declined struct{}

var errAsked = errors.New("as asked")

// stage is a hop with telemetry. It keeps all spans and metrics.
type stage struct {
	t       *testing.T
	pool    *pgxpool.Pool
	brokers []string
	flow    string
	hop     topics.Hop
	client  *kgo.Client

	spans   *tracetest.InMemoryExporter
	tracers *sdktrace.TracerProvider
	reader  *sdkmetric.ManualReader
	meters  *sdkmetric.MeterProvider
	*telemetry.Telemetry
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, pool: testkit.Database(t), brokers: testkit.Kafka(t), flow: testkit.Flow(t)}
	s.hop = topics.MustHop(s.flow, "payment")
	var err error
	s.client, err = kafka.NewClient(s.brokers)
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	s.spans, s.reader = tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	s.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))
	s.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
	s.Telemetry, err = telemetry.New(telemetry.Config{Meters: s.meters, Tracers: s.tracers})
	require.NoError(t, err)
	return s
}

func (s *stage) provision(names ...string) {
	s.t.Helper()
	for _, name := range names {
		require.NoError(s.t, kafka.Provision(s.t.Context(), s.client, kafka.Topic{Name: name, Partitions: 1}))
	}
}

// participant returns a participant of hop, with telemetry.
func (s *stage) participant(hop topics.Hop, change ...func(*participant.Config)) *participant.Participant {
	s.provision(hop.Commands(), hop.Events(), hop.DeadLetters())
	cfg := participant.Config{
		Pool: s.pool, Brokers: s.brokers, Hop: hop, Partitions: 1, Log: testkit.Logger(s.t),
		Retry: retry.Policy{Initial: 10 * time.Millisecond, Cap: 20 * time.Millisecond, Attempts: 3}, Immediate: -1,
	}
	for _, c := range change {
		c(&cfg)
	}
	p, err := participant.New(s.Instrument(cfg))
	require.NoError(s.t, err)
	require.NoError(s.t, s.Observe(p))
	return p
}

// charge behaves as the command's Fail says.
func charge(_ context.Context, _ pgx.Tx, c participant.Command[Charge]) (participant.Outcome, error) {
	switch c.Body.Fail {
	case "refuse":
		return participant.Refuse(Declined{}), nil
	case "once":
		if c.Attempt > 1 {
			break
		}
		return participant.Outcome{}, errAsked
	case "error":
		return participant.Outcome{}, errAsked
	case "permanent":
		return participant.Outcome{}, retry.Permanent(errAsked)
	}
	return participant.Succeed(Charged{}), nil
}

func (s *stage) run(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(s.t, <-ended)
	})
	s.t.Cleanup(stop)
	return stop
}

func (s *stage) relay() {
	r, err := relay.New(relay.Config{
		Source: relay.Poll,
		Pool:   s.pool, Brokers: s.brokers, Service: "shop", Log: testkit.Logger(s.t),
		Interval: 20 * time.Millisecond, Lease: 10 * time.Second,
		Hooks: relay.Hooks{Traced: s.RowPublished},
	})
	require.NoError(s.t, err)
	s.run(r.Run)
}

func (s *stage) command(key string, body Charge) envelope.Message {
	payload, err := json.Marshal(body)
	require.NoError(s.t, err)
	return envelope.Message{
		Topic: s.hop.Commands(), Key: []byte(key), Payload: payload, ID: envelope.NewID(), Type: "Charge", Source: "test",
		ContentType: envelope.JSON, CorrelationID: "flow-" + key,
	}
}

func (s *stage) send(messages ...envelope.Message) {
	s.t.Helper()
	records := make([]*kgo.Record, len(messages))
	for i, m := range messages {
		records[i] = kafka.Record(m)
	}
	require.NoError(s.t, s.client.ProduceSync(s.t.Context(), records...).FirstErr())
}

func (s *stage) waitCount(want int, sql string, args ...any) {
	s.t.Helper()
	testkit.Wait(s.t, sql, func() (bool, error) {
		var n int
		err := s.pool.QueryRow(s.t.Context(), sql, args...).Scan(&n)
		return n == want, err
	})
}
