package participant_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
)

// TestAMessageThatKillsItsProcessIsPoison checks that the first crash counts for no message; after five more in
// quarantine the message is a dead letter, and the messages that came with it take effect once.
func TestAMessageThatKillsItsProcessIsPoison(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.batch = 10
	s.provision(1)
	s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 1, Fail: "kill"}), s.command("c", Count{N: 1}),
		s.command("b", Count{N: 2}), s.command("a", Count{N: 2}))
	for range 6 {
		s.member("", 0).killed(t)
	}
	last := s.member("", 0)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison' AND error = 'the process ended 5 times while this message ran'")
	s.waitCount(4, "SELECT count(*) FROM done")
	require.Equal(t, 1, s.count("SELECT count(*) FROM counters WHERE key = 'b' AND total = 1"))
	s.waitCount(0, "SELECT count(*) FROM troupe.started")
	last.terminate(t)
}

// TestADependencyThatIsAwayIsNoCrash checks that a held message after a crash, whose bank is away more often than a message may end its
// process, is no poison.
func TestADependencyThatIsAwayIsNoCrash(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var tries atomic.Int32
	p := s.new(onePartition, func(c *participant.Config) { c.Immediate = -1 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		switch n := tries.Add(1); {
		case n == 1:
			return participant.Outcome{}, errAsked
		case n < 12:
			return participant.Outcome{}, retry.Unavailable("the bank", errAsked)
		}
		return count(ctx, tx, c)
	})
	s.provision(1)
	_, err := s.pool.Exec(t.Context(), `
		INSERT INTO troupe.leases (consumer_group, topic, partition, owner) VALUES ($1, $2, 0, 'one that crashed')`,
		s.hop.String(), s.hop.Commands())
	require.NoError(t, err)
	s.send(s.command("a", Count{N: 1}))
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM done")
	s.waitCount(0, "SELECT count(*) FROM troupe.started")
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
}

// TestCrashesWhileADependencyIsAwayMakeNoPoison: the bank is away for so long that the process ends more often than a message may end it. Each run
// of the messages ends, with no attempt counted, before the process does.
func TestCrashesWhileADependencyIsAwayMakeNoPoison(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string]int{"one by one": 1, "in a batch": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			s.exec("INSERT INTO troupe.leases (consumer_group, topic, partition, owner) VALUES ($1, $2, 0, 'one that crashed')", s.hop.String(), s.hop.Commands())
			s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 1}), s.command("a", Count{N: 2}))
			var back atomic.Bool
			start := func() (p *participant.Participant, stop func()) {
				p = s.new(onePartition, func(c *participant.Config) { c.Batch = batch })
				participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
					if !back.Load() {
						return participant.Outcome{}, retry.Unavailable("the bank", errAsked)
					}
					return count(ctx, tx, c)
				})
				return p, s.start(p)
			}
			for range 8 {
				p, stop := start()
				waitFor(t, "the bank to be missed", func() bool {
					stats := p.Stats().Partitions
					return len(stats) == 1 && stats[0].WaitsFor == "the bank"
				})
				stop()
				s.exec("UPDATE troupe.leases SET released_at = NULL") // as after a crash
			}
			back.Store(true)
			start()
			s.waitCount(3, "SELECT count(*) FROM done")
			s.waitCount(0, "SELECT count(*) FROM troupe.started")
			require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters"))
		})
	}
}

