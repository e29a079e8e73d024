package participant_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// TestDeadlinesWaitForNoPartitionThatCannotBeRead blocks a partition that the group has consumed before, and one of a topic
// that it begins to consume, which may have the messages of months. Deadlines that wait for the messages that came before are
// fired nevertheless.
func TestDeadlinesWaitForNoPartitionThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit   time.Duration
		message func(s *stage) envelope.Message
	}{
		"a partition that cannot be read": {time.Millisecond, func(s *stage) envelope.Message { return s.command("a", Count{N: 2}) }},
		"a topic that is new to the group": {time.Hour, func(s *stage) envelope.Message {
			m := s.command("a", Count{N: 2})
			m.Topic, m.Outcome = topics.MustHop(s.hop.Flow(), "other").Events(), envelope.Success
			testkit.Topics(s.t, s.client, 1, m.Topic)
			return m
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDeadlineStage(t)
			s.provision(1)
			stop := s.start(s.expecting())
			s.send(s.command("a", Count{N: 1}))
			s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 0", s.hop.Commands())
			stop()

			began, may := make(chan struct{}, 10), make(chan struct{})
			wait := func(ctx context.Context) error {
				began <- struct{}{}
				select {
				case <-may:
				case <-ctx.Done():
				}
				return ctx.Err()
			}
			p := s.new(onePartition)
			p.BacklogLimit(test.limit)
			participant.OnDeadline(p, overdueName, overdue)
			p.Extension().FireAfterBacklog(overdueName)
			participant.Handle(p, func(ctx context.Context, _ pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
				return participant.Succeed(Counted{}), wait(ctx)
			})
			participant.On(p, topics.MustHop(s.hop.Flow(), "other"), func(ctx context.Context, _ pgx.Tx, _ participant.Event[Count]) error { return wait(ctx) })
			require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "b", Body: Overdue{N: 1}, At: time.Now().Add(-time.Hour)}))
			s.send(test.message(s))
			s.start(p)
			<-began
			s.fired(1)
			close(may)
		})
	}
}

// TestDeadlinesWaitForThePartitionsOfABrokerThatDoesNotAnswer: one of two brokers does not say where its partition ends when the member begins, as
// while it starts. The message that came before waits in that partition.
func TestDeadlinesWaitForThePartitionsOfABrokerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.DataDir(t.TempDir()))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	s := newDeadlineStage(t)
	s.brokers = cluster.ListenAddrs()
	s.client, err = kafka.NewClient(s.brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	s.provision(2)
	send := func(partition int32) {
		r := kafka.Record(s.command("a", Count{N: 1}))
		r.Partition = partition
		s.produce(r)
	}
	for partition := range int32(2) {
		require.NoError(t, cluster.MoveTopicPartition(s.hop.Commands(), partition, partition))
	}
	stop := s.start(s.expecting())
	send(0)
	send(1)
	s.waitCount(2, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 0", s.hop.Commands())
	stop()

	var mute atomic.Bool
	var asked atomic.Int64
	cluster.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if !mute.Load() || cluster.CurrentNode() != 1 {
			return nil, nil, false
		}
		asked.Add(1)
		return nil, errors.New("away"), true
	})
	began, may := make(chan struct{}, 10), make(chan struct{})
	p := s.new(onePartition, func(c *participant.Config) { c.Kafka = append(c.Kafka, kgo.RetryTimeout(time.Second)) })
	p.BacklogLimit(time.Hour)
	participant.OnDeadline(p, overdueName, overdue)
	p.Extension().FireAfterBacklog(overdueName)
	participant.Handle(p, func(ctx context.Context, _ pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
		began <- struct{}{}
		select {
		case <-may:
		case <-ctx.Done():
		}
		return participant.Succeed(Counted{}), ctx.Err()
	})
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "b", Body: Overdue{N: 1}, At: time.Now().Add(-time.Hour)}))
	send(1)
	mute.Store(true)
	s.start(p)
	<-began
	fired := func() bool {
		return s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Commands()) > 0
	}
	testkit.Wait(t, "the deadline, or several questions to the broker", func() (bool, error) { return fired() || asked.Load() >= 30, nil })
	require.False(t, fired(), "the message that came before is being handled")
	mute.Store(false)
	close(may)
	s.fired(1)
}

// TestDeadlinesWaitForTheMessagesOfATopicThatWasCreatedAgain: the topic was deleted and created again while no member ran. It has fewer messages
// than the group had handled of its predecessor.
func TestDeadlinesWaitForTheMessagesOfATopicThatWasCreatedAgain(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	s.provision(1)
	stop := s.start(s.expecting())
	s.send(s.command("a", Count{N: 1}), s.command("a", Count{N: 2}), s.command("a", Count{N: 3}))
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 2", s.hop.Commands())
	stop()
	(&projection{stage: s}).createAgain(s.hop.Commands())

	began, may := make(chan struct{}, 10), make(chan struct{})
	var log safeBuffer
	p := s.new(onePartition, func(c *participant.Config) { c.Log = zerolog.New(&log) })
	p.BacklogLimit(time.Hour)
	participant.OnDeadline(p, overdueName, overdue)
	p.Extension().FireAfterBacklog(overdueName)
	participant.Handle(p, func(ctx context.Context, _ pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
		began <- struct{}{}
		select {
		case <-may:
		case <-ctx.Done():
		}
		return participant.Succeed(Counted{}), ctx.Err()
	})
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "b", Body: Overdue{N: 1}, At: time.Now().Add(-time.Hour)}))
	s.send(s.command("a", Count{N: 4}))
	s.start(p)
	<-began
	const fired = "SELECT count(*) FROM troupe.deadlines WHERE fired_at IS NOT NULL"
	waitFor(t, "the deadline, or the line that it waits", func() bool {
		return s.count(fired) > 0 || strings.Contains(log.String(), "deadlines that report missing messages wait")
	})
	require.Zero(t, s.count(fired), "the message that came before is being handled")
	close(may)
	s.fired(1)
}

