package participant_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
)

// TestABadMessageOfABatchCostsOnlyItself checks that a message that fails in a batch runs alone, and only those runs count,
// so that N failing messages have exactly N times as many as the policy allows.
func TestABadMessageOfABatchCostsOnlyItself(t *testing.T) {
	t.Parallel()
	const keys, bad, attempts = 200, 7, 4
	s := newStage(t)
	var mu sync.Mutex
	alone, batches := 0, 0
	p := s.new(onePartition, func(c *participant.Config) {
		c.Batch = 100
		c.Hooks.BeforeHandler = func(d participant.Delivery) {
			mu.Lock()
			defer mu.Unlock()
			if d.Batch > 1 {
				batches++
			} else if string(d.Message.Key) < "k-007" {
				alone++
			}
		}
	})
	participant.Handle(p, count)
	s.provision(1)
	var all []envelope.Message
	for n := range 3 {
		for k := range keys {
			fail := ""
			if k < bad && n == 0 {
				fail = "error"
			}
			all = append(all, s.command(fmt.Sprintf("k-%03d", k), Count{N: n + 1, Fail: fail}))
		}
	}
	s.send(all...)
	s.start(p)
	s.waitCount(3*keys-bad, "SELECT count(*) FROM done")
	s.waitCount(bad, "SELECT count(*) FROM troupe.dead_letters WHERE attempts = $1", attempts)
	s.waitCount(0, "SELECT count(*) FROM troupe.held")
	require.Equal(t, keys-bad, s.count("SELECT count(*) FROM counters WHERE total = 3"))
	require.Equal(t, bad, s.count("SELECT count(*) FROM counters WHERE total = 2"))
	require.Zero(t, s.count(`
		SELECT count(*) FROM (SELECT n, lag(n) OVER (PARTITION BY key ORDER BY position) AS before FROM done) AS d WHERE n < before`))
	require.Equal(t, 3*keys, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1", s.hop.Events()), "an outcome each")
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, bad*attempts, alone, "the failing ones by themselves; the messages behind them share transactions again")
	require.Positive(t, batches)
}

// TestDuplicatesWithinABatch checks a message that comes twice in one transaction: it takes effect once.
func TestDuplicatesWithinABatch(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition, func(c *participant.Config) { c.Batch = 100 })
	participant.Handle(p, count)
	s.provision(1)
	a, b := s.command("a", Count{N: 1}), s.command("b", Count{N: 1})
	s.send(a, b, a, b, a, s.command("a", Count{N: 2}), s.command("b", Count{N: 2}))
	s.start(p)
	s.expectAll(2, 2)
}

// TestQueuedStatementsArePartOfTheRun checks that queued statements keep their order, transaction and errors.
func TestQueuedStatementsArePartOfTheRun(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition, func(c *participant.Config) { c.Batch = 10 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		key := string(c.Message.Key)
		if err := participant.Queue(ctx, tx, "INSERT INTO done (key, n, attempt) VALUES ($1, $2, 0)", key, c.Body.N); err != nil {
			return participant.Outcome{}, err
		}
		switch c.Body.Fail {
		case "queued":
			_ = participant.Queue(ctx, tx, "INSERT INTO counters (key) VALUES (NULL)")
		case "read":
			var n int
			err := tx.QueryRow(ctx, "SELECT count(*) FROM done WHERE key = $1", key).Scan(&n)
			return participant.Succeed(Counted{Total: n}), err
		case "savepoint":
			inner, err := tx.Begin(ctx)
			if err != nil {
				return participant.Outcome{}, err
			}
			if _, err := inner.Exec(ctx, "INSERT INTO counters (key) VALUES (NULL)"); err == nil {
				return participant.Outcome{}, errAsked
			}
			return participant.Succeed(Counted{Total: 1}), inner.Rollback(ctx)
		case "commit":
			return participant.Succeed(Counted{}), tx.Commit(ctx)
		}
		return participant.Succeed(Counted{}), nil
	})
	s.provision(1)
	s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 1, Fail: "queued"}), s.command("c", Count{N: 1, Fail: "read"}),
		s.command("d", Count{N: 1, Fail: "savepoint"}), s.command("e", Count{N: 1, Fail: "commit"}))
	s.start(p)
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error_class = 'permanent' AND error LIKE '%null value%'")
	s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE error LIKE '%is committed by the participant%'")
	s.waitCount(3, "SELECT count(*) FROM done")
	require.Equal(t, 2, s.count("SELECT count(*) FROM troupe.outbox WHERE topic = $1 AND convert_from(payload, 'UTF8') LIKE '%\"total\":1%'", s.hop.Events()))
}