// TestAKillerAmongManyCostsItsGroupOnly checks for one start in its group and four alone; the others of that group run
// alone once, and messages of other groups never.
func TestAKillerAmongManyCostsItsGroupOnly(t *testing.T) {
	t.Parallel()
	const keys, each, batch = 75, 4, 100
	s := newStage(t)
	s.provision(1)
	s.send(append([]envelope.Message{s.command("killer", Count{N: 1, Fail: "kill"})}, s.commands(keys, each)...)...)
	member := func() *process { return s.memberOf(task{Batch: batch, Concurrency: 1, Tell: true}) }
	logs := make([]string, 0, 7)
	for range 6 {
		m := member()
		m.killed(t)
		logs = append(logs, m.log.String())
	}
	last := member()
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison' AND error = 'the process ended 5 times while this message ran'")
	s.waitCount(keys*each, "SELECT count(*) FROM done")
	s.waitCount(0, "SELECT count(*) FROM troupe.started")
	last.terminate(t)
	logs = append(logs, last.log.String())

	require.Equal(t, keys, s.count("SELECT count(*) FROM counters WHERE total = $1", each))
	require.Zero(t, s.count(`
		SELECT count(*) FROM (SELECT n, lag(n, 1, 0) OVER (PARTITION BY key ORDER BY position) AS before FROM done) AS d
		WHERE n <> before + 1`), "out of order within a key")
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.dead_letters"))
	all := strings.Join(logs, "")
	transactions, alone := strings.Count(all, "transaction of "), strings.Count(all, "transaction of 1\n")
	t.Logf("%d transactions, %d of them of one message", transactions, alone)
	require.GreaterOrEqual(t, alone, 4, "the killer's own")
	require.LessOrEqual(t, alone, 4+batch-1+1, "its group's too, and what a batch leaves over")
	require.LessOrEqual(t, transactions-alone, 2+2*each, "the two that it killed, and messages that were never suspected")
}

// TestANeighbourOfFiveKillersIsNoPoison checks a message of their group, which waits behind them through all their
// crashes.
func TestANeighbourOfFiveKillersIsNoPoison(t *testing.T) {
	t.Parallel()
	const killers = 5
	s := newStage(t)
	s.provision(1)
	var all []envelope.Message
	for k := range killers {
		all = append(all, s.command(fmt.Sprintf("killer-%d", k), Count{N: 1, Fail: "kill"}))
	}
	s.send(append(all, s.command("neighbour", Count{N: 1}))...)
	member := func() *process { return s.memberOf(task{Batch: 10, Concurrency: 1}) }
	member().killed(t)
	member().killed(t)
	require.Equal(t, killers+1, s.count("SELECT count(*) FROM troupe.started WHERE starts = 1"), "the group's")
	_, err := s.pool.Exec(t.Context(), `UPDATE troupe.started SET starts = 4 WHERE "offset" < $1`, killers) // as if they had had their turns
	require.NoError(t, err)
	for range killers {
		require.Equal(t, 1, s.count(`SELECT starts FROM troupe.started WHERE "offset" = $1`, killers), "it has not run")
		member().killed(t)
	}
	last := member()
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'neighbour'")
	s.waitCount(0, "SELECT count(*) FROM troupe.started")
	require.Equal(t, killers, s.count("SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'poison'"))
	require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters WHERE convert_from(key, 'UTF8') = 'neighbour'"))
	last.terminate(t)
}

// crash makes the last owner of each partition one that crashed, with marks of messages at offsets.
func (s *stage) crash(partitions int32, marked ...int64) {
	s.t.Helper()
	s.provision(partitions)
	_, err := s.pool.Exec(s.t.Context(), `
		WITH l AS (
			INSERT INTO troupe.leases (consumer_group, topic, partition, owner)
			SELECT $1, $2, p, 'one that crashed' FROM generate_series(0, $3 - 1) AS p RETURNING id
		)
		INSERT INTO troupe.started (lease_id, topic_id, "offset") SELECT id, $4, o FROM l, unnest($5::bigint[]) AS o`,
		s.hop.String(), s.hop.Commands(), partitions, s.waitTopic(s.hop.Commands()), marked)
	require.NoError(s.t, err)
}

// watched records the transactions of a participant.
type watched struct {
	mu       sync.Mutex
	open     int
	suspect  bool            // an open one has a suspected message
	beside   bool            // a suspected message ran with another one, in its transaction or at the same time
	alone    map[int64]int   // the runs of an offset in transactions of one
	starts   map[int64][]int // the starts in its mark in each run; 0: it had none
	together int             // transactions with more messages
}

