package telemetry_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/telemetry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// collect reads every metric: by name and attributes, without the common attributes, the value; of a histogram the count.
func (s *stage) collect() (values map[string]float64, sums map[string]float64) {
	s.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(s.t, s.reader.Collect(s.t.Context(), &all))
	values, sums = make(map[string]float64), make(map[string]float64)
	name := func(metric string, set attribute.Set) string {
		var parts []string
		for _, a := range set.ToSlice() {
			value := strings.ReplaceAll(a.Value.String(), s.flow, "F")
			switch a.Key {
			case "messaging.system":
				require.Equal(s.t, "kafka", value)
			case "messaging.consumer.group.name":
				require.Equal(s.t, "F.payment", value)
			default:
				parts = append(parts, string(a.Key)+"="+value)
			}
		}
		return metric + "{" + strings.Join(parts, " ") + "}"
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			require.NotEmpty(s.t, m.Unit, m.Name)
			require.NotEmpty(s.t, m.Description, m.Name)
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				require.True(s.t, data.IsMonotonic, m.Name)
				for _, p := range data.DataPoints {
					values[name(m.Name, p.Attributes)] = float64(p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					values[name(m.Name, p.Attributes)] = float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					values[name(m.Name, p.Attributes)] = p.Value
				}
			case metricdata.Histogram[int64]:
				for _, p := range data.DataPoints {
					values[name(m.Name, p.Attributes)], sums[name(m.Name, p.Attributes)] = float64(p.Count), float64(p.Sum)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					values[name(m.Name, p.Attributes)], sums[name(m.Name, p.Attributes)] = float64(p.Count), p.Sum
				}
			default:
				s.t.Fatalf("%s is a %T", m.Name, data)
			}
		}
	}
	return values, sums
}

func lines(values map[string]float64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, fmt.Sprintf("%s %v", name, values[name]))
	}
	return strings.Join(all, "\n") + "\n"
}