// TestDeadlinesWaitForNoLocalEntryBehindOneThatWaitsForItsNextTry: an entry waits for its next try in an hour when the member begins, and the
// next one of its key behind it.
func TestDeadlinesWaitForNoLocalEntryBehindOneThatWaitsForItsNextTry(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	_, err := s.pool.Exec(t.Context(), metTable)
	require.NoError(t, err)
	hourly := func(c *participant.Config) { c.Retry = retry.Policy{Initial: time.Hour, Cap: time.Hour, Attempts: 4} }
	member := func() *participant.Participant {
		p := s.new(hourly)
		p.BacklogLimit(time.Hour)
		participant.OnDeadline(p, overdueName, overdue)
		p.Extension().FireAfterBacklog(overdueName)
		participant.Handle(p, func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
			return participant.Outcome{}, errAsked
		})
		return p
	}
	s.makeLocal()
	s.write("a", Count{N: 1})
	stop := s.start(member())
	s.waitCount(1, "SELECT count(*) FROM troupe.local_work WHERE next_try IS NOT NULL")
	s.write("a", Count{N: 2})
	stop()
	p := member()
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "b", Body: Overdue{N: 1}, At: time.Now().Add(-time.Hour)}))
	s.start(p)
	s.waitMet(1)
}

// TestDeadlinesWaitForMessagesThatCameWhileTheDatabaseWasAway: a member runs, and its database is away when a deadline is due. The message that
// came before is being handled when the database is back.
func TestDeadlinesWaitForMessagesThatCameWhileTheDatabaseWasAway(t *testing.T) {
	t.Parallel()
	const looks = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%FROM troupe.deadlines%'"
	const fakeServer = "CREATE TABLE server (began timestamptz); INSERT INTO server SELECT pg_catalog.pg_postmaster_start_time(); " +
		"CREATE FUNCTION pg_postmaster_start_time() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT began FROM server'"
	for name, away := range map[string]func(s *stage, tx pgx.Tx){
		"a connection breaks": func(s *stage, tx pgx.Tx) {
			s.waitCount(1, "SELECT count(*) "+looks)
			_, err := tx.Exec(t.Context(), "SELECT pg_terminate_backend(pid) "+looks)
			require.NoError(t, err)
		},
		"a pooler keeps the statement": func(s *stage, _ pgx.Tx) {
			s.waitCount(1, "SELECT count(*) "+looks+" AND query_start < now() - interval '1100 ms'")
		},
		"another server answers": func(s *stage, tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), "UPDATE public.server SET began = began + interval '1 second'")
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDeadlineStage(t)
			_, err := s.pool.Exec(t.Context(), fakeServer)
			require.NoError(t, err)
			s.provision(1)
			began, may := make(chan struct{}, 10), make(chan struct{})
			p := s.new(onePartition, s.shadowed)
			p.BacklogLimit(time.Hour)
			participant.OnDeadline(p, overdueName, overdue)
			participant.OnDeadline(p, "other", overdue)
			p.Extension().FireAfterBacklog(overdueName)
			participant.Handle(p, func(ctx context.Context, _ pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
				began <- struct{}{}
				select {
				case <-may:
				case <-ctx.Done():
				}
				return participant.Succeed(Counted{}), ctx.Err()
			})
			due := func(name, key string) participant.Deadline {
				return participant.Deadline{Name: name, Key: key, Body: Overdue{N: 1}, At: time.Now().Add(-time.Hour)}
			}
			s.start(p)
			require.NoError(t, s.schedule(p, due(overdueName, "a")))
			s.fired(1)
			s.send(s.command("a", Count{N: 1}))
			<-began
			require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "LOCK TABLE troupe.deadlines")
				require.NoError(t, err)
				require.NoError(t, p.Schedule(t.Context(), tx, due(overdueName, "b")))
				require.NoError(t, p.Schedule(t.Context(), tx, due("other", "c")))
				away(s, tx)
				return nil
			}))
			const fired = "SELECT count(*) FROM troupe.deadlines WHERE name = $1 AND fired_at IS NOT NULL"
			s.waitCount(1, fired, "other")
			require.Equal(t, 1, s.count(fired, overdueName), "the message that came before is being handled")
			close(may)
			s.waitCount(2, fired, overdueName)
		})
	}
}

// TestDeadlinesAreFiredThroughAProxyThatAlternatesServers: a proxy sends each statement to another of two servers.
func TestDeadlinesAreFiredThroughAProxyThatAlternatesServers(t *testing.T) {
	t.Parallel()
	s := newDeadlineStage(t)
	_, err := s.pool.Exec(t.Context(), "CREATE FUNCTION pg_postmaster_start_time() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT statement_timestamp()'")
	require.NoError(t, err)
	s.provision(1)
	p := s.new(onePartition, s.shadowed)
	participant.OnDeadline(p, overdueName, overdue)
	p.Extension().FireAfterBacklog(overdueName)
	participant.Handle(p, count)
	s.start(p)
	for n := range 3 {
		require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "a", Body: Overdue{N: 1}, At: time.Now()}))
		s.fired(n + 1)
	}
}

// shadowed makes the sessions of the participant find functions in public before the ones in pg_catalog.
func (s *stage) shadowed(c *participant.Config) {
	of := c.Pool.Config()
	of.ConnConfig.RuntimeParams["search_path"] = "public, pg_catalog"
	pool, err := pgxpool.NewWithConfig(s.t.Context(), of)
	require.NoError(s.t, err)
	s.t.Cleanup(pool.Close)
	c.Pool = pool
}
