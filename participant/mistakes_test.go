package participant_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func TestMistakesEndRunBeforeItStarts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for name, c := range map[string]struct {
		register func(*participant.Participant)
		want     string
	}{
		"no handlers":      {func(*participant.Participant) {}, "no handlers"},
		"two for one type": {func(p *participant.Participant) { participant.Handle(p, count); participant.Handle(p, count) }, "two handlers for Count"},
		"a type without a name": {func(p *participant.Participant) {
			participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[struct{}]) (participant.Outcome, error) {
				return participant.Outcome{}, nil
			})
		}, "no name"},
		"a pointer to a pointer": {func(p *participant.Participant) {
			participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[**Count]) (participant.Outcome, error) {
				return participant.Outcome{}, nil
			})
		}, "no pointer"},
		"events of no hop": {func(p *participant.Participant) {
			participant.On(p, topics.Hop{}, func(context.Context, pgx.Tx, participant.Event[Counted]) error { return nil })
		}, "events of no hop"},
		"all events and some": {func(p *participant.Participant) {
			participant.OnAll(p, []topics.Hop{s.hop}, all)
			participant.On(p, s.hop, func(context.Context, pgx.Tx, participant.Event[Counted]) error { return nil })
		}, "two handlers for Counted on " + s.hop.Events()},
		"some events and all": {func(p *participant.Participant) {
			participant.On(p, s.hop, func(context.Context, pgx.Tx, participant.Event[Counted]) error { return nil })
			participant.OnAll(p, []topics.Hop{s.hop}, all)
		}, "two handlers for Counted on " + s.hop.Events()},
		"all events twice":      {func(p *participant.Participant) { participant.OnAll(p, []topics.Hop{s.hop, s.hop}, all) }, "two handlers for all types"},
		"all events of no hop":  {func(p *participant.Participant) { participant.OnAll(p, []topics.Hop{{}}, all) }, "events of no hop"},
		"all events of nothing": {func(p *participant.Participant) { participant.OnAll(p, nil, all) }, "events of no hop"},
	} {
		p := s.new()
		c.register(p)
		require.ErrorContains(t, p.Run(t.Context()), c.want, name)
	}
}

func all(context.Context, pgx.Tx, []participant.Taken) error { return nil }

func TestAHandlerThatComesLateEndsRun(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new()
	participant.Handle(p, count)
	_, ended := s.run(p)
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
	participant.On(p, s.hop, func(context.Context, pgx.Tx, participant.Event[Counted]) error { return nil })
	require.ErrorContains(t, <-ended, "after Run")
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for name, spoil := range map[string]func(*participant.Config){
		"pool":       func(c *participant.Config) { c.Pool = nil },
		"brokers":    func(c *participant.Config) { c.Brokers = nil },
		"Local":      func(c *participant.Config) { c.Local = true },
		"stale":      func(c *participant.Config) { c.Stale = -1 },
		"hop":        func(c *participant.Config) { c.Hop = topics.Hop{} },
		"timeout":    func(c *participant.Config) { c.Timeout = -1 },
		"partitions": func(c *participant.Config) { c.Partitions = -1 },
		"barrier":    func(c *participant.Config) { c.BarrierRetention = time.Hour },
		"initial":    func(c *participant.Config) { c.Retry = retry.Policy{Initial: -1} },
	} {
		cfg := s.config()
		spoil(&cfg)
		_, err := participant.New(cfg)
		require.ErrorContains(t, err, name)
	}
}