// TestTheSameCommandUnderAnotherIDIsAnsweredAlike checks that a command with an idempotency key that was answered gets the same
// answer, and that its handler does not run twice.
func TestTheSameCommandUnderAnotherIDIsAnsweredAlike(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		s := newStage(t)
		p := s.new(onePartition, func(c *participant.Config) { c.Batch = batch })
		participant.Handle(p, count)
		s.provision(1)
		first := s.command("a", Count{N: 1})
		refused := s.command("b", Count{N: 1, Fail: "refuse"})
		again, still := first, refused
		again.ID, still.ID = envelope.NewID(), envelope.NewID()
		s.send(first, refused, again, still)
		s.start(p)
		events := s.waitEvents(4)
		require.Equal(t, 2, s.count("SELECT count(*) FROM done"))
		answers := make(map[string]envelope.Message)
		for _, e := range events {
			answers[e.CausationID] = e
		}
		for _, pair := range [][2]envelope.Message{{first, again}, {refused, still}} {
			one, two := answers[pair[0].ID], answers[pair[1].ID]
			require.NotEqual(t, one.ID, two.ID)
			require.Equal(t, one.Payload, two.Payload)
			require.Equal(t, one.Outcome, two.Outcome)
			require.Equal(t, one.Type, two.Type)
			require.Equal(t, one.IdempotencyKey, two.IdempotencyKey)
		}
	}
}

// TestRepeatedCommandsWithLargeAnswersAreAnsweredAlone checks that commands whose stored answers are too large for one transaction are answered.
func TestRepeatedCommandsWithLargeAnswersAreAnsweredAlone(t *testing.T) {
	t.Parallel()
	const commands = 80
	s := newStage(t)
	p := s.new(onePartition, func(c *participant.Config) { c.Batch = 100 })
	participant.Handle(p, count)
	s.provision(1)
	var all []envelope.Message
	for n := range commands {
		all = append(all, s.command(strconv.Itoa(n), Count{N: 1}))
	}
	s.send(all...)
	s.start(p)
	s.waitEvents(commands)
	_, err := s.pool.Exec(t.Context(), "UPDATE troupe.answers SET payload = decode(repeat('78', 900000), 'hex')")
	require.NoError(t, err)
	for n := range all {
		all[n].ID = envelope.NewID()
	}
	s.send(all...)
	s.waitCount(commands, "SELECT count(*) FROM troupe.outbox WHERE octet_length(payload) = 900000")
	require.Equal(t, commands, s.count("SELECT count(*) FROM done"), "no handler ran twice")
}

// TestABatchWithLargeAnswersIsDivided checks that a few bytes of commands cannot ask for gigabytes of answers, or of statements that handlers queue,
// in one transaction, and that such commands still run in batches.
func TestABatchWithLargeAnswersIsDivided(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 900_000)
	type text struct{ Text string }
	answer := func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
		return participant.Succeed(text{large}), nil
	}
	var failed atomic.Bool
	for name, handle := range map[string]func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error){
		"answers": answer,
		"statements": func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
			const insert = "INSERT INTO counters (key, total) SELECT $1, length($2)"
			return participant.Succeed(Counted{}), participant.Queue(ctx, tx, insert, string(c.Message.Key), large)
		},
		"answers before a message that fails": func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
			if c.Message.Key[0] == '!' && !failed.Swap(true) {
				return participant.Outcome{}, errAsked
			}
			return answer(ctx, tx, c)
		},
	} {
		const commands = 200
		s := newStage(t)
		var most atomic.Int64
		p := s.new(onePartition, func(c *participant.Config) {
			c.Batch = commands
			c.Hooks.AfterCommit = func(d participant.Delivery) { most.Store(max(most.Load(), int64(d.Batch))) }
		})
		participant.Handle(p, handle)
		s.provision(1)
		var all []envelope.Message
		for n := range commands - 1 {
			all = append(all, s.command(strconv.Itoa(n), Count{N: 1}))
		}
		s.send(append(all, s.command("!", Count{N: 1}))...) // this key is the first that a batch handles
		s.start(p)
		s.waitCount(commands, "SELECT count(*) FROM troupe.outbox")
		require.LessOrEqual(t, most.Load()*900_000, int64(65<<20), name)
		require.GreaterOrEqual(t, most.Load(), int64(commands/5), name)
	}
}

