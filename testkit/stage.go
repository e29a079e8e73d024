package testkit

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/topics"
)

// endLimit limits the time that a participant may take to end.
const endLimit = 4 * time.Minute

// StageConfig configures a Stage. Handlers is required.
type StageConfig struct {
	// Handlers registers the handlers under test. It is called again whenever the participant is started again, so it must not
	// start anything itself.
	Handlers func(s *Stage, p *participant.Participant)

	// SQL creates the service's tables. It may contain several statements. Default: none.
	SQL string
	// Migrate creates them if a program does that. It gets the URL of the database, after SQL was run. May be nil.
	Migrate func(ctx context.Context, url string) error

	// Hop is the name of the hop. The flow is the test's own. Default: hop.
	Hop string
	// Participant is the service's own configuration: Codec, Retry, Timeout and so on. The stage overwrites Pool, Brokers, Hop,
	// Group and Log. Default of Partitions: 1, so that messages are delivered in the order in which they are sent, across keys
	// too.
	Participant participant.Config
}

// A Stage is a running participant with its own database, topics and group. Call its methods on the test's own goroutine only. A
// method that cannot do its work fails the test.
type Stage struct {
	// Pool connects to the stage's database. It is not the participant's pool, and crashes do not affect it.
	Pool *pgxpool.Pool
	// Hop is the hop under test. For other hops of its flow call topics.MustHop(s.Hop.Flow(), name).
	Hop topics.Hop

	t      testing.TB
	cfg    StageConfig
	client *kgo.Client
	wire   *wire
	run    *running
	sent   map[string]bool // by topic
	fired  map[int64]bool  // positions in the outbox of the messages of deadlines that were sent
}

// NewStage starts a participant and returns when it has joined its group. The test's Cleanup stops it and removes its database, topics
// and group. A participant that does not end then, or ends with an error, fails the test.
func NewStage(t testing.TB, cfg StageConfig) *Stage {
	t.Helper()
	return open(t, cfg, Logger(t))
}

func open(t testing.TB, cfg StageConfig, log zerolog.Logger) *Stage {
	t.Helper()
	require.NotNil(t, cfg.Handlers, "StageConfig without Handlers: set a function that registers them")
	hop, err := topics.NewHop(Flow(t), cmp.Or(cfg.Hop, "hop"))
	require.NoError(t, err)
	s := &Stage{Pool: Database(t), Hop: hop, t: t, cfg: cfg, wire: &wire{}, sent: make(map[string]bool), fired: make(map[int64]bool)}
	// A broker under load takes a while until all brokers know a new topic: 250 ms for each of these retries, and more. No
	// time-out of records: it would count from a record's own time, which may be long ago.
	s.client, err = kafka.NewClient(Kafka(t), kgo.UnknownTopicRetries(200))
	require.NoError(t, err)
	t.Cleanup(s.client.Close)

	config := s.Pool.Config()
	config.ConnConfig.BuildFrontend = s.wire.frontend
	s.cfg.Participant.Pool, err = pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(s.cfg.Participant.Pool.Close)

	s.cfg.Participant.Brokers, s.cfg.Participant.Hop = Kafka(t), hop
	s.cfg.Participant.Group = hop.String()
	s.cfg.Participant.Partitions = cmp.Or(cfg.Participant.Partitions, 1)
	s.cfg.Participant.Log = log
	if s.cfg.Participant.Codec == nil {
		s.cfg.Participant.Codec = envelope.JSONCodec{}
	}
	t.Cleanup(s.stop)
	s.tables()
	s.start()
	return s
}

// tables creates the service's own tables.
func (s *Stage) tables() {
	s.t.Helper()
	_, err := s.Pool.Exec(s.t.Context(), s.cfg.SQL)
	require.NoError(s.t, err, "StageConfig.SQL")
	if s.cfg.Migrate != nil {
		require.NoError(s.t, s.cfg.Migrate(s.t.Context(), DatabaseURL(s.t, s.Pool)), "StageConfig.Migrate")
	}
}

// running is one run of the participant.
type running struct {
	*participant.Participant
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // valid once ended is closed
}

func (s *Stage) start() {
	s.t.Helper()
	p, err := participant.New(s.cfg.Participant)
	require.NoError(s.t, err)
	s.cfg.Handlers(s, p)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Participant: p, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = p.Run(ctx)
	}()
	s.run = r
	s.wait("the participant to be ready", p.Ready)
}

// stop ends the participant as its service would, by ending Run's context. It may be called repeatedly.
func (s *Stage) stop() {
	s.t.Helper()
	if s.run == nil {
		return
	}
	r := s.run
	s.run = nil
	r.cancel()
	select {
	case <-r.ended:
		if r.err != nil {
			s.t.Errorf("the participant ended with: %v", r.err)
		}
	case <-time.After(endLimit):
		s.t.Errorf("the participant still runs %s after it was asked to stop", endLimit)
	}
}

// wait repeats reason until it returns nil. If the participant ends meanwhile, the test fails at once.
func (s *Stage) wait(what string, reason func() error) {
	s.t.Helper()
	var ended bool
	Wait(s.t, what, func() (bool, error) {
		if s.run != nil {
			select {
			case <-s.run.ended:
				ended = true
				return true, nil
			default:
			}
		}
		err := reason()
		if err != nil && s.run != nil {
			err = errors.Join(err, s.run.Ready()) // the participant may know why nothing happens
		}
		return err == nil, err
	})
	if ended {
		s.t.Fatalf("waited for %s, and the participant ended: %v", what, s.run.err)
	}
}
