package participant_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/rebuilds"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// Paid is an event of another hop, which a projection counts.
type Paid struct {
	N    int    `json:"n"` // the number of the event within its key
	Fail string `json:"fail,omitempty"`
}

// Refunded is another type on the same topic.
type Refunded struct {
	N int `json:"n"`
}

// projection is a stage whose participant consumes the events of the hop bank.
type projection struct {
	*stage
	bank   topics.Hop
	broken atomic.Bool // the handler of Paid refuses events with Fail
	hangs  atomic.Bool // the handler of newGap waits for its context's end at the next event with Fail
}

func newProjection(t testing.TB, partitions int32) *projection {
	s := newStage(t)
	p := &projection{stage: s, bank: topics.MustHop(s.hop.Flow(), "bank")}
	s.provision(partitions)
	testkit.Topics(t, s.client, partitions, p.bank.Events())
	return p
}

// participant returns a participant that counts Paid, and lists Refunded with negative numbers.
func (s *projection) participant(change ...func(*participant.Config)) *participant.Participant {
	p := s.new(append([]func(*participant.Config){func(c *participant.Config) { c.Batch = 5 }}, change...)...)
	participant.On(p, s.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
		if s.broken.Load() && e.Body.Fail != "" {
			return errAsked
		}
		return project(ctx, tx, p, string(e.Message.Key), e.Body.N)
	})
	participant.On(p, s.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Refunded]) error {
		return project(ctx, tx, nil, string(e.Message.Key), -e.Body.N)
	})
	participant.OnDeadline(p, "late", func(context.Context, pgx.Tx, participant.Due[Paid]) error { return nil })
	return p
}

// project adds a line, and, with p, writes an entry by the outbox and one by SQL, and schedules a deadline.
func project(ctx context.Context, tx pgx.Tx, p *participant.Participant, key string, n int) error {
	if _, err := tx.Exec(ctx, "INSERT INTO done (key, n, attempt) VALUES ($1, $2, 1)", key, n); err != nil || p == nil {
		return err
	}
	const bySQL = "INSERT INTO troupe.outbox (topic, key, type) VALUES ($1, $2, 'BySQL')"
	if _, err := tx.Exec(ctx, bySQL, p.Hop().Events(), key); err != nil {
		return err
	}
	if err := p.Schedule(ctx, tx, participant.Deadline{Name: "late", Scope: fmt.Sprintf("%s-%d", key, n), After: time.Hour, Body: Paid{N: n}}); err != nil {
		return err
	}
	return p.Outbox().Write(ctx, tx, outbox.Entry{Topic: p.Hop().Events(), Key: key, Body: Refunded{N: n}})
}

func (s *projection) event(key string, body any) envelope.Message {
	payload, err := json.Marshal(body)
	require.NoError(s.t, err)
	typ := "Paid"
	if _, is := body.(Refunded); is {
		typ = "Refunded"
	}
	return envelope.Message{
		Topic: s.bank.Events(), Key: []byte(key), Payload: payload, ID: envelope.NewID(), Type: typ, Source: "bank", Subject: key,
		ContentType: envelope.JSON, CorrelationID: "flow-" + key, Outcome: envelope.Success,
	}
}

// events returns events that are numbered within their keys, the keys in turn.
func (s *projection) events(first, keys, each int) (all []envelope.Message) {
	for n := range each {
		for k := range keys {
			all = append(all, s.event(fmt.Sprintf("k-%d", k), Paid{N: first + n}))
		}
	}
	return all
}

