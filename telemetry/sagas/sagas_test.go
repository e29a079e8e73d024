package sagas_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/troupe-go/troupe/internal/metrics/catalogue"
	"github.com/troupe-go/troupe/internal/moments"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/telemetry/sagas"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var rewrite = flag.Bool("update", false, "rewrite the sagas' section of docs/metrics-reference.md")

// The messages of a trip.
type (
	BookRoom      struct{ Trip string }
	RoomBooked    struct{}
	CancelRoom    struct{ Trip string }
	RoomCancelled struct{}
	BookFlight    struct{ Trip string }
	FlightBooked  struct{}
	FlightRefused struct{}
)

func trip(t *testing.T) *saga.Definition {
	input := saga.Mapping{"Trip": "data.trip"}
	d, err := saga.Define(saga.Spec{
		Saga: "trip", Version: 1, Key: "trip", Data: map[string]saga.Type{"trip": saga.String, "guest": saga.String},
		Steps: []saga.Step{
			{
				Name: "room", Command: &saga.Command{Hop: "hotel", Type: "BookRoom", Input: input},
				Success:      []saga.Answer{{Event: "RoomBooked"}},
				Compensation: &saga.Compensation{Command: &saga.Command{Hop: "hotel", Type: "CancelRoom", Input: input}, Success: []saga.Answer{{Event: "RoomCancelled"}}},
			},
			{
				Name: "flight", Needs: []string{"room"}, Command: &saga.Command{Hop: "hotel", Type: "BookFlight", Input: input},
				Success: []saga.Answer{{Event: "FlightBooked"}}, Failure: []saga.Answer{{Event: "FlightRefused"}},
			},
			{
				Name: "stay", Needs: []string{"flight"}, When: "has(data.guest)", Success: []saga.Answer{
					{Hop: "hotel", Event: "Arrived", By: &saga.Association{Variable: "guest", Field: "guest"}},
				},
			},
		},
	})
	require.NoError(t, err)
	return d
}

// run runs p until the test ends.
func run(t *testing.T, p *participant.Participant) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
}

func local(t *testing.T, pool *pgxpool.Pool, hop topics.Hop) *participant.Participant {
	p, err := participant.New(participant.Config{
		Pool: pool, Hop: hop, Local: true, Immediate: -1, Log: testkit.Logger(t),
		Retry: retry.Policy{Initial: time.Millisecond, Cap: time.Millisecond, Attempts: 2},
	})
	require.NoError(t, err)
	return p
}

// collect reads every metric by name and attributes; of a histogram the count. The error is the database's, which has some
// seconds to answer.
func collect(t *testing.T, reader *sdkmetric.ManualReader, flow string) (map[string]float64, error) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		return nil, err
	}
	values := make(map[string]float64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			require.NotEmpty(t, m.Unit, m.Name)
			require.NotEmpty(t, m.Description, m.Name)
			put := func(set attribute.Set, value float64) {
				var parts []string
				for _, a := range set.ToSlice() {
					if a.Key == "messaging.consumer.group.name" {
						require.Equal(t, flow+".desk", a.Value.String())
						continue
					}
					parts = append(parts, strings.TrimPrefix(string(a.Key), "troupe.")+"="+a.Value.String())
				}
				values[m.Name+"{"+strings.Join(parts, " ")+"}"] = value
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					put(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					put(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					put(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					put(p.Attributes, float64(p.Count))
				}
			default:
				t.Fatalf("%s is a %T", m.Name, data)
			}
		}
	}
	return values, nil
}