// TestAnAnswerComesBeforeWhatItsKeyDoesNext checks, also in one transaction, that a consumer of the events gets them in the
// order in which they happened, even if a handler's own statement writes to the outbox.
func TestAnAnswerComesBeforeWhatItsKeyDoesNext(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition, func(c *participant.Config) { c.Batch = 100 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		_, err := tx.Exec(ctx, "INSERT INTO troupe.outbox (topic, key, type) VALUES ($1, $2, 'Counting')", s.hop.Events(), string(c.Message.Key))
		return participant.Succeed(Counted{N: c.Body.N}), err
	})
	s.provision(1)
	s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 1}), s.command("a", Count{N: 2}), s.command("b", Count{N: 2}))
	s.start(p)
	types := make(map[string][]string)
	for _, e := range s.waitEvents(8) {
		types[string(e.Key)] = append(types[string(e.Key)], e.Type)
	}
	inOrder := []string{"Counting", "Counted", "Counting", "Counted"}
	require.Equal(t, map[string][]string{"a": inOrder, "b": inOrder}, types)
	require.Equal(t, 1, s.count("SELECT count(DISTINCT xid) FROM troupe.outbox"), "one transaction")
}

// TestASavepointTakesOnlyItsOwnBack checks that a rollback to a handler's savepoint keeps the answer of the message before it.
func TestASavepointTakesOnlyItsOwnBack(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	p := s.new(onePartition, func(c *participant.Config) { c.Batch = 100 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if _, err := tx.Exec(ctx, "SAVEPOINT mine"); err != nil {
			return participant.Outcome{}, err
		}
		if err := p.Outbox().Write(ctx, tx, entry("elsewhere", Counted{})); err != nil {
			return participant.Outcome{}, err
		}
		_, err := tx.Exec(ctx, "ROLLBACK TO mine")
		return participant.Succeed(Counted{N: c.Body.N}), err
	})
	s.provision(1)
	s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 1}), s.command("b", Count{N: 2}), s.command("c", Count{N: 1}))
	s.start(p)
	s.waitEvents(4)
	require.Empty(t, s.entries("elsewhere"))
	require.Equal(t, 1, s.count("SELECT count(DISTINCT xid) FROM troupe.outbox"), "one transaction")
}

// TestLessThanABatchWaitsForWhatRuns checks for one more transaction, and not one for each message that came meanwhile.
func TestLessThanABatchWaitsForWhatRuns(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const waiting = 10
	var transactions atomic.Int32
	began, end := make(chan struct{}), make(chan struct{})
	begins := sync.OnceFunc(func() { close(began) })
	p := s.new(onePartition, func(c *participant.Config) {
		c.Batch, c.Concurrency, c.Timeout = 100, 4, 5*time.Minute
		c.Hooks.Transaction = func(ctx context.Context, _ []participant.Delivery) (context.Context, func(error)) {
			transactions.Add(1)
			return ctx, func(error) {}
		}
	})
	p.Gather(time.Hour)
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if string(c.Message.Key) == "slow" {
			begins()
			<-end
		}
		return count(ctx, tx, c)
	})
	s.provision(1)
	s.start(p)
	s.send(s.command("slow", Count{N: 1}))
	<-began
	for n := range waiting {
		s.send(s.command(fmt.Sprint("k-", n), Count{N: 1}))
		s.waitAll("fetched", n+2, p.Backlog)
	}
	close(end)
	s.waitCount(waiting+1, "SELECT count(*) FROM done")
	require.Equal(t, int32(2), transactions.Load())
}

// TestAnEventOfALaterHandlerComesBehindTheAnswerOfAnEarlierOne checks messages of one key in one batch, also if the later one's
// event is written within a savepoint.
func TestAnEventOfALaterHandlerComesBehindTheAnswerOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	for _, savepoint := range []bool{false, true} {
		s := newStage(t)
		p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Concurrency, c.Immediate = 10, 1, -1 })
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
			if string(c.Message.Key) == "a" {
				return participant.Succeed(Counted{N: c.Body.N}), nil
			}
			e := outbox.Entry{Topic: s.hop.Events(), Key: "a", Body: TooMany{Limit: c.Body.N}}
			if !savepoint {
				return participant.Succeed(Counted{N: c.Body.N}), p.Outbox().Write(ctx, tx, e)
			}
			return participant.Succeed(Counted{N: c.Body.N}), pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return p.Outbox().Write(ctx, tx, e) })
		})
		s.provision(1)
		s.send(s.command("a", Count{N: 1}), s.command("b", Count{N: 2}), s.command("c", Count{N: 3}))
		s.start(p)
		s.waitEvents(5)
		s.send(s.command("a", Count{N: 4}), s.command("b", Count{N: 5}))
		var of []string
		for _, e := range s.waitEvents(8) {
			if string(e.Key) == "a" {
				of = append(of, string(e.Payload))
			}
		}
		require.Equal(t, []string{`{"n":1,"total":0}`, `{"limit":2}`, `{"limit":3}`, `{"n":4,"total":0}`, `{"limit":5}`}, of)
		require.Zero(t, s.count("SELECT count(*) FROM troupe.held"), "it is no failed attempt")
	}
}