// TestEveryFieldOfConfigSurvives checks new fields too.
func TestEveryFieldOfConfigSurvives(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	want := s.config()
	want.Group, want.Codec, want.Source, want.Immediate = "g", envelope.JSONCodec{}, "s", 7
	want.Timeout, want.Drain, want.InboxRetention, want.Replicas = 1, 2, 3, 4
	want.BarrierRetention = 5 * time.Hour
	want.UnknownTypeWait, want.RateLimitedWait = 8, 9
	want.Stale = 7 // and not Local, which excludes Brokers
	want.Batch, want.Concurrency, want.SpringHeaders, want.ConnectHeaders = 5, 6, true, true
	want.Hooks.BeforeHandler = func(participant.Delivery) {}
	want.Trace = func(context.Context) (string, string) { return "", "" }
	got, err := participant.WithDefaults(want)
	require.NoError(t, err)
	before, after := reflect.ValueOf(want), reflect.ValueOf(got)
	for i := range before.NumField() {
		name := before.Type().Field(i).Name
		require.False(t, before.Field(i).IsZero() && name != "Codec" && name != "Local", "%s: this test does not set it", name)
		if name != "Kafka" && name != "Hooks" && name != "Trace" && name != "Log" {
			require.Equal(t, before.Field(i).Interface(), after.Field(i).Interface(), name)
		}
		require.Equal(t, before.Field(i).IsZero(), after.Field(i).IsZero(), name)
	}
}

// TestStatementsFitTheSchema prepares each embedded statement.
func TestStatementsFitTheSchema(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	files, err := filepath.Glob("sql/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		sql, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn.Conn(), string(text), nil)
		require.NoError(t, err)
		_, err = conn.Conn().Prepare(t.Context(), name, sql)
		require.NoError(t, err, name)
	}
}

func TestTheInboxForgets(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, err := s.pool.Exec(t.Context(), `
		INSERT INTO troupe.inbox (consumer_group, message_id, handled_at)
		SELECT g, n::text, now() - make_interval(hours => n) FROM generate_series(1, 3000) AS n, (VALUES ($1), ('other')) AS v (g)`, s.hop.String())
	require.NoError(t, err)
	p := s.new(func(c *participant.Config) { c.InboxRetention = 10*time.Hour + time.Minute })
	require.NoError(t, p.PruneInbox())
	require.Equal(t, 10, s.count("SELECT count(*) FROM troupe.inbox WHERE consumer_group <> 'other'"))
	require.Equal(t, 3000, s.count("SELECT count(*) FROM troupe.inbox WHERE consumer_group = 'other'"), "another group's rows are its own")
}

func TestHooksAreToldEverything(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	told := make(chan string, 100)
	p := s.new(onePartition, func(c *participant.Config) {
		c.Retry.Attempts = 2
		c.Hooks = participant.Hooks{
			Fetched: func(_ string, _ int32, n int) { told <- fmt.Sprint("fetched ", n) },
			Transaction: func(ctx context.Context, ds []participant.Delivery) (context.Context, func(error)) {
				told <- fmt.Sprint("transaction of ", len(ds))
				return ctx, func(err error) { told <- fmt.Sprint("transaction ended: ", err) }
			},
			Handler: func(ctx context.Context, d participant.Delivery) (context.Context, func(participant.Delivery)) {
				told <- "handler"
				return ctx, func(d participant.Delivery) { told <- fmt.Sprintf("handler ended: %s%s", d.Outcome, d.Class) }
			},
			Held:          func(d participant.Delivery) { told <- "held " + string(d.Class) },
			Passed:        func(d participant.Passed) { told <- "passed " + d.Reason },
			Breaker:       func(b participant.Breaker) { told <- fmt.Sprintf("breaker of %s: %v", b.What, b.Err) },
			BeforeHandler: func(participant.Delivery) { told <- "before handler" },
			BeforeCommit:  func(d participant.Delivery) { told <- "before commit " + string(d.Outcome) },
			AfterCommit: func(d participant.Delivery) {
				told <- strings.TrimSpace("after commit " + string(d.Outcome) + " " + string(d.Class))
			},
			Failed: func(d participant.Delivery) { told <- "failed " + string(d.Class) },
			Late:   func(participant.Delivery) {},
			Fired:  func(participant.Fired) {},
			BeforeOffsets: func(o map[string]map[int32]int64) {
				if o[s.hop.Commands()][0] == 3 {
					told <- "before offsets"
				}
			},
			AfterOffsets: func(o map[string]map[int32]int64) {
				if o[s.hop.Commands()][0] == 3 {
					told <- "after offsets"
				}
			},
		}
		hooks := reflect.ValueOf(c.Hooks)
		for i := range hooks.NumField() {
			require.False(t, hooks.Field(i).IsNil(), "a hook that this test does not know")
		}
	})
	away := true
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if away {
			away = false
			return participant.Outcome{}, retry.Unavailable("the bank", errAsked)
		}
		return count(ctx, tx, c)
	})
	s.provision(1)
	first := s.command("a", Count{N: 1})
	s.send(first, s.command("a", Count{N: 2, Fail: "error"}), first)
	s.start(p)
	var got, offsets []string
	for len(offsets) < 2 || !slices.Contains(got, "passed duplicate") {
		if what := <-told; strings.HasSuffix(what, "offsets") {
			offsets = append(offsets, what)
		} else {
			got = append(got, what)
		}
	}
	require.Equal(t, []string{
		"fetched 3",
		"transaction of 1", "handler", "before handler", "handler ended: ", "transaction ended: as asked",
		"breaker of the bank: as asked",
		"transaction of 1", "handler", "before handler", "before commit success", "after commit success",
		"handler ended: success", "transaction ended: <nil>",
		"breaker of the bank: <nil>",
		"transaction of 1", "handler", "before handler", "handler ended: transient", "transaction ended: as asked",
		"failed transient", "held transient", "held ",
		"transaction of 1", "handler", "before handler", "handler ended: transient", "transaction ended: as asked",
		"before commit exhausted", "after commit exhausted transient",
		"passed duplicate",
	}, got)
	require.Equal(t, []string{"before offsets", "after offsets"}, offsets)
	require.EqualValues(t, 3, s.committed(0))
}