// rebuild inserts a rebuild of the handler of Paid, from the given offset, or else from 0.
func (s *projection) rebuild(generation int, emit bool, from ...int64) (id int64) {
	s.t.Helper()
	handlers := []string{s.hop.String() + "/Paid"}
	const insert = `INSERT INTO troupe.rebuilds (consumer_group, generation, handlers, from_time, emit) VALUES ($1, $2, $3, 'epoch', $4) RETURNING id`
	topic := s.bank.Events()
	ids, err := kafka.TopicIDs(s.t.Context(), s.client, topic)
	require.NoError(s.t, err)
	partitions, err := kafka.Partitions(s.t.Context(), s.client, topic)
	require.NoError(s.t, err)
	err = pgx.BeginFunc(s.t.Context(), s.pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(s.t.Context(), insert, s.hop.String(), generation, handlers, emit).Scan(&id); err != nil {
			return err
		}
		for n := range partitions[topic] {
			_, err := tx.Exec(s.t.Context(), `INSERT INTO troupe.rebuild_partitions (rebuild, topic, partition, topic_id, handlers, from_offset)
				VALUES ($1, $2, $3, $4, $5, $6)`, id, topic, n, kafka.TopicID(topic, ids[topic]), handlers, append(from, 0)[0])
			if err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(s.t, err)
	return id
}

func (s *projection) waitFinished(id int64) {
	s.t.Helper()
	s.waitCount(1, "SELECT count(*) FROM troupe.rebuilds WHERE id = $1 AND finished_at IS NOT NULL", id)
}

func (s *projection) cancel(id int64) {
	s.t.Helper()
	require.NoError(s.t, rebuilds.Desk{Pool: s.pool}.Cancel(s.t.Context(), id, ann))
}

// pending returns the number of partitions for which members join the group again.
func (s *projection) pending() int {
	s.t.Helper()
	return s.count("SELECT count(*) FROM ("+participant.PendingRebuild+") AS p", pgx.NamedArgs{"group": s.hop.String()})
}

// waitUndone waits until each partition of a cancelled rebuild is set forward.
func (s *projection) waitUndone(id int64) {
	s.t.Helper()
	s.waitCount(0, "SELECT count(*) FROM troupe.rebuild_partitions WHERE rebuild = $1 AND until IS NOT NULL AND undone_at IS NULL", id)
}

// lines returns the numbers of each key in done, in the order of their effects.
func (s *projection) lines() map[string][]int {
	s.t.Helper()
	all := make(map[string][]int)
	rows, err := s.pool.Query(s.t.Context(), "SELECT key, n FROM done ORDER BY position")
	require.NoError(s.t, err)
	var key string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&key, &n}, func() error { all[key] = append(all[key], n); return nil })
	require.NoError(s.t, err)
	return all
}

func (s *projection) clear() {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), "TRUNCATE done; TRUNCATE troupe.outbox; DELETE FROM troupe.deadlines")
	require.NoError(s.t, err)
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// TestARebuildHandlesEachMessageOnceMore checks that a rebuild handles each message of its handler once more and in order, although the
// inbox has forgotten all of them, messages that come meanwhile once and after it, and no message of another handler; nothing
// reaches the outbox or the deadlines, and nothing is repeated by the next start.
func TestARebuildHandlesEachMessageOnceMore(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 2)
	const keys, each = 4, 15
	stop := s.start(s.participant())
	s.send(s.events(0, keys, each)...)
	s.send(s.event("k-0", Refunded{N: 1}))
	s.waitCount(keys*each+1, "SELECT count(*) FROM done")
	require.Equal(t, 2*keys*each, s.count("SELECT count(*) FROM troupe.outbox"))
	require.Equal(t, keys*each, s.count("SELECT count(*) FROM troupe.deadlines"))
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.handlers WHERE consumer_group = $1 AND refusal IS NULL", s.hop.String()))
	_, err := s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)

	s.clear()
	id := s.rebuild(1, false)
	s.waitCount(2, "SELECT count(*) FROM troupe.rebuild_partitions WHERE began_at IS NOT NULL")
	s.send(s.events(each, keys, 5)...)
	s.waitFinished(id)
	s.waitCount(keys*(each+5), "SELECT count(*) FROM done")
	for key, lines := range s.lines() {
		require.Equal(t, upTo(each+5), lines, key)
	}
	require.Equal(t, 2*keys*5, s.count("SELECT count(*) FROM troupe.outbox"), "the entries of the live messages only")
	require.Equal(t, keys*5, s.count("SELECT count(*) FROM troupe.deadlines"))

	stop()
	s.start(s.participant())
	s.send(s.event("k-0", Paid{N: each + 5}))
	s.waitCount(keys*(each+5)+1, "SELECT count(*) FROM done")

	s.clear()
	id = s.rebuild(2, true)
	s.waitFinished(id)
	require.Equal(t, keys*(each+5)+1, s.count("SELECT count(*) FROM done"))
	require.Equal(t, 2*(keys*(each+5)+1), s.count("SELECT count(*) FROM troupe.outbox"), "with emit")
	require.Equal(t, keys*(each+5)+1, s.count("SELECT count(*) FROM troupe.deadlines"))
}

