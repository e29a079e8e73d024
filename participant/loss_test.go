package participant_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/troupe-go/troupe/participant"
)

// loseAfterFirst sets the database back to the state after the first message, as a standby that lagged.
const loseAfterFirst = `
	DELETE FROM done WHERE n > 1; UPDATE counters SET total = 1; DELETE FROM troupe.inbox_offsets;
	DELETE FROM troupe.inbox; DELETE FROM troupe.inbox_recent;
	DELETE FROM troupe.answers WHERE answered_at > (SELECT min(answered_at) FROM troupe.answers);
	DELETE FROM troupe.outbox WHERE position > (SELECT min(position) FROM troupe.outbox)`

const setBack = loseAfterFirst + "; UPDATE troupe.leases SET watermark = 0"

// handleThree runs a participant that handles three messages, the first of them below the watermark before the others come. In
// the end all are, and the offsets are committed.
func (s *stage) handleThree(p *participant.Participant) (stop func()) {
	participant.Handle(p, count)
	stop = s.start(p)
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM done")
	s.waitCount(0, "SELECT watermark FROM troupe.leases WHERE topic = $1", s.hop.Commands())
	s.send(s.command("a", Count{N: 2}), s.command("a", Count{N: 3}))
	s.waitCount(3, "SELECT count(*) FROM done")
	s.waitCount(2, "SELECT watermark FROM troupe.leases WHERE topic = $1", s.hop.Commands())
	waitFor(s.t, "the offsets", func() bool { return s.committed(0) == 3 })
	return stop
}

func TestMessagesThatTheDatabaseLostAreHandledAgainByTheNextOwner(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	s.handleThree(s.new(onePartition))()
	_, err := s.pool.Exec(t.Context(), setBack)
	require.NoError(t, err)
	var log safeBuffer
	next := s.new(onePartition, func(c *participant.Config) { c.Log = zerolog.New(&log) })
	participant.Handle(next, count)
	s.start(next)
	s.send(s.command("a", Count{N: 4}))
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 4")
	require.Equal(t, 4, s.count("SELECT count(*) FROM done"), log.String())
	require.Equal(t, 4, s.count("SELECT total FROM counters"))
	require.Equal(t, 2, partitionOf(next, s.hop.Commands()).Recovered)
	require.Contains(t, log.String(), "the database has lost messages")
}