// TestEveryMetricHasItsValue checks the values after a run whose outcomes are known: one trip completes, one is refused and
// compensated, one is parked, one waits for its guest; a guest without a trip arrives; and one start gives way to another.
func TestEveryMetricHasItsValue(t *testing.T) {
	t.Parallel()
	pool, flow := testkit.Database(t), testkit.Flow(t)
	hotel := local(t, pool, topics.MustHop(flow, "hotel"))
	participant.Handle(hotel, func(context.Context, pgx.Tx, participant.Command[BookRoom]) (participant.Outcome, error) {
		return participant.Succeed(RoomBooked{}), nil
	})
	participant.Handle(hotel, func(context.Context, pgx.Tx, participant.Command[CancelRoom]) (participant.Outcome, error) {
		return participant.Succeed(RoomCancelled{}), nil
	})
	participant.Handle(hotel, func(_ context.Context, _ pgx.Tx, c participant.Command[BookFlight]) (participant.Outcome, error) {
		switch c.Body.Trip {
		case "refused":
			return participant.Refuse(FlightRefused{}), nil
		case "exhausted":
			return participant.Outcome{}, errors.New("no planes")
		}
		return participant.Succeed(FlightBooked{}), nil
	})
	reader := sdkmetric.NewManualReader()
	m, err := sagas.New(sagas.Config{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	require.NoError(t, err)
	desk := local(t, pool, topics.MustHop(flow, "desk"))
	var told int
	c, err := coordinator.New(t.Context(), m.Instrument(coordinator.Config{
		Participant: desk, Pool: pool, Definitions: []*saga.Definition{trip(t)}, Log: testkit.Logger(t),
		Conflict: func(error) { told++ },
	}))
	require.NoError(t, err)
	require.NoError(t, m.Observe(c))
	run(t, hotel)
	run(t, desk)

	start := func(key, guest string) func(pgx.Tx) error {
		fields := map[string]any{"trip": key}
		if guest != "" {
			fields["guest"] = guest
		}
		return func(tx pgx.Tx) error {
			_, err := c.Start(t.Context(), tx, "trip", fields)
			return err
		}
	}
	for key, guest := range map[string]string{"good": "", "refused": "", "exhausted": "", "long": "ada"} {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, start(key, guest)))
	}
	_, err = pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'bob', 'Arrived', $2)",
		flow+".hotel.events", `{"guest": "bob"}`)
	require.NoError(t, err)
	for id, want := range map[string]string{
		"good": "completed", "refused": "compensated", "exhausted": "parked", "long": "running",
	} {
		testkit.Wait(t, id+" to be "+want, func() (there bool, err error) {
			err = pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM troupe.sagas WHERE id = 'trip/' || $1 AND status = $2 AND version >= 3)",
				id, want).Scan(&there)
			return there, err
		})
	}
	_, err = pool.Exec(t.Context(), `INSERT INTO troupe.schedules (name, cron, zone, topic, type, catch_up, next_at)
		VALUES ('yearly', '0 0 1 1 *', 'UTC', 'reports', 'MakeReport', 1, date_trunc('year', now(), 'UTC'))`)
	require.NoError(t, err)
	// A start that is concurrent with another one.
	first, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer first.Rollback(context.Background())
	require.NoError(t, start("long-2", "eve")(first))
	second := make(chan error, 1)
	go func() { second <- pgx.BeginFunc(t.Context(), pool, start("long-2", "eve")) }()
	testkit.Wait(t, "the second to wait", func() (waits bool, err error) {
		err = pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event = 'advisory' AND query LIKE '%AS hashes%')`).Scan(&waits)
		return waits, err
	})
	require.NoError(t, first.Commit(t.Context()))
	require.ErrorIs(t, <-second, coordinator.ErrConflict)
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, start("long-2", "eve"))) // it exists already
	require.Equal(t, 1, told, "the hook that was there before")

	const want = `troupe.saga.conflicts{} 1
troupe.saga.decisions{saga=trip saga.event=answered saga.ignored=false} 11
troupe.saga.decisions{saga=trip saga.event=started saga.ignored=false} 5
troupe.saga.decisions{saga=trip saga.event=started saga.ignored=true} 1
troupe.saga.duration{saga=trip saga.status=compensated} 1
troupe.saga.duration{saga=trip saga.status=completed} 1
troupe.saga.ended{saga=trip saga.status=compensated} 1
troupe.saga.ended{saga=trip saga.status=completed} 1
troupe.saga.kept{saga=trip} 0
troupe.saga.open{saga=trip saga.status=compensating} 0
troupe.saga.open{saga=trip saga.status=parked} 1
troupe.saga.open{saga=trip saga.status=running} 2
troupe.saga.open{saga=trip saga.status=waiting} 0
troupe.saga.parked{saga=trip} 1
troupe.saga.started{saga=trip} 5
troupe.saga.stashed{saga=trip} 1
troupe.saga.stash{saga=trip} 1
troupe.saga.step.duration{saga=trip saga.operation=compensate saga.step=room saga.step.result=completed} 1
troupe.saga.step.duration{saga=trip saga.operation=forward saga.step=flight saga.step.result=completed} 3
troupe.saga.step.duration{saga=trip saga.operation=forward saga.step=flight saga.step.result=exhausted} 1
troupe.saga.step.duration{saga=trip saga.operation=forward saga.step=flight saga.step.result=refused} 1
troupe.saga.step.duration{saga=trip saga.operation=forward saga.step=room saga.step.result=completed} 5
troupe.schedules.lateness{} 1`
	testkit.Wait(t, "all decisions in the metrics", func() (bool, error) {
		values, err := collect(t, reader, flow)
		if err != nil {
			return false, err
		}
		var lines []string
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if strings.HasPrefix(name, "troupe.saga.oldest.age") {
				open := values[strings.Replace(name, "oldest.age", "open", 1)]
				require.Equal(t, open > 0, values[name] > 0, name)
				continue
			}
			lines = append(lines, fmt.Sprintf("%s %v", name, values[name]))
		}
		got := strings.Join(lines, "\n")
		if got != want {
			return false, fmt.Errorf("it is\n%s", got)
		}
		return true, nil
	})

	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	seen := make(catalogue.Collection)
	seen.Add(t, all)
	catalogue.Section{Title: "Sagas", Page: "../../docs/metrics-reference.md", Metrics: seen.Metrics()}.
		Hold(t, *rewrite, "go test ./telemetry/sagas -run EveryMetricHasItsValue -update")
}

// TestAnEndThatIsToldBeforeItsBeginningIsMeasured: two workers have committed, and the hook of the later decision is called
// first. An end whose beginning another process has seen is not taken for the end of the next attempt.
func TestAnEndThatIsToldBeforeItsBeginningIsMeasured(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	m, err := sagas.New(sagas.Config{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	require.NoError(t, err)
	tell := m.Instrument(coordinator.Config{}).Decided
	at := time.Now()
	decided := func(id, what string, at time.Time) {
		tell(coordinator.Decided{ID: id, At: at, State: saga.State{Saga: "trip"}, Effects: saga.Effects{Moments: []saga.Moment{{What: what, Step: "room"}}}})
	}
	decided("trip/1", moments.StepCompleted, at.Add(3*time.Second))
	decided("trip/1", moments.StepStarted, at)
	decided("trip/2", moments.StepExhausted, at)
	decided("trip/2", moments.StepStarted, at.Add(time.Second))
	decided("trip/2", moments.StepCompleted, at.Add(2*time.Second))
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	var took []float64
	for _, m := range all.ScopeMetrics[0].Metrics {
		if data, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "troupe.saga.step.duration" {
			for _, p := range data.DataPoints {
				took = append(took, float64(p.Count), p.Sum)
			}
		}
	}
	require.Equal(t, []float64{2, 4}, took)
}

// TestARefusedEventIsCountedOnlyAsADecision: an event that concerns two sagas is refused by one of them, which has ended or does not start.
func TestARefusedEventIsCountedOnlyAsADecision(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	m, err := sagas.New(sagas.Config{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	require.NoError(t, err)
	tell := m.Instrument(coordinator.Config{}).Decided
	refused := saga.Effects{Refused: "no"}
	ended := saga.State{Saga: "trip", Version: 3, Status: saga.Completed, StartedAt: time.Unix(1, 0), EndedAt: time.Unix(2, 0)}
	tell(coordinator.Decided{ID: "trip/1", Event: saga.Event{Kind: saga.Answered}, State: ended, Effects: refused})
	tell(coordinator.Decided{ID: "trip/2", Event: saga.Event{Kind: saga.Started}, Effects: refused})
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	var counted []string
	for _, m := range all.ScopeMetrics[0].Metrics {
		counted = append(counted, m.Name)
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			ignored, _ := p.Attributes.Value("troupe.saga.ignored")
			require.True(t, ignored.AsBool())
		}
	}
	require.Equal(t, []string{"troupe.saga.decisions"}, counted)
}

// TestTheDocumentNamesEveryMetric also fails for a metric that does not exist.
func TestTheDocumentNamesEveryMetric(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/observability.md")
	require.NoError(t, err)
	documented := make(map[string]bool)
	for _, row := range regexp.MustCompile("(?m)^\\| (`troupe\\.(?:saga|schedules)\\.[^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			documented[name[1]] = true
		}
	}
	made := make(map[string]bool)
	_, err = sagas.New(sagas.Config{Meters: namesOnly{made: made}})
	require.NoError(t, err)
	require.Equal(t, slices.Sorted(maps.Keys(made)), slices.Sorted(maps.Keys(documented)))
}

// namesOnly records the names of the instruments that are made with it.
type namesOnly struct {
	noop.MeterProvider
	made map[string]bool
}

func (n namesOnly) Meter(string, ...metric.MeterOption) metric.Meter { return namedMeter{made: n.made} }

type namedMeter struct {
	noop.Meter
	made map[string]bool
}

func (n namedMeter) Int64Counter(name string, o ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	n.made[name] = true
	return n.Meter.Int64Counter(name, o...)
}

func (n namedMeter) Float64Histogram(name string, o ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	n.made[name] = true
	return n.Meter.Float64Histogram(name, o...)
}

func (n namedMeter) Int64ObservableGauge(name string, o ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	n.made[name] = true
	return n.Meter.Int64ObservableGauge(name, o...)
}

func (n namedMeter) Float64ObservableGauge(name string, o ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	n.made[name] = true
	return n.Meter.Float64ObservableGauge(name, o...)
}