func (s *stage) watch(c *participant.Config) *watched {
	w := &watched{alone: make(map[int64]int), starts: make(map[int64][]int)}
	c.Hooks.Transaction = func(ctx context.Context, ds []participant.Delivery) (context.Context, func(error)) {
		w.mu.Lock()
		defer w.mu.Unlock()
		starts := 0
		for _, d := range ds {
			n := s.count(`
				SELECT coalesce(max(s.starts), 0) FROM troupe.started AS s JOIN troupe.leases AS l ON l.id = s.lease_id
				WHERE s."offset" = $1 AND l.partition = $2`, d.Offset, d.Partition)
			w.starts[d.Offset] = append(w.starts[d.Offset], n)
			starts = max(starts, n)
		}
		suspected := starts > 1
		w.beside = w.beside || w.suspect || suspected && (w.open > 0 || len(ds) > 1)
		w.open++
		w.suspect = suspected
		if len(ds) == 1 {
			w.alone[ds[0].Offset]++
		} else {
			w.together++
		}
		return ctx, func(error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.open--
			w.suspect = false
		}
	}
	return w
}

// TestOnlySuspectsRunAloneAfterACrash checks that messages with a mark each run alone in the process; the others run in groups,
// each with a mark before it runs.
func TestOnlySuspectsRunAloneAfterACrash(t *testing.T) {
	t.Parallel()
	const each = 30
	for batch, want := range map[int]struct{ alone, together int }{
		20: {alone: 3, together: 4}, // 0-4, 7-16, 18-19, 20-29
		1:  {alone: each},
	} {
		t.Run(fmt.Sprintf("%d at once", batch), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.crash(2, 5, 6, 17)
			_, err := s.pool.Exec(t.Context(), `
				INSERT INTO troupe.started (lease_id, topic_id, "offset", started_at)
				SELECT id, gen_random_uuid(), 0, clock_timestamp() - interval '25 hours' FROM troupe.leases`) // too old to count
			require.NoError(t, err)
			var w *watched
			p := s.new(func(c *participant.Config) { c.Batch = batch; w = s.watch(c) })
			participant.Handle(p, count)
			for _, key := range s.keys(2) {
				var all []envelope.Message
				for n := range each {
					all = append(all, s.command(key, Count{N: n + 1}))
				}
				s.send(all...)
			}
			stop := s.start(p)
			s.expectAll(2, each)
			stop()
			require.Zero(t, s.count("SELECT count(*) FROM troupe.started"))
			require.False(t, w.beside, "another message ran together with a suspected one")
			require.Len(t, w.alone, want.alone)
			require.Equal(t, 2*want.together, w.together)
			for offset, starts := range w.starts {
				n := 1
				if offset == 5 || offset == 6 || offset == 17 {
					n = 2
				}
				require.Equal(t, []int{n, n}, starts, "in each partition, of offset %d", offset)
			}
		})
	}
}

// TestAnErrorInAGroupIsNoCrash checks that a failing message runs alone, that only such runs are attempts, and that the other
// messages are not suspected.
func TestAnErrorInAGroupIsNoCrash(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.crash(1)
	var w *watched
	p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Immediate = 10, -1; w = s.watch(c) })
	participant.Handle(p, count)
	all := s.commands(10, 1)
	all[4] = s.command("bad", Count{N: 1, Fail: "error"})
	s.send(all...)
	stop := s.start(p)
	s.waitCount(9, "SELECT count(*) FROM done WHERE attempt = 1")
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE attempts = 4 AND error_class = 'transient'")
	s.waitCount(0, "SELECT count(*) FROM troupe.started")
	stop()
	require.Equal(t, map[int64]int{4: 4}, w.alone)
	require.Equal(t, 3, w.together, "all, those before it, those behind it")
	for offset, starts := range w.starts {
		for _, n := range starts {
			require.Equal(t, 1, n, "offset %d", offset)
		}
	}
}

// TestADependencyThatIsAwayIsNoCrashOfAGroup checks a dependency that is away more often than a message may end its process.
func TestADependencyThatIsAwayIsNoCrashOfAGroup(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.crash(1)
	var tries atomic.Int32
	var w *watched
	p := s.new(onePartition, func(c *participant.Config) { c.Batch = 10; w = s.watch(c) })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if string(c.Message.Key) == "k-5" && tries.Add(1) < 8 {
			return participant.Outcome{}, retry.Unavailable("the bank", errAsked)
		}
		return count(ctx, tx, c)
	})
	s.send(s.commands(10, 1)...)
	stop := s.start(p)
	s.expectAll(10, 1)
	s.waitCount(0, "SELECT count(*) FROM troupe.started")
	stop()
	require.Empty(t, w.alone)
	require.Equal(t, []int{1, 1, 1, 1, 1, 1, 1, 1}, w.starts[5])
}

