package participant_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// Loose is a command whose order does not matter.
type Loose struct{}

func loose(context.Context, pgx.Tx, participant.Command[Loose]) (participant.Outcome, error) {
	return participant.Outcome{}, errAsked
}

// tally counts the calls of hooks, by how a message ended.
type tally struct {
	mu      sync.Mutex
	fetched int
	ends    map[string]int
}

func (y *tally) hooks(h *participant.Hooks) {
	y.ends = make(map[string]int)
	add := func(what string, held bool) {
		y.mu.Lock()
		defer y.mu.Unlock()
		if held {
			what += " after hold"
		}
		y.ends[what]++
	}
	h.Fetched = func(_ string, _ int32, n int) {
		y.mu.Lock()
		defer y.mu.Unlock()
		y.fetched += n
	}
	h.AfterCommit = func(d participant.Delivery) {
		what := "handled"
		if d.Outcome != "" {
			what = string(d.Outcome)
		}
		add(what+string(d.Class), d.Held)
	}
	h.Held = func(participant.Delivery) { add("held", false) }
	h.Passed = func(p participant.Passed) { add(p.Reason, p.Held) }
}

func (y *tally) take() (fetched int, ends map[string]int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	fetched, ends = y.fetched, y.ends
	y.fetched, y.ends = 0, make(map[string]int)
	return fetched, ends
}

// TestEveryMessageEndsAndIsTold checks that each is reported: as an outcome, held, as a dead letter, or without effect for a
// reason. The sum is the number of sent messages.
func TestEveryMessageEndsAndIsTold(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		t.Run(fmt.Sprintf("batch=%d", batch), func(t *testing.T) { everyMessageEnds(t, batch) })
	}
}

func everyMessageEnds(t *testing.T, batch int) {
	t.Parallel()
	s := newStage(t)
	other := topics.MustHop(s.hop.Flow(), "inventory")
	var told tally
	slow := retry.Policy{Initial: time.Hour, Cap: time.Hour, NoJitter: true, Attempts: 9}
	config := func(c *participant.Config) {
		c.Batch, c.Retry, c.Immediate, c.UnknownTypeWait = batch, slow, -1, -1
		told.hooks(&c.Hooks)
	}
	begin := func() (stop func()) {
		p := s.new(onePartition, config)
		participant.Handle(p, count)
		participant.Handle(p, loose, participant.RetryTopics(time.Hour))
		participant.On(p, other, func(context.Context, pgx.Tx, participant.Event[Counted]) error { return nil })
		return s.start(p)
	}
	s.provision(1)
	testkit.Topics(t, s.client, 1, other.Events())

	good := s.commands(4, 5)
	again := good[3]
	again.ID = envelope.NewID() // the same idempotency key: answered alike
	unknown := s.command("u", Count{})
	unknown.Type = "Unknown"
	forward := s.command("saga", Count{N: 1, Fail: "error"})
	forward.SagaID, forward.SagaStep, forward.SagaOperation = "s-1", "pay", envelope.Forward
	back := forward
	back.ID, back.IdempotencyKey, back.SagaOperation, back.Payload = envelope.NewID(), "", envelope.Compensate, []byte(`{"n":2}`)
	moves := s.command("l", Count{})
	moves.Type = "Loose"
	event := func(typ string) envelope.Message {
		m := s.command("e", Count{})
		m.Topic, m.Type, m.Payload = other.Events(), typ, []byte(`{}`)
		return m
	}
	sent := append(good, again, good[0], good[1], s.command("r", Count{Fail: "refuse"}), s.command("p", Count{Fail: "permanent"}),
		unknown, s.command("h", Count{Fail: "error"}), s.command("h", Count{N: 1}), s.command("h", Count{N: 2}), forward, back, moves,
		event("Counted"), event("Counted"), event("Other"))
	s.send(sent...)
	stop := begin()
	want := map[string]int{
		"success": 21, "duplicate": 2, "failure": 1, "exhaustedpermanent": 1, "exhaustedpoison": 1,
		"held": 5, "cancelled after hold": 1, "success after hold": 1, "handled": 2, "unhandled": 1, "later": 1,
	}
	testkit.Wait(t, "offsets", func() (bool, error) {
		return s.committed(0) == int64(len(sent)-3) && s.committedOf(other.Events(), 0) == 3, nil
	})
	s.waitCount(3, "SELECT count(*) FROM troupe.held") // back has come from there
	stop()
	fetched, ends := told.take()
	require.Equal(t, want, ends)
	require.Equal(t, len(sent), fetched)
	sum := 0
	for what, n := range ends {
		if what != "cancelled after hold" && what != "success after hold" { // they count as held already
			sum += n
		}
	}
	require.Equal(t, len(sent), sum, "some message is silent")
	left := ends["held"] - ends["cancelled after hold"] - ends["success after hold"]
	require.Equal(t, left, s.count("SELECT count(*) FROM troupe.held"))

	s.rewind()
	stop = begin()
	testkit.Wait(t, "all again", func() (bool, error) {
		told.mu.Lock()
		defer told.mu.Unlock()
		return told.ends["redelivered"]+told.ends["unhandled"] >= len(sent), nil
	})
	stop()
}

