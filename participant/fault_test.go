package participant_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

type countHandler = func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error)

// mistakes has handlers that fail by their own fault, in ways that look like the database's.
var mistakes = map[string]countHandler{
	"its own time-out, and no error": func(ctx context.Context, tx pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
		quick, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		_, _ = tx.Exec(quick, "SELECT pg_sleep(3)") // short, in case a cancel request that comes before it is lost
		if !tx.Conn().IsClosed() {
			return participant.Outcome{}, errors.New("the time-out was over before the statement began")
		}
		return participant.Refuse(TooMany{}), nil
	},
	"rows left open": func(ctx context.Context, tx pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
		rows, err := tx.Query(ctx, "SELECT generate_series(1, 10)")
		if err != nil {
			return participant.Outcome{}, err
		}
		rows.Next()
		return participant.Succeed(Counted{}), nil
	},
	"batch results left open": func(ctx context.Context, tx pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
		var b pgx.Batch
		b.Queue("SELECT 1")
		tx.SendBatch(ctx, &b)
		return participant.Succeed(Counted{}), nil
	},
	"a limit of the server's (53400)": func(ctx context.Context, tx pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
		_, err := tx.Exec(ctx, `SET LOCAL temp_file_limit = '64kB'; SET LOCAL work_mem = '64kB';
			SELECT n FROM generate_series(1, 100000) AS n ORDER BY md5(n::text) OFFSET 99999`)
		return participant.Succeed(Counted{}), err
	},
	"no memory (53200), at the commit": func(ctx context.Context, tx pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
		return participant.Succeed(Counted{}), participant.Queue(ctx, tx, "DO $$ BEGIN RAISE 'as asked' USING ERRCODE = '53200'; END $$")
	},
	"another database shuts down (57P01)": func(ctx context.Context, tx pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
		other, err := pgx.ConnectConfig(ctx, tx.Conn().Config())
		if err != nil {
			return participant.Outcome{}, err
		}
		defer other.Close(ctx)
		_, err = other.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
		return participant.Succeed(Counted{}), err
	},
	"it ends its own session": func(ctx context.Context, tx pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
		_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
		return participant.Succeed(Counted{}), err
	},
	"a queued argument that is none": func(ctx context.Context, tx pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
		return participant.Succeed(Counted{}), participant.Queue(ctx, tx, "INSERT INTO done (key, n, attempt) VALUES ('a', $1, 0)", make(chan int))
	},
	"an error that it keeps to itself": func(ctx context.Context, tx pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
		_, _ = tx.Exec(ctx, "SELECT 1/0")
		return participant.Succeed(Counted{}), nil
	},
	"a goroutine that goes on": func(_ context.Context, tx pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
		began := make(chan struct{})
		go func() {
			rows := pgx.CopyFromFunc(func() ([]any, error) {
				select {
				case <-began:
				default:
					close(began)
				}
				return []any{"leaked", 1, 1}, nil
			})
			_, _ = tx.CopyFrom(context.Background(), pgx.Identifier{"done"}, []string{"key", "n", "attempt"}, rows)
		}()
		<-began
		return participant.Succeed(Counted{}), nil
	},
	"runtime.Goexit": func(context.Context, pgx.Tx, participant.Command[Count]) (participant.Outcome, error) {
		runtime.Goexit()
		return participant.Outcome{}, nil
	},
}

// TestHandlersMistakeIsNoOutage checks that its attempts are counted, and that neither its partition nor its batch stops.
func TestHandlersMistakeIsNoOutage(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		s := newStage(t)
		s.provision(1)
		s.send(s.mistakesAmongOthers()...)
		s.makeMistakes(batch)
	}
}

// TestHandlersMistakeIsNoOutageOfLocalWork checks local work, of which an outage would stop all.
func TestHandlersMistakeIsNoOutageOfLocalWork(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	for _, m := range s.mistakesAmongOthers() {
		var c Count
		require.NoError(t, json.Unmarshal(m.Payload, &c))
		s.write(string(m.Key), c)
	}
	s.makeMistakes(10)
}

