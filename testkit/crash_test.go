package testkit_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

var paidOnce = testkit.Query("SELECT key, cents FROM payments")

func aCommand(s *testkit.Stage) envelope.Message { return s.Command("o-1", Pay{Cents: 999}) }

func TestAHandlerThatWritesInItsTransactionOnlyHasOneEffect(t *testing.T) {
	t.Parallel()
	admin := kadm.NewClient(client(t))
	var mu sync.Mutex
	commands, runs := map[*pgxpool.Pool]string{}, map[int64]int{} // topics; and runs by the number of deliveries
	seen := &recorder{TB: t}
	testkit.CrashAtEveryStep(seen, config(), func(s *testkit.Stage) envelope.Message {
		mu.Lock()
		defer mu.Unlock()
		commands[s.Pool] = s.Hop.Commands()
		return aCommand(s)
	}, func(ctx context.Context, pool *pgxpool.Pool) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		ends, err := admin.ListEndOffsets(ctx, commands[pool])
		end, _ := ends.Lookup(commands[pool], 0)
		runs[end.Offset]++
		if err := errors.Join(err, end.Err); err != nil {
			return nil, err
		}
		return paidOnce(ctx, pool)
	})
	require.Empty(t, seen.said)
	steps := strings.Join(seen.logged, "\n")
	for _, step := range []string{
		"before INSERT INTO payments", "after INSERT INTO payments", "before commit", "after commit",
	} {
		require.Contains(t, steps, step)
	}
	crashes := 0 // other lines report, for example, that a group stays
	for _, line := range seen.logged {
		if strings.HasPrefix(line, "crash ") {
			crashes++
		}
	}
	require.Equal(t, crashes, runs[2], "after each crash the message is delivered once more")
}

func client(t *testing.T) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(testkit.Kafka(t)...))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// TestAnEffectOutsideTheTransactionIsCaught has a handler that counts its calls outside its transaction, so each further run
// counts one too many.
func TestAnEffectOutsideTheTransactionIsCaught(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.Handlers = func(s *testkit.Stage, p *participant.Participant) {
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Pay]) (participant.Outcome, error) {
			if _, err := s.Pool.Exec(ctx, "INSERT INTO calls DEFAULT VALUES"); err != nil {
				return participant.Outcome{}, err
			}
			return pay(ctx, tx, c)
		})
	}
	said := failures(t, func(t testing.TB) {
		testkit.CrashAtEveryStep(t, cfg, aCommand, testkit.Query("SELECT count(*) FROM calls"))
	})
	all := strings.Join(said, "\n")
	for _, step := range []string{"before INSERT INTO payments", "after INSERT INTO payments", "before commit"} {
		require.Contains(t, all, "crash "+step, "after the effect and before the commit")
	}
	for _, step := range []string{"before INSERT INTO troupe.inbox", "after commit"} {
		require.NotContains(t, all, "crash "+step, "the handler has not begun, or is not run again")
	}
	require.Contains(t, all, "crash before commit: the effect is [2], without a crash it is [1]")
}

// TestAHandlerThatStumblesOverItselfIsCaught has a handler that cannot run again, since its effect outside the transaction is in
// its way. The state of its message reveals it.
func TestAHandlerThatStumblesOverItselfIsCaught(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.SQL += "CREATE UNIQUE INDEX ON calls ((1))"
	cfg.Participant.Retry.Attempts = 1
	cfg.Handlers = func(s *testkit.Stage, p *participant.Participant) {
		participant.Handle(p, func(ctx context.Context, tx pgx.Tx, c participant.Command[Pay]) (participant.Outcome, error) {
			if _, err := s.Pool.Exec(ctx, "INSERT INTO calls DEFAULT VALUES"); err != nil {
				return participant.Outcome{}, err
			}
			return pay(ctx, tx, c)
		})
	}
	said := failures(t, func(t testing.TB) { testkit.CrashAtEveryStep(t, cfg, aCommand, paidOnce) })
	require.Contains(t, strings.Join(said, "\n"),
		"crash before commit: the message became a dead letter (transient): ERROR: duplicate key")
}

func TestAHandlerThatFailsWithoutACrashIsNotCrashed(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.Participant.Retry = retry.Policy{Initial: time.Hour, Cap: time.Hour, NoJitter: true} // so that it is still held
	said := failures(t, func(t testing.TB) {
		testkit.CrashAtEveryStep(t, cfg, func(s *testkit.Stage) envelope.Message {
			return s.Command("o-1", Pay{Fail: "error"})
		}, paidOnce)
	})
	require.Len(t, said, 1)
	require.Contains(t, said[0], "without any crash: the message is held after")
}

func TestAMessageThatNobodyHandlesIsNotCrashed(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.Handlers = func(s *testkit.Stage, p *participant.Participant) {
		from := topics.MustHop(s.Hop.Flow(), "order")
		participant.On(p, from, func(context.Context, pgx.Tx, participant.Event[Pay]) error { return nil })
	}
	said := failures(t, func(t testing.TB) {
		testkit.CrashAtEveryStep(t, cfg, func(s *testkit.Stage) envelope.Message {
			return s.Event(topics.MustHop(s.Hop.Flow(), "order"), "o-1", Paid{})
		}, paidOnce)
	})
	require.Len(t, said, 1)
	require.Contains(t, said[0], "there is nothing to crash")
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	said   []string
	logged []string
}

// failures runs f as a test and returns its failure messages.
func failures(t *testing.T, f func(testing.TB)) []string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said
}

func (r *recorder) say(to *[]string, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*to = append(*to, text)
}

func (r *recorder) Logf(format string, args ...any)   { r.say(&r.logged, fmt.Sprintf(format, args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.say(&r.said, fmt.Sprintf(format, args...)) }
func (r *recorder) Fail()                             {}
func (r *recorder) FailNow()                          { runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.FailNow()
}