// TestStatsSayWhatAPartitionIsAt checks several partitions, of which one is written in transactions.
func TestStatsSayWhatAPartitionIsAt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(1)
	var mu sync.Mutex
	away, blocked := false, make(chan struct{})
	p := s.new(onePartition, func(c *participant.Config) {
		c.Retry, c.Immediate = retry.Policy{Initial: time.Hour, Cap: time.Hour, NoJitter: true}, -1
		c.Concurrency = 1
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		if c.Body.Fail == "block" {
			<-blocked
			c.Body.Fail = ""
		}
		if away {
			return participant.Outcome{}, retry.Unavailable("the bank", errAsked)
		}
		return count(ctx, tx, c)
	})
	require.Equal(t, participant.Stats{Group: s.hop.String()}, p.Stats())
	s.start(p)
	one := func() (one participant.PartitionStats) {
		for _, of := range p.Stats().Partitions {
			one = of
		}
		return one
	}
	until := func(what string, is func(participant.PartitionStats) bool) participant.PartitionStats {
		t.Helper()
		var last participant.PartitionStats
		testkit.Wait(t, what, func() (bool, error) {
			last = one()
			return is(last), nil
		})
		return last
	}
	s.send(s.command("a", Count{N: 1}), s.command("h", Count{N: 1, Fail: "error"}))
	want := participant.PartitionStats{Topic: s.hop.Commands(), Next: 2, End: 2, Held: 1}
	first := until("two ended", func(s participant.PartitionStats) bool {
		want.Term = s.Term
		return s == want
	})
	require.EqualValues(t, s.count("SELECT term FROM troupe.leases"), first.Term)

	old := kafka.Record(s.command("a", Count{N: 2, Fail: "block"}))
	old.Timestamp = time.Now().Add(-time.Hour)
	s.produce(old, kafka.Record(s.command("a", Count{N: 3})), kafka.Record(s.command("b", Count{N: 1})))
	got := until("one runs", func(s participant.PartitionStats) bool { return s.Running == 1 && s.Waiting == 2 })
	require.EqualValues(t, 3, got.Lag)
	require.EqualValues(t, 2, got.Next)
	require.InDelta(t, time.Hour, got.Age, float64(time.Minute))
	away = true
	close(blocked)
	got = until("the bank is away", func(s participant.PartitionStats) bool { return s.WaitsFor != "" })
	require.Equal(t, "the bank", got.WaitsFor)
	require.False(t, got.Since.IsZero())
	mu.Lock()
	away = false
	mu.Unlock()
	until("all ended", func(s participant.PartitionStats) bool {
		return s.Next == 5 && s.Lag == 0 && s.WaitsFor == "" && s.Age == 0
	})

	writer, err := kafka.NewClient(s.brokers, kgo.TransactionalID(s.hop.String()))
	require.NoError(t, err)
	defer writer.Close()
	for _, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		require.NoError(t, writer.BeginTransaction())
		require.NoError(t, writer.ProduceSync(t.Context(), kafka.Record(s.command("t", Count{N: 1}))).FirstErr())
		require.NoError(t, writer.EndTransaction(t.Context(), commit))
	}
	got = until("the end of both transactions", func(s participant.PartitionStats) bool { return s.Next == 9 })
	require.Zero(t, got.Lag)
	s.waitCount(5, "SELECT count(*) FROM done")
	testkit.Wait(t, "committed to the end", func() (bool, error) { return s.committed(0) == 9, nil })
}