// TestAQueuedStatementThatIsNotSentCommitsNothing runs, after a handler that queues an argument that cannot be encoded, one that ignores the error
// of its own statement, with which the queued one is sent.
func TestAQueuedStatementThatIsNotSentCommitsNothing(t *testing.T) {
	t.Parallel()
	for name, ignores := range map[string]countHandler{
		"Exec": func(ctx context.Context, tx pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
			_, _ = tx.Exec(ctx, "SELECT 1")
			return participant.Succeed(Counted{}), nil
		},
		"Query": func(ctx context.Context, tx pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
			if rows, err := tx.Query(ctx, "SELECT 1"); err == nil {
				rows.Close()
			}
			return participant.Succeed(Counted{}), nil
		},
		"SendBatch": func(ctx context.Context, tx pgx.Tx, _ participant.Command[Count]) (participant.Outcome, error) {
			var b pgx.Batch
			b.Queue("SELECT 1")
			_ = tx.SendBatch(ctx, &b).Close()
			return participant.Succeed(Counted{}), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.provision(1)
			s.send(s.command("a", Count{N: 1, Fail: "queues"}), s.command("b", Count{N: 1}))
			p := s.new(onePartition, func(c *participant.Config) { c.Batch, c.Concurrency, c.Retry.Attempts, c.Immediate = 10, 1, 2, -1 })
			participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
				if c.Body.Fail != "" {
					return mistakes["a queued argument that is none"](ctx, tx, c)
				}
				return ignores(ctx, tx, c)
			})
			s.start(p)
			s.waitCount(1, "SELECT count(*) FROM troupe.dead_letters WHERE key = 'a' AND attempts = 2")
			s.waitCount(1, "SELECT count(*) FROM troupe.outbox WHERE key = 'b'")
			require.Zero(t, s.count("SELECT count(*) FROM troupe.dead_letters WHERE key = 'b'"))
		})
	}
}

// mistakesAmongOthers returns each mistake, a message behind it, and one of another key.
func (s *stage) mistakesAmongOthers() (all []envelope.Message) {
	for name := range mistakes {
		all = append(all, s.command(name, Count{N: 1, Fail: name}), s.command(name, Count{N: 2}), s.command("not "+name, Count{N: 1}))
	}
	return all
}

// makeMistakes runs them, each of which fails twice.
func (s *stage) makeMistakes(batch int) {
	var outages atomic.Int64
	p := s.new(onePartition, func(c *participant.Config) {
		c.Batch, c.Concurrency, c.Retry.Attempts, c.Immediate = batch, 1, 2, -1
		c.Hooks.Breaker = func(participant.Breaker) { outages.Add(1) }
	})
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if mistake := mistakes[c.Body.Fail]; mistake != nil {
			return mistake(ctx, tx, c)
		}
		return count(ctx, tx, c)
	})
	s.start(p)
	s.waitAll("done", 2*len(mistakes), func() int { return s.count("SELECT count(*) FROM done") })
	s.waitAll("dead letters", len(mistakes), func() int { return s.count("SELECT count(*) FROM troupe.dead_letters WHERE attempts = 2") })
	testkit.Wait(s.t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
	require.Zero(s.t, outages.Load())
	require.Zero(s.t, s.count("SELECT count(*) FROM done WHERE key = 'leaked'"))
}

// TestMessageWhoseEveryRunTakesTheDatabaseAlongBecomesADeadLetter checks that the participant waits for the outage to end, and
// that runs that lost their connection count in the end, however often the database came back in between.
func TestMessageWhoseEveryRunTakesTheDatabaseAlongBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var way network
	pool := s.through(&way)
	p := s.new(onePartition, onlyOnce, func(c *participant.Config) { c.Pool, c.Concurrency = pool, 1 })
	participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Count]) (participant.Outcome, error) {
		if c.Body.Fail == "takes it along" {
			way.set(true)
		}
		return count(ctx, tx, c)
	})
	s.provision(1)
	s.send(s.command("a", Count{N: 1, Fail: "takes it along"}), s.command("b", Count{N: 1}))
	s.start(p)
	waitFor(t, "the dead letter, while the way is mended again and again", func() bool {
		way.mend()
		return s.count("SELECT count(*) FROM troupe.dead_letters WHERE attempts = 1") == 1
	})
	s.waitCount(1, "SELECT count(*) FROM done WHERE key = 'b'")
	waitFor(t, "ready", func() bool { return p.Ready() == nil })
}