// TestMessagesThatTheDatabaseLostAreHandledAgainByTheSameOwner checks that a member whose connections break and reach a standby that
// lacks its last messages finds out by itself, also if the watermark had not moved since.
func TestMessagesThatTheDatabaseLostAreHandledAgainByTheSameOwner(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition)
	participant.Handle(p, count)
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM done")
	s.waitCount(0, "SELECT watermark FROM troupe.leases WHERE topic = $1", s.hop.Commands())
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), "SELECT FROM troupe.leases FOR UPDATE") // the watermark does not move
	require.NoError(t, err)
	s.send(s.command("a", Count{N: 2}), s.command("a", Count{N: 3}))
	s.waitCount(3, "SELECT count(*) FROM done")
	waitFor(t, "the offsets", func() bool { return s.committed(0) == 3 })
	_, err = s.pool.Exec(t.Context(), loseAfterFirst)
	require.NoError(t, err)
	waitFor(t, "a move of the watermark, which loses its connection", func() bool {
		return s.count(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	require.NoError(t, tx.Rollback(t.Context()))
	s.waitCount(3, "SELECT count(*) FROM done")
	require.Equal(t, 3, s.count("SELECT total FROM counters"))
}

// TestAQuietMemberFindsThatTheDatabaseLostItsMessages checks that it needs no message for that.
func TestAQuietMemberFindsThatTheDatabaseLostItsMessages(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	s.handleThree(s.new(onePartition))
	_, err := s.pool.Exec(t.Context(), setBack)
	require.NoError(t, err)
	s.waitCount(3, "SELECT count(*) FROM done")
	require.Equal(t, 3, s.count("SELECT total FROM counters"))
}

func TestAResetOfTheOffsetsSaysWhatItPassesOver(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	s.handleThree(s.new(onePartition))()
	s.rewind()
	var log safeBuffer
	next := s.new(onePartition, func(c *participant.Config) { c.Log = zerolog.New(&log) })
	participant.Handle(next, count)
	s.start(next)
	s.send(s.command("a", Count{N: 4}))
	s.waitCount(4, "SELECT count(*) FROM done")
	require.Equal(t, 3, partitionOf(next, s.hop.Commands()).Skipped)
	require.Contains(t, log.String(), "reset to before the watermark")
	require.Contains(t, log.String(), `"offsets":3`)
}

func TestAnOffsetSetFromOutsideIsNotRewound(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	s.handleThree(s.new(onePartition))()
	s.send(s.command("a", Count{N: 4}), s.command("a", Count{N: 5}))
	s.skipTo(4)
	next := s.new(onePartition)
	participant.Handle(next, count)
	s.start(next)
	s.waitCount(1, "SELECT count(*) FROM done WHERE n = 5")
	require.Zero(t, s.count("SELECT count(*) FROM done WHERE n = 4"))
}

// TestANewDatabaseBelievesTheOffsets checks that a service that moves to an empty database continues at the committed offsets.
func TestANewDatabaseBelievesTheOffsets(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	s.handleThree(s.new(onePartition))()
	_, err := s.pool.Exec(t.Context(), "TRUNCATE troupe.leases, troupe.inbox_offsets, done; "+forget)
	require.NoError(t, err)
	next := s.new(onePartition)
	participant.Handle(next, count)
	s.start(next)
	s.send(s.command("a", Count{N: 4}))
	s.waitCount(1, "SELECT count(*) FROM done")
	s.waitCount(3, "SELECT watermark FROM troupe.leases WHERE topic = $1", s.hop.Commands())
}

// TestADatabaseFromBeforeTheFirstRunIsHandledAgainAfterAReset takes the steps of docs/upgrades.md after the first start has skipped
// what the database lost.
func TestADatabaseFromBeforeTheFirstRunIsHandledAgainAfterAReset(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	s.handleThree(s.new(onePartition))()
	_, err := s.pool.Exec(t.Context(), "TRUNCATE troupe.leases, troupe.inbox_offsets, done; "+forget)
	require.NoError(t, err)
	var log safeBuffer
	next := s.new(onePartition, func(c *participant.Config) { c.Log = zerolog.New(&log) })
	participant.Handle(next, count)
	stop := s.start(next)
	s.send(s.command("a", Count{N: 4}))
	s.waitCount(1, "SELECT count(*) FROM done")
	stop()
	require.Contains(t, log.String(), `"offsets":3`)
	require.Contains(t, log.String(), "docs/upgrades.md")

	_, err = s.pool.Exec(t.Context(), "DELETE FROM troupe.leases WHERE consumer_group = $1", s.hop.String())
	require.NoError(t, err)
	s.rewind()
	last := s.new(onePartition)
	participant.Handle(last, count)
	s.start(last)
	s.waitCount(4, "SELECT count(*) FROM done")
}

// TestABrokerWithoutTopicIDsIsReadFromTheCommittedOffset checks that, without ids, a topic is identified by its name, and does
// not count as created again at each start.
func TestABrokerWithoutTopicIDsIsReadFromTheCommittedOffset(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var log safeBuffer
	old := func(c *participant.Config) {
		c.Kafka = append(c.Kafka, kgo.MaxVersions(kversion.V2_7_0()))
		c.Log = zerolog.New(&log)
	}
	s.handleThree(s.new(onePartition, old))()
	next := s.new(onePartition, old)
	participant.Handle(next, count)
	s.start(next)
	s.send(s.command("a", Count{N: 4}))
	s.waitCount(4, "SELECT count(*) FROM done")
	require.Zero(t, partitionOf(next, s.hop.Commands()).Skipped)
	require.NotContains(t, log.String(), "created again")
}

func partitionOf(p *participant.Participant, topic string) (of participant.PartitionStats) {
	for _, s := range p.Stats().Partitions {
		if s.Topic == topic {
			of = s
		}
	}
	return of
}

// TestAHeldMessageWhoseEndTheDatabaseLostIsTriedAgainByTheSameOwner needs no message or rebalance for it.
func TestAHeldMessageWhoseEndTheDatabaseLostIsTriedAgainByTheSameOwner(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	p := s.new(onePartition, holdLong)
	p.Tick(100 * time.Millisecond)
	var broken atomic.Bool
	broken.Store(true)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if broken.Load() {
			return participant.Outcome{}, errAsked
		}
		return count(ctx, tx, c)
	})
	s.start(p)
	s.send(s.command("a", Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE attempts = 1")
	s.waitCount(0, "SELECT watermark FROM troupe.leases WHERE topic = $1", s.hop.Commands())
	_, err := s.pool.Exec(t.Context(), "CREATE TABLE standby AS SELECT * FROM troupe.held")
	require.NoError(t, err)
	broken.Store(false)
	s.due()
	s.waitCount(1, "SELECT count(*) FROM done")
	waitFor(t, "the key to be free", func() bool { return partitionOf(p, s.hop.Commands()).Held == 0 })
	_, err = s.pool.Exec(t.Context(), `
		DELETE FROM done; DELETE FROM counters; `+forget+`; DELETE FROM troupe.outbox;
		INSERT INTO troupe.held OVERRIDING SYSTEM VALUE SELECT * FROM standby;
		UPDATE troupe.held SET next_try = now()`)
	require.NoError(t, err)
	s.waitCount(1, "SELECT count(*) FROM done")
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
}

// TestALeaseWithTheIDOfALostOneIsAnother sets the database back to before the leases of two members. The lease of one partition then gets the id
// that the lease of the other one had, whose owner runs still: it must not record its offsets there, or the messages at these offsets of the
// other partition would be passed over.
func TestALeaseWithTheIDOfALostOneIsAnother(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(2)
	keys := s.keys(2)
	ps := make([]*participant.Participant, 2)
	stops := make([]func(), 2)
	for i := range ps {
		ps[i] = s.new()
		participant.Handle(ps[i], count)
		stops[i] = s.start(ps[i])
	}
	owned := func() (by [2]int) { // the member that owns each partition
		by = [2]int{-1, -1}
		for i, p := range ps {
			for _, part := range p.Stats().Partitions {
				if part.Topic == s.hop.Commands() && part.Term > 0 {
					by[part.Partition] = i
				}
			}
		}
		return by
	}
	waitFor(t, "one partition for each", func() bool { by := owned(); return by[0] >= 0 && by[1] >= 0 && by[0] != by[1] })
	for n := range 5 {
		s.send(s.command(keys[0], Count{N: n}))
	}
	s.send(s.command(keys[1], Count{N: 0}))
	s.waitCount(6, "SELECT count(*) FROM done")
	s.waitCount(2, "SELECT count(*) FROM troupe.leases WHERE watermark = CASE partition WHEN 0 THEN 4 ELSE 0 END AND topic = $1", s.hop.Commands())

	// The lease of partition 1 gets the id of the one of partition 0.
	s.exec(`DO $$
		DECLARE first integer := (SELECT id FROM troupe.leases WHERE partition = 0 AND topic LIKE '%.commands');
		BEGIN
			DELETE FROM troupe.leases;
			DELETE FROM troupe.inbox_offsets;
			PERFORM setval(pg_get_serial_sequence('troupe.leases', 'id'), first, false);
		END $$`)
	s.send(s.command(keys[1], Count{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE partition = 1 AND term > 0 AND topic = $1", s.hop.Commands())
	s.send(s.command(keys[0], Count{N: 5}), s.command(keys[0], Count{N: 6}))
	s.waitCount(9, "SELECT count(*) FROM done")
	for _, stop := range stops {
		stop()
	}
	for n := range 8 {
		s.send(s.command(keys[1], Count{N: n + 2}))
	}
	p := s.new()
	participant.Handle(p, count)
	s.start(p)
	s.waitCount(17, "SELECT count(*) FROM done")
}

// moves is in the text of the statement that stores a watermark (move_watermark.sql).
const moves = "watermark_epoch = $"

// lostAnswers dials a database server whose answers to COMMIT get lost: the server commits, and the connection ends before its answer is read.
type lostAnswers struct {
	next atomic.Bool // the next COMMIT that stores a watermark gets no answer
	lost atomic.Int64
}

// pool returns a pool whose connections lose answers. It prepares no statements, so that their text is in each message that is sent.
func (l *lostAnswers) pool(s *stage) *pgxpool.Pool {
	cfg := s.pool.Config()
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, kind, address string) (net.Conn, error) {
		conn, err := dial(ctx, kind, address)
		return &lostAnswerConn{Conn: conn, of: l}, err
	}
	pool, err := pgxpool.NewWithConfig(s.t.Context(), cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(pool.Close)
	return pool
}

type lostAnswerConn struct {
	net.Conn
	of    *lostAnswers
	moves atomic.Bool // the last message stores a watermark
}

func (c *lostAnswerConn) Write(b []byte) (int, error) {
	c.moves.Store(bytes.Contains(b, []byte(moves)))
	return c.Conn.Write(b)
}

func (c *lostAnswerConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.moves.Load() && bytes.Contains(b[:n], []byte("COMMIT\x00")) && c.of.next.CompareAndSwap(true, false) {
		_ = c.Close()
		c.of.lost.Add(1)
		return 0, net.ErrClosed
	}
	return n, err
}

// TestAWatermarkWhoseCommitGotNoAnswerIsNoLoss lets the answers get lost to the COMMIT of the first watermark and of a later one: the member goes on
// with its lease. After another one the database is set back: the member notices that.
func TestAWatermarkWhoseCommitGotNoAnswerIsNoLoss(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var answers lostAnswers
	var log safeBuffer
	p := s.new(onePartition, func(c *participant.Config) { c.Pool, c.Log = answers.pool(s), zerolog.New(&log) })
	participant.Handle(p, count)
	const watermark = "SELECT watermark FROM troupe.leases WHERE topic = $1"
	lose := func(n, total int) {
		answers.next.Store(true)
		for ; n <= total; n++ {
			s.send(s.command("a", Count{N: n}))
		}
		s.waitCount(total, "SELECT count(*) FROM done")
		s.waitCount(total-1, watermark, s.hop.Commands())
		waitFor(t, "a lost answer", func() bool { return !answers.next.Load() })
	}
	term := func() int {
		return s.count("SELECT coalesce(max(term), 0) FROM troupe.leases WHERE topic = $1", s.hop.Commands())
	}
	answers.next.Store(true)
	stop := s.start(p)
	waitFor(t, "the lease", func() bool { return term() > 0 })
	first := term()
	lose(1, 1)
	lose(2, 3)
	s.send(s.command("a", Count{N: 4}))
	s.waitCount(3, watermark, s.hop.Commands())
	require.Equal(t, first, term(), log.String())
	require.NotContains(t, log.String(), "the database has lost transactions")

	lose(5, 5)
	s.exec(setBack)
	s.waitCount(5, "SELECT count(*) FROM done")
	require.Equal(t, 5, s.count("SELECT total FROM counters"))
	require.Greater(t, term(), first)
	stop()
}