// deaf dials a broker and drops requests of some kinds, such as fetches.
type deaf struct {
	network
	mu        sync.Mutex
	swallow   map[int16]bool
	swallowed int
}

func (d *deaf) set(keys ...kmsg.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.swallow = make(map[int16]bool)
	for _, k := range keys {
		d.swallow[k.Int16()] = true
	}
}

func (d *deaf) dial(ctx context.Context, kind, address string) (net.Conn, error) {
	conn, err := d.network.dial(ctx, kind, address)
	return deafConn{conn, d}, err
}

type deafConn struct {
	net.Conn
	way *deaf
}

// Write gets whole requests.
func (c deafConn) Write(b []byte) (int, error) {
	c.way.mu.Lock()
	defer c.way.mu.Unlock()
	if len(b) >= 6 && c.way.swallow[int16(binary.BigEndian.Uint16(b[4:]))] {
		c.way.swallowed++
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// kill drops requests of keys from now on, and waits until one was dropped.
func (d *deaf) kill(t testing.TB, keys ...kmsg.Key) {
	t.Helper()
	d.set(keys...)
	testkit.Wait(t, "a request that is swallowed", func() (bool, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.swallowed > 0, nil
	})
}

// grab sends the client that a participant consumes with.
type grab chan *kgo.Client

func (g grab) OnNewClient(cl *kgo.Client) {
	if cl.OptValue(kgo.ConsumerGroup) != "" {
		g <- cl
	}
}

// TestReadySaysThatConsumptionIsDead checks it while heartbeats continue.
func TestReadySaysThatConsumptionIsDead(t *testing.T) {
	t.Parallel()
	const patience = 3 * time.Second
	for name, way := range map[string]struct {
		kill, heal func(s *stage, d *deaf, cl *kgo.Client)
		idle       bool // no messages wait
		says       string
	}{
		"fetches are swallowed": {
			kill: func(s *stage, d *deaf, _ *kgo.Client) { d.kill(s.t, kmsg.Fetch) },
			heal: func(_ *stage, d *deaf, _ *kgo.Client) { d.set() },
			says: "nothing was fetched for",
		},
		"a partition is paused and never resumed": {
			kill: func(s *stage, _ *deaf, cl *kgo.Client) { cl.PauseFetchTopics(s.hop.Commands()) },
			heal: func(s *stage, _ *deaf, cl *kgo.Client) { cl.ResumeFetchTopics(s.hop.Commands()) },
			says: "messages are there from offset 1 on",
		},
		"a broker that says nothing but heartbeats": {
			kill: func(s *stage, d *deaf, _ *kgo.Client) { d.kill(s.t, kmsg.Fetch, kmsg.ListOffsets) },
			heal: func(_ *stage, d *deaf, _ *kgo.Client) { d.set() },
			idle: true,
			says: "the broker does not say what there is",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			d, clients := &deaf{}, make(grab, 9)
			p := s.new(onePartition, func(c *participant.Config) {
				c.Kafka = append(c.Kafka, kgo.Dialer(d.dial), kgo.WithHooks(clients), kgo.FetchMaxWait(100*time.Millisecond))
			})
			p.Patience(patience)
			participant.Handle(p, count)
			s.start(p)
			s.send(s.command("a", Count{N: 1}))
			s.waitCount(1, "SELECT count(*) FROM done")
			testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
			cl := <-clients
			for len(clients) > 0 { // the last one
				cl = <-clients
			}
			way.kill(s, d, cl)
			if !way.idle {
				s.send(s.command("a", Count{N: 2}))
			}
			// On a slow machine the client may give up a connection that does not answer, and the group with it for a moment.
			testkit.Wait(t, "not ready for that reason, as a member", func() (bool, error) {
				why := fmt.Sprint(p.Ready())
				return strings.Contains(why, "is stalled") && strings.Contains(why, way.says) && p.Assigned() == 1, nil
			})
			way.heal(s, d, cl)
			if way.idle {
				s.send(s.command("a", Count{N: 2}))
			}
			s.waitCount(2, "SELECT count(*) FROM done")
			testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, nil })
		})
	}
}