// TestEveryMetricHasItsValue checks the values after a run whose outcomes are known.
func TestEveryMetricHasItsValue(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	other := topics.MustHop(s.flow, "stock")
	s.provision(other.Events())
	p := s.participant(s.hop, func(c *participant.Config) { c.Retry.Attempts = 2 })
	participant.Handle(p, charge)
	participant.On(p, other, func(context.Context, pgx.Tx, participant.Event[Charged]) error { return nil })
	good := s.command("a", Charge{})
	event := func(typ string) envelope.Message {
		m := s.command("e", Charge{})
		m.Topic, m.Type = other.Events(), typ
		return m
	}
	s.send(good, s.command("b", Charge{}), good, s.command("c", Charge{Fail: "refuse"}), s.command("d", Charge{Fail: "once"}),
		s.command("e", Charge{Fail: "error"}), s.command("f", Charge{Fail: "permanent"}), event("Charged"), event("Other"))
	s.run(p.Run)
	s.waitCount(2, "SELECT count(*) FROM troupe.dead_letters")
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	testkit.Wait(t, "all ended", func() (bool, error) {
		stats := p.Stats().Partitions
		return len(stats) == 2 && stats[0].Next == 7 && stats[1].Next == 2 && stats[0].Held == 0 &&
			stats[0].Waiting+stats[0].Running == 0, nil // a run continues for a moment after its key is free
	})
	values, sums := s.collect()
	require.Equal(t, `messaging.client.consumed.messages{messaging.destination.name=F.payment.commands messaging.destination.partition.id=0 messaging.operation.name=poll messaging.operation.type=receive} 7
messaging.client.consumed.messages{messaging.destination.name=F.stock.events messaging.destination.partition.id=0 messaging.operation.name=poll messaging.operation.type=receive} 2
messaging.process.duration{error.type=permanent messaging.destination.name=F.payment.commands messaging.operation.name=process messaging.operation.type=process troupe.handler=F.payment/Charge} 1
messaging.process.duration{error.type=transient messaging.destination.name=F.payment.commands messaging.operation.name=process messaging.operation.type=process troupe.handler=F.payment/Charge} 3
messaging.process.duration{messaging.destination.name=F.payment.commands messaging.operation.name=process messaging.operation.type=process troupe.handler=F.payment/Charge} 4
messaging.process.duration{messaging.destination.name=F.stock.events messaging.operation.name=process messaging.operation.type=process troupe.handler=F.payment/Charged} 1
troupe.attempts.failed{error.type=permanent messaging.destination.name=F.payment.commands troupe.handler=F.payment/Charge} 1
troupe.attempts.failed{error.type=transient messaging.destination.name=F.payment.commands troupe.handler=F.payment/Charge} 3
troupe.attempts{messaging.destination.name=F.payment.commands troupe.handler=F.payment/Charge} 6
troupe.attempts{messaging.destination.name=F.stock.events troupe.handler=F.payment/Charged} 1
troupe.breaker.open{messaging.destination.name=F.payment.commands messaging.destination.partition.id=0} 0
troupe.breaker.open{messaging.destination.name=F.stock.events messaging.destination.partition.id=0} 0
troupe.inflight{messaging.destination.name=F.payment.commands messaging.destination.partition.id=0} 0
troupe.inflight{messaging.destination.name=F.stock.events messaging.destination.partition.id=0} 0
troupe.keys.held{messaging.destination.name=F.payment.commands messaging.destination.partition.id=0} 0
troupe.keys.held{messaging.destination.name=F.stock.events messaging.destination.partition.id=0} 0
troupe.lag.age{messaging.destination.name=F.payment.commands messaging.destination.partition.id=0} 0
troupe.lag.age{messaging.destination.name=F.stock.events messaging.destination.partition.id=0} 0
troupe.lag{messaging.destination.name=F.payment.commands messaging.destination.partition.id=0} 0
troupe.lag{messaging.destination.name=F.stock.events messaging.destination.partition.id=0} 0
troupe.limited{messaging.destination.name=F.payment.commands messaging.destination.partition.id=0} 0
troupe.limited{messaging.destination.name=F.stock.events messaging.destination.partition.id=0} 0
troupe.messages.ended{error.type=permanent messaging.destination.name=F.payment.commands troupe.handler=F.payment/Charge troupe.result=exhausted troupe.source=topic} 1
troupe.messages.ended{error.type=transient messaging.destination.name=F.payment.commands troupe.handler=F.payment/Charge troupe.result=exhausted troupe.source=held} 1
troupe.messages.ended{error.type=transient messaging.destination.name=F.payment.commands troupe.handler=F.payment/Charge troupe.result=held troupe.source=topic} 2
troupe.messages.ended{messaging.destination.name=F.payment.commands troupe.handler=F.payment/Charge troupe.result=failure troupe.source=topic} 1
troupe.messages.ended{messaging.destination.name=F.payment.commands troupe.handler=F.payment/Charge troupe.result=success troupe.source=held} 1
troupe.messages.ended{messaging.destination.name=F.payment.commands troupe.handler=F.payment/Charge troupe.result=success troupe.source=topic} 2
troupe.messages.ended{messaging.destination.name=F.payment.commands troupe.result=duplicate troupe.source=topic} 1
troupe.messages.ended{messaging.destination.name=F.stock.events troupe.handler=F.payment/Charged troupe.result=handled troupe.source=topic} 1
troupe.messages.ended{messaging.destination.name=F.stock.events troupe.result=unhandled troupe.source=topic} 1
troupe.paused{messaging.destination.name=F.payment.commands messaging.destination.partition.id=0} 0
troupe.paused{messaging.destination.name=F.stock.events messaging.destination.partition.id=0} 0
troupe.quarantined{messaging.destination.name=F.payment.commands messaging.destination.partition.id=0} 0
troupe.quarantined{messaging.destination.name=F.stock.events messaging.destination.partition.id=0} 0
troupe.queue.depth{messaging.destination.name=F.payment.commands messaging.destination.partition.id=0} 0
troupe.queue.depth{messaging.destination.name=F.stock.events messaging.destination.partition.id=0} 0
troupe.ready{} 1
troupe.retry_topic.buffered{messaging.destination.name=F.payment.commands messaging.destination.partition.id=0} 0
troupe.retry_topic.buffered{messaging.destination.name=F.stock.events messaging.destination.partition.id=0} 0
troupe.transaction.duration{messaging.destination.name=F.payment.commands troupe.committed=false} 4
troupe.transaction.duration{messaging.destination.name=F.payment.commands troupe.committed=true} 4
troupe.transaction.duration{messaging.destination.name=F.stock.events troupe.committed=true} 1
troupe.transaction.messages{messaging.destination.name=F.payment.commands troupe.committed=false} 4
troupe.transaction.messages{messaging.destination.name=F.payment.commands troupe.committed=true} 4
troupe.transaction.messages{messaging.destination.name=F.stock.events troupe.committed=true} 1
`, lines(values))
	const command = "{messaging.destination.name=F.payment.commands troupe.handler=F.payment/Charge}"
	require.EqualValues(t, 2+1+2+2+1, sums["troupe.attempts"+command], "four once, two twice")
	ended := func(from string) (n float64) {
		for name, value := range values {
			if strings.HasPrefix(name, "troupe.messages.ended") && strings.Contains(name, "troupe.source="+from) {
				n += value
			}
		}
		return n
	}
	require.EqualValues(t, 9, ended("topic"), "as many as were consumed")
	require.EqualValues(t, 2, ended("held"), "as many as were held")
}

