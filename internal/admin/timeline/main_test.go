package timeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/timeline"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/internal/short"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func TestMain(m *testing.M) {
	short.Only(
		"ExampleRead", "TestAFlowIsShownOverAllHopsByKeyAndById", "TestBadConfigurationsAreRefused",
	)
	testkit.Main(m)
}

// Charge is the command to the payment hop. Do selects the answer: Charged, a refusal, or an error.
type Charge struct {
	Do string `json:"do,omitempty"`
}

type Charged struct{}

type Refused struct {
	Reason string `json:"reason"`
}

// Ship is the command that the shipping hop sends to itself after a Charged.
type Ship struct{}

type Shipped struct{}

// stage is a flow of three hops. The order hop only writes; payment answers Charge; shipping reacts to Charged by sending itself
// a Ship, and answers that.
type stage struct {
	t                        *testing.T
	flow                     string
	order, payment, shipping *pgxpool.Pool
	client                   *kgo.Client
	out                      *outbox.Outbox
}

func newStage(t *testing.T) *stage {
	s := &stage{
		t: t, flow: testkit.Flow(t), order: testkit.Database(t), payment: testkit.Database(t), shipping: testkit.Database(t),
	}
	var err error
	s.client, err = kafka.NewClient(testkit.Kafka(t), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	s.out, err = outbox.New(outbox.Config{})
	require.NoError(t, err)
	return s
}

func (s *stage) hop(name string) topics.Hop { return topics.MustHop(s.flow, name) }

// config configures all sources.
func (s *stage) config() timeline.Config {
	return timeline.Config{
		Databases: []timeline.Database{{Name: "order", Pool: s.order}, {Name: "payment", Pool: s.payment}, {Name: "shipping", Pool: s.shipping}},
		Brokers:   testkit.Kafka(s.t), Flow: s.flow, Timeout: time.Minute,
	}
}

func (s *stage) read(subject string, change ...func(*timeline.Config)) *timeline.Timeline {
	s.t.Helper()
	cfg := s.config()
	for _, c := range change {
		c(&cfg)
	}
	t, err := timeline.Read(s.t.Context(), cfg, subject)
	require.NoError(s.t, err)
	return t
}

// until reads again until want holds and every source was read.
func (s *stage) until(subject string, want func(*timeline.Timeline) bool) (t *timeline.Timeline) {
	s.t.Helper()
	testkit.Wait(s.t, "the timeline of "+subject, func() (bool, error) {
		t = s.read(subject)
		text, err := json.MarshalIndent(t, "", " ")
		if err == nil && (!want(t) || len(t.Unseen) > 0) {
			err = errors.New(string(text))
		}
		return err == nil, err
	})
	return t
}

// place writes a command with its row, as a service does, and returns its id.
func (s *stage) place(key string, body any) string {
	s.t.Helper()
	return s.write(s.hop("payment").Commands(), key, body)
}

func (s *stage) write(topic, key string, body any) string {
	s.t.Helper()
	id := envelope.NewID()
	require.NoError(s.t, pgx.BeginFunc(s.t.Context(), s.order, func(tx pgx.Tx) error {
		e := outbox.Entry{Topic: topic, Key: key, Body: body}
		e.ID = id
		return s.out.Write(s.t.Context(), tx, e)
	}))
	return id
}

// produce writes records to the partitions that they name.
func (s *stage) produce(records ...*kgo.Record) {
	s.t.Helper()
	require.NoError(s.t, s.client.ProduceSync(s.t.Context(), records...).FirstErr())
}

func (s *stage) provision(topic string, partitions int32) {
	s.t.Helper()
	require.NoError(s.t, kafka.Provision(s.t.Context(), s.client, kafka.Topic{Name: topic, Partitions: partitions}))
}

// relays runs a relay for each database until the test ends.
func (s *stage) relays(change ...func(*relay.Config)) {
	for name, pool := range map[string]*pgxpool.Pool{"order": s.order, "payment": s.payment, "shipping": s.shipping} {
		cfg := relay.Config{Source: relay.Poll, Pool: pool, Brokers: testkit.Kafka(s.t), Service: name, Log: testkit.Logger(s.t)}
		for _, c := range change {
			c(&cfg)
		}
		r, err := relay.New(cfg)
		require.NoError(s.t, err)
		s.start(r.Run)
	}
}

func (s *stage) start(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(s.t, <-result)
		})
	}
	s.t.Cleanup(stop)
	return stop
}

// caughtUp waits until a hop has committed all of its messages: a commit during its stop may fail.
func (s *stage) caughtUp(hop string) {
	s.t.Helper()
	group := s.hop(hop).String()
	testkit.Wait(s.t, group+" to have committed all", func() (bool, error) {
		lags, err := kadm.NewClient(s.client).Lag(s.t.Context(), group)
		if err == nil {
			err = lags.Error()
		}
		if lag := lags[group].Lag.Total(); lag > 0 {
			err = fmt.Errorf("%d to go", lag)
		}
		return err == nil, err
	})
}

func (s *stage) participant(name string, pool *pgxpool.Pool) *participant.Participant {
	p, err := participant.New(participant.Config{
		Pool: pool, Brokers: testkit.Kafka(s.t), Hop: s.hop(name), Partitions: 3, Log: testkit.Logger(s.t),
		Retry: retry.Policy{Initial: time.Hour, Cap: time.Hour, Attempts: 8, NoJitter: true},
	})
	require.NoError(s.t, err)
	return p
}

func (s *stage) payments() (stop func()) {
	p := s.participant("payment", s.payment)
	participant.Handle(p, func(_ context.Context, _ pgx.Tx, c participant.Command[Charge]) (participant.Outcome, error) {
		switch c.Body.Do {
		case "refuse":
			return participant.Refuse(Refused{"credit limit"}), nil
		case "fail":
			return participant.Outcome{}, errors.New("the bank is closed")
		case "give up":
			return participant.Outcome{}, retry.Permanent(errors.New("no such account"))
		}
		return participant.Succeed(Charged{}), nil
	})
	return s.start(p.Run)
}

// unordered runs a payment hop that fails every Charge and puts it on a retry topic.
func (s *stage) unordered() (stop func()) {
	p := s.participant("payment", s.payment)
	participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[Charge]) (participant.Outcome, error) {
		return participant.Outcome{}, errors.New("the bank is closed")
	}, participant.RetryTopics(time.Second, 2*time.Hour))
	return s.start(p.Run)
}

func (s *stage) shippings() (stop func()) {
	p := s.participant("shipping", s.shipping)
	participant.On(p, s.hop("payment"), func(ctx context.Context, tx pgx.Tx, e participant.Event[Charged]) error {
		return s.out.Write(ctx, tx, outbox.Entry{Topic: s.hop("shipping").Commands(), Key: string(e.Message.Key), Body: Ship{}})
	})
	participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[Ship]) (participant.Outcome, error) {
		return participant.Succeed(Shipped{}), nil
	})
	return s.start(p.Run)
}

// lines returns kind, type, outcome and the index of the cause of each entry.
func lines(t *timeline.Timeline) (all []line) {
	for _, e := range t.Entries {
		all = append(all, line{e.Kind, e.Type, e.Outcome, e.Cause})
	}
	return all
}

type line struct {
	kind    timeline.Kind
	typ     string
	outcome envelope.Outcome
	cause   int
}

func texts(t *timeline.Timeline) (all []string) {
	for _, f := range t.Findings {
		all = append(all, f.Text)
	}
	return all
}