// TestReadySaysThatALeaseDoesNotCome checks a pool all of whose connections are in use.
func TestReadySaysThatALeaseDoesNotCome(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition)
	p.Patience(time.Second)
	participant.Handle(p, count)
	s.provision(1)
	s.send(s.command("a", Count{N: 1}))
	release := s.exhaust()
	s.start(p)
	waitUnready(t, p, "its lease was not got")
	release()
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, nil })
}

// exhaust acquires all connections of the stage's pool.
func (s *stage) exhaust() (release func()) {
	var all []interface{ Release() }
	for range s.pool.Config().MaxConns {
		c, err := s.pool.Acquire(s.t.Context())
		require.NoError(s.t, err)
		all = append(all, c)
	}
	return func() {
		for _, c := range all {
			c.Release()
		}
	}
}

// TestReadyIsNoAlarmWhileThereIsWork checks that slow handlers, messages that wait behind them and for their retry, and empty
// topics do not count as a stall.
func TestReadyIsNoAlarmWhileThereIsWork(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(4)
	p := s.new(func(c *participant.Config) {
		c.Concurrency, c.Partitions = 1, 4
		c.Retry, c.Immediate = retry.Policy{Initial: time.Hour, Cap: time.Hour, NoJitter: true}, -1
	})
	p.Patience(10 * time.Second)
	participant.Handle(p, loose, participant.RetryTopics(time.Hour))
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if _, err := tx.Exec(ctx, "SELECT pg_sleep(2.2)"); err != nil { // twice as slow as patience, for all that wait
			return participant.Outcome{}, err
		}
		return count(ctx, tx, c)
	})
	s.start(p)
	waitFor(t, "the leases of four partitions and of four to retry", func() bool {
		parts := p.Stats().Partitions
		return len(parts) == 8 && !slices.ContainsFunc(parts, func(s participant.PartitionStats) bool { return s.Term == 0 })
	})
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, nil })
	var all []*kgo.Record
	for _, key := range s.keys(3) { // one partition has none
		for n := range 3 {
			fail := ""
			if n == 2 {
				fail = "error"
			}
			all = append(all, kafka.Record(s.command(key, Count{N: n + 1, Fail: fail})))
		}
	}
	waits := s.command("l", Count{})
	waits.Topic, waits.Type = s.hop.Retry(time.Hour), "Loose"
	all = append(all, kafka.Record(waits))
	require.NoError(t, s.client.ProduceSync(t.Context(), all...).FirstErr())
	waitFor(t, "a message that is not due", func() bool {
		return slices.ContainsFunc(p.Stats().Partitions, func(s participant.PartitionStats) bool { return s.Later == 1 && s.Paused })
	})
	testkit.Wait(t, "all ended", func() (bool, error) {
		require.NoError(t, p.Ready())
		return s.count("SELECT count(*) FROM done") == 6 && s.count("SELECT count(*) FROM troupe.held") == 3, nil
	})
}