// TestACancelledRebuildRepeatsNothing cancels a rebuild whose first message is held, so that it has not finished: the held one is dropped, and no message is
// handled again, although the inbox has forgotten them.
func TestACancelledRebuildRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	s.start(s.participant(onePartition, func(c *participant.Config) { c.Retry.Initial, c.Retry.Cap = time.Hour, time.Hour }))
	s.send(s.event("k-0", Paid{N: 0, Fail: "later"}))
	s.send(s.events(1, 1, 9)...)
	s.send(s.events(0, 3, 10)[1:]...) // k-0 comes again with other ids
	s.waitCount(39, "SELECT count(*) FROM done")
	_, err := s.pool.Exec(t.Context(), forget)
	require.NoError(t, err)
	s.clear()
	s.broken.Store(true)
	s.waitCount(1, "SELECT count(*) FROM troupe.leases WHERE topic = $1 AND watermark = 38", s.bank.Events())
	epoch := s.count("SELECT watermark_epoch FROM troupe.leases WHERE topic = $1", s.bank.Events())
	require.GreaterOrEqual(t, epoch, 0)
	id := s.rebuild(1, false)
	s.waitCount(1, "SELECT count(*) FROM troupe.held WHERE redrive = 65536 AND attempts > 0")
	s.waitCount(20, "SELECT count(*) FROM done") // the other keys
	s.waitCount(1, "SELECT count(*) FROM troupe.leases AS l JOIN troupe.rebuild_partitions AS p USING (topic, partition, topic_id) WHERE l.watermark + 1 >= p.until")
	finished, err := s.pool.Exec(t.Context(), participant.FinishRebuild, pgx.NamedArgs{"group": s.hop.String()})
	require.NoError(t, err)
	require.Zero(t, finished.RowsAffected(), "a message of it is held")

	s.cancel(id)
	s.waitUndone(id)
	require.Equal(t, epoch, s.count("SELECT watermark_epoch FROM troupe.leases WHERE topic = $1", s.bank.Events()), "or a reset of the group would repeat them")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.held"))
	s.send(s.event("k-0", Paid{N: 10}), s.event("k-1", Paid{N: 10}))
	s.waitCount(22, "SELECT count(*) FROM done")
	require.Equal(t, []int{10}, s.lines()["k-0"])
	require.Equal(t, append(upTo(10), 10), s.lines()["k-1"])
}