// TestABatchThatUnpacksToTooMuchStopsItsPartitionOnly checks that none of it can be read, and none is skipped.
func TestABatchThatUnpacksToTooMuchStopsItsPartitionOnly(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(2)
	p := s.new(func(c *participant.Config) { c.Kafka = append(c.Kafka, kgo.MaxDecompressBatchBytes(1<<20)) })
	participant.Handle(p, count)
	s.start(p)
	bomber, err := kafka.NewClient(s.brokers, kgo.ProducerBatchMaxBytes(4<<20), kgo.ProducerBatchCompression(kgo.GzipCompression()))
	require.NoError(t, err)
	defer bomber.Close()
	keys := s.keys(2)
	bomb := s.command(keys[0], Count{N: 1})
	bomb.Payload = make([]byte, 2<<20)
	require.NoError(t, bomber.ProduceSync(t.Context(), kafka.Record(bomb)).FirstErr())
	var why error
	testkit.Wait(t, "a stalled partition", func() (bool, error) {
		why = p.Ready()
		return why != nil && strings.Contains(why.Error(), "/0 cannot be read"), nil
	})
	require.ErrorIs(t, why, kgo.ErrMaxDecompress)
	s.send(s.command(keys[0], Count{N: 2}), s.command(keys[1], Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM done")
	require.Equal(t, 1, s.count("SELECT count(*) FROM done WHERE key = $1", keys[1]))
}

func TestAnInboxThatForgetsBeforeItsTopicIsSaid(t *testing.T) {
	t.Parallel()
	for retention, warned := range map[string]bool{"-1": true, "86400000": false, "691200000": true} {
		s := newStage(t)
		require.NoError(t, kafka.Provision(t.Context(), s.client,
			kafka.Topic{Name: s.hop.Commands(), Partitions: 1, Config: map[string]string{"retention.ms": retention}}))
		testkit.Topics(t, s.client, 1, s.hop.Commands())
		var log safeBuffer
		p := s.new(func(c *participant.Config) { c.Log = zerolog.New(&log) })
		participant.Handle(p, count)
		stop := s.start(p)
		testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
		stop()
		require.Equal(t, warned, strings.Contains(log.String(), "longer than the inbox remembers them"), "%s: %s", retention, log.String())
	}
}