// TestGaugesSayWhatIsAt checks the gauges while a dependency is away, keys are held and messages wait.
func TestGaugesSayWhatIsAt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.participant(s.hop, func(c *participant.Config) {
		c.Retry = retry.Policy{Initial: time.Hour, Cap: time.Hour, NoJitter: true}
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Charge]) (participant.Outcome, error) {
		if c.Body.Fail == "away" {
			return participant.Outcome{}, retry.Unavailable("the bank", errAsked)
		}
		return charge(ctx, tx, c)
	})
	at := "{messaging.destination.name=F.payment.commands messaging.destination.partition.id=0"
	s.run(p.Run)
	s.send(s.command("h", Charge{Fail: "error"}))
	testkit.Wait(t, "held", func() (bool, error) { values, _ := s.collect(); return values["troupe.keys.held"+at+"}"] == 1, nil })
	s.send(s.command("a", Charge{Fail: "away"}), s.command("b", Charge{}), s.command("c", Charge{}))
	away := at + " troupe.dependency=the bank}"
	testkit.Wait(t, "the breaker", func() (bool, error) { // a run that had begun before may close it once more
		values, _ := s.collect()
		return values["troupe.breaker.open"+away] == 1 && values["troupe.breaker.opened"+away] > 0 && values["troupe.ready{}"] == 0 &&
			values["troupe.lag"+at+"}"] > 0 && values["troupe.lag.age"+at+"}"] > 0 &&
			values["troupe.inflight"+at+"}"]+values["troupe.queue.depth"+at+"}"] > 0, nil
	})
}

// TestNamesThatAreMadeUpBecomeNoTimeSeries limits the names of dependencies.
func TestNamesThatAreMadeUpBecomeNoTimeSeries(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cfg := s.Instrument(participant.Config{Group: "g", Hop: s.hop})
	for n := range 1000 {
		cfg.Hooks.Breaker(participant.Breaker{Topic: "t", What: fmt.Sprint("dependency ", n), Err: errAsked})
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, s.reader.Collect(t.Context(), &all))
	points := all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64]).DataPoints
	require.Len(t, points, 21)
}

// TestTheDocumentNamesEveryMetric also fails for a metric that does not exist.
func TestTheDocumentNamesEveryMetric(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	others := regexp.MustCompile(`^troupe\.(saga|schedules|watch)\.`) // of telemetry/sagas and internal/flow/telemetry
	documented := make(map[string]bool)
	for _, row := range regexp.MustCompile("(?m)^\\| (`(?:messaging|troupe)\\.[^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			if !others.MatchString(name[1]) {
				documented[name[1]] = true
			}
		}
	}
	made := make(map[string]bool)
	_, err = telemetry.New(telemetry.Config{Meters: namesOnly{made: made}})
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

func (n namedMeter) Int64Histogram(name string, o ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	n.made[name] = true
	return n.Meter.Int64Histogram(name, o...)
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

// TestStrandedMessagesAreAMetric checks held messages of a topic that the group does not consume.
func TestStrandedMessagesAreAMetric(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.participant(s.hop)
	participant.Handle(p, charge)
	s.strand(p.Group())
	s.run(p.Run)
	testkit.Wait(t, "the look", func() (bool, error) { return len(p.Stats().Stranded) == 2, nil })
	values, _ := s.collect()
	require.EqualValues(t, 2, values["troupe.stranded{messaging.destination.name=F.gone.events}"])
}

// strand inserts two held messages of a topic that the group does not consume.
func (s *stage) strand(group string) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), `INSERT INTO troupe.held (consumer_group, topic, topic_id, partition, "offset", hold_key, headers, message_time, max_attempts)
		SELECT $1, $2, troupe.uuidv7(), n, 1, '', '', now(), 4 FROM generate_series(0, 1) AS n`, group, s.flow+".gone.events")
	require.NoError(s.t, err)
}