// TestARebuildOfDeadLetters checks that a rebuild waits until no dead letter of its handlers is open, that a redriven copy in its range
// counts as its original, and that a message which fails in the rebuild is a dead letter whose redrive takes effect.
func TestARebuildOfDeadLetters(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	s.start(s.participant(onePartition, onlyOnce))
	s.broken.Store(true)
	first := s.event("k-0", Paid{N: 0, Fail: "error"})
	s.send(first)
	s.send(s.event("k-0", Paid{N: 1}))
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters")
	s.waitCount(1, "SELECT count(*) FROM done")
	s.broken.Store(false)
	redriven := s.redriven(first, 1)
	s.send(redriven)
	s.waitCount(2, "SELECT count(*) FROM done")

	s.clear()
	id := s.rebuild(1, false)
	s.send(s.event("k-1", Paid{N: 0}))
	s.waitCount(1, "SELECT count(*) FROM done")
	s.waitCount(0, "SELECT count(*) FROM troupe.rebuild_partitions WHERE began_at IS NOT NULL")
	require.Zero(t, s.pending(), "the member joins the group again only when the rebuild can begin")
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.dead_letters SET status = 'redriven'")
	require.NoError(t, err)
	s.waitFinished(id)
	require.Equal(t, map[string][]int{"k-0": {0, 1}, "k-1": {0, 0}}, s.lines())

	s.clear()
	s.broken.Store(true)
	id = s.rebuild(2, false)
	s.waitFinished(id)
	require.Equal(t, map[string][]int{"k-0": {1}, "k-1": {0}}, s.lines())
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters WHERE status = 'open' AND redrives = 131072"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"), "neither the copy nor the event of a dead letter")
	s.broken.Store(false)
	s.send(s.redriven(first, 131073))
	s.waitCount(3, "SELECT count(*) FROM done")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.outbox"), "the redriven message is one of the rebuild")

	s.send(s.redriven(first, 2), s.event("k-2", Paid{N: 0})) // as an earlier dead letter would be
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'k-2'")
	require.Equal(t, []int{1, 0}, s.lines()["k-0"])
}

func (s *projection) redriven(m envelope.Message, redrive int) envelope.Message {
	m.Extra = []envelope.Header{
		{Key: deadletter.HeaderRedrive, Value: fmt.Append(nil, redrive)}, {Key: deadletter.HeaderRedriveGroup, Value: []byte(s.hop.String())},
	}
	return m
}

// TestHandlersThatCannotBeRebuiltAreListedWithTheReason registers one of each kind. With retry topics, none of the group can be.
func TestHandlersThatCannotBeRebuiltAreListedWithTheReason(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	nothing := func(context.Context, pgx.Tx, participant.Event[Refunded]) error { return nil }
	serve := func(opts ...participant.HandlerOption) (stop func()) {
		p := s.new(onePartition)
		participant.Handle(p, count)
		participant.React(p, s.bank, func(context.Context, pgx.Tx, participant.Event[Paid]) (participant.Outcome, error) {
			return participant.Done(), nil
		})
		participant.On(p, s.bank, nothing, participant.Alone())
		participant.On(p, topics.MustHop(s.hop.Flow(), "shop"), nothing, opts...)
		participant.On(p, topics.MustHop(s.hop.Flow(), "till"), nothing)
		return s.start(p)
	}
	stop := serve()
	s.waitCount(5, "SELECT count(*) FROM troupe.handlers")
	require.Equal(t, 3, s.count("SELECT count(*) FROM troupe.handlers WHERE refusal IS NOT NULL"))
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.handlers WHERE (topic LIKE '%.till.events' OR topic LIKE '%.shop.events') AND refusal IS NULL"))
	stop()
	serve(participant.RetryTopics(time.Second))
	s.waitCount(5, "SELECT count(*) FROM troupe.handlers WHERE refusal IS NOT NULL")
}