// TestMessagesWrittenAfterACrashRunWithoutMarks checks that later messages run without marks, since they cannot have caused the
// crash, even while earlier ones are held.
func TestMessagesWrittenAfterACrashRunWithoutMarks(t *testing.T) {
	t.Parallel()
	for fail, left := range map[string]int{"": 0, "error": 512 - 11} {
		t.Run("a message's end: "+fail, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.crash(1)
			s.send(append(s.commands(5, 2), s.command("other", Count{N: 1, Fail: fail}))...)
			var w *watched
			p := s.new(onePartition, func(c *participant.Config) {
				c.Batch, c.Immediate = 20, -1
				c.Retry = retry.Policy{Initial: time.Hour, Cap: time.Hour, NoJitter: true}
				w = s.watch(c)
			})
			participant.Handle(p, count)
			stop := s.start(p)
			s.waitCount(10, "SELECT count(*) FROM done WHERE key <> 'other'")
			waitFor(t, "what there was has ended", func() bool { return p.Stats().Partitions[0].Quarantined == left })
			s.send(s.commandsFrom(2, 5, 2)...)
			s.waitCount(20, "SELECT count(*) FROM done WHERE key <> 'other'")
			stop()
			for offset := range int64(21) {
				want := 1
				if offset >= 11 {
					want = 0
				}
				require.Equal(t, want, w.starts[offset][0], "offset %d", offset)
			}
		})
	}
}

// TestTheQuarantineHasAllMessagesThatMayHaveRun checks batches of which one alone has more messages than the quarantine by default.
func TestTheQuarantineHasAllMessagesThatMayHaveRun(t *testing.T) {
	t.Parallel()
	const batch = 600
	s := newStage(t)
	s.provision(1)
	_, err := s.pool.Exec(t.Context(), `
		INSERT INTO troupe.leases (consumer_group, topic, partition, owner) VALUES ($1, $2, 0, 'one that crashed')`,
		s.hop.String(), s.hop.Commands())
	require.NoError(t, err)
	s.send(s.commands(2*batch, 1)...)
	var mu sync.Mutex
	var unmarked []int64
	p := s.new(onePartition, func(c *participant.Config) {
		c.Batch, c.Concurrency = batch, 1
		c.Hooks.BeforeHandler = func(d participant.Delivery) {
			var marked bool
			err := s.pool.QueryRow(context.Background(), `SELECT EXISTS (SELECT FROM troupe.started WHERE "offset" = $1)`, d.Offset).Scan(&marked)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || !marked {
				unmarked = append(unmarked, d.Offset)
			}
		}
	})
	participant.Handle(p, count)
	s.start(p)
	s.waitCount(2*batch, "SELECT count(*) FROM done")
	mu.Lock()
	defer mu.Unlock()
	require.Empty(t, unmarked)
}

// TestMessagesWithoutSuspicionRunConcurrentlyAfterACrash checks a quarantine without batches: messages of which none ended its process
// before do not wait for each other. Each handler ends once all three have begun.
func TestMessagesWithoutSuspicionRunConcurrentlyAfterACrash(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.crash(2)
	keys := s.keys(2)
	for _, key := range append(keys, "another") {
		s.send(s.command(key, Count{N: 1}))
	}
	var begun atomic.Int32
	all := make(chan struct{})
	p := s.new(func(c *participant.Config) { c.Immediate = -1 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if begun.Add(1) == 3 {
			close(all)
		}
		select {
		case <-all:
			return count(ctx, tx, c)
		case <-ctx.Done():
			return participant.Outcome{}, ctx.Err()
		}
	})
	s.start(p)
	s.waitCount(3, "SELECT count(*) FROM done WHERE attempt = 1")
	s.waitCount(0, "SELECT count(*) FROM troupe.started")
}