// TestRebuildsUnderCrashes kills members while events come, three rebuilds run and the second of them is cancelled. In each rebuild an
// event has its effect at most once, and in a finished one exactly once; the events of a key are in order; events that come meanwhile have
// their effect once and after it. The outbox and the deadlines have what the first effect of each event has written, and no more.
func TestRebuildsUnderCrashes(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 2)
	s.batch = 5
	member := func() *process { return s.memberOf(task{Projects: true, Batch: s.batch}) }
	members := []*process{member(), member()}
	const keys, rounds, mostKills = 6, 3, 3 // in a round: a group whose sessions are longer than the time between two kills does nothing
	each, kills := 40, 0
	s.send(s.events(0, keys, each)...)
	s.waitAll("the first events", keys*each, func() int { return s.count("SELECT count(*) FROM done") })
	trouble := time.NewTicker(3 * time.Second)
	defer trouble.Stop()
	load := time.NewTicker(100 * time.Millisecond)
	defer load.Stop()
	for round := range rounds {
		id, killed := s.rebuild(round+1, false), 0
		for finished := false; !finished; {
			select {
			case <-trouble.C:
				if killed == mostKills {
					continue
				}
				victim := rand.IntN(len(members))
				require.NoError(t, members[victim].Process.Kill())
				members[victim].killed(t)
				members[victim] = member()
				killed++
				kills++
			case <-load.C:
				s.send(s.events(each, keys, 1)...)
				each++
				if round == 1 {
					_, err := s.pool.Exec(t.Context(), `UPDATE troupe.rebuilds SET cancelled_at = now(), finished_at = now()
						WHERE id = $1 AND cancelled_at IS NULL AND EXISTS (SELECT FROM troupe.rebuild_partitions WHERE rebuild = $1 AND until IS NOT NULL)`, id)
					require.NoError(t, err)
				}
				finished = s.count("SELECT count(*) FROM troupe.rebuilds WHERE id = $1 AND finished_at IS NOT NULL", id) == 1
			}
		}
	}
	s.waitAll("each event", keys*each, func() int { return s.count("SELECT count(*) FROM (SELECT DISTINCT key, n FROM done) AS d") })
	for _, m := range members {
		m.terminate(t)
	}
	for key, lines := range s.lines() {
		resets, cut, most := 0, 0, -1
		for i, n := range lines {
			switch {
			case i == 0 || n == lines[i-1]+1:
				require.LessOrEqual(t, n, most+1, "%s: an event is missing before %v", key, lines[i:])
			case n == 0:
				resets++
				if lines[i-1] < most {
					cut++
				}
			default:
				require.Equal(t, most+1, n, "%s: %v", key, lines)
				cut++
			}
			most = max(most, n)
		}
		require.Equal(t, each-1, most, key)
		require.LessOrEqual(t, cut, 1, "%s: a rebuild that was not cancelled ended early: %v", key, lines)
		require.GreaterOrEqual(t, resets, rounds-1, "%s: %v", key, lines)
		require.LessOrEqual(t, resets, rounds, "%s: %v", key, lines)
	}
	require.Equal(t, 2*keys*each, s.count("SELECT count(*) FROM troupe.outbox"))
	require.Equal(t, keys*each, s.count("SELECT count(*) FROM troupe.deadlines"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.held"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
	t.Logf("%d events, %d kills", keys*each, kills)
}

// TestAMessageThatRunsWhenARebuildBeginsKeepsItsWrites begins a rebuild while a message runs and a later one of another key has ended: the
// rebuild handles both in its range, and only the writes of the first, which takes effect for the first time, are kept.
func TestAMessageThatRunsWhenARebuildBeginsKeepsItsWrites(t *testing.T) {
	t.Parallel()
	s := newProjection(t, 1)
	p := s.new(onePartition, func(c *participant.Config) { c.Drain = 100 * time.Millisecond })
	var hung atomic.Bool
	participant.On(p, s.bank, func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
		if e.Body.Fail != "" && hung.CompareAndSwap(false, true) {
			<-ctx.Done()
			return ctx.Err()
		}
		return project(ctx, tx, p, string(e.Message.Key), e.Body.N)
	})
	participant.OnDeadline(p, "late", func(context.Context, pgx.Tx, participant.Due[Paid]) error { return nil })
	s.start(p)
	first := s.event("k-0", Paid{N: 0, Fail: "once"})
	s.send(first)
	s.send(s.event("k-1", Paid{N: 0}))
	s.waitCount(1, "SELECT count(*) FROM done")
	s.clear()
	id := s.rebuild(1, false)
	s.waitFinished(id)
	require.Equal(t, map[string][]int{"k-0": {0}, "k-1": {0}}, s.lines())
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox WHERE key = 'k-0'"))
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox"))
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.deadlines"))
	s.send(first, s.event("k-2", Paid{N: 0})) // it comes again, as from a sender that repeats it
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'k-2'")
	require.Equal(t, []int{0}, s.lines()["k-0"])
}
