package coordinator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/topics"
)

// childEnv names the variable with the task of a test binary that is run again as a process of the flow, and killed.
const childEnv = "TROUPE_TEST_SAGA_CHILD"

// task describes a process of the flow: a member of one hop, with its relay.
type task struct {
	Flow        string
	Hop         string
	URL         string
	Brokers     []string
	Definition  string        // of the saga, for the coordinator
	Slow        time.Duration // how long a slow command waits
	Batch       int
	Concurrency int // default 2
	Session     time.Duration
	Die         string // the hook to die in
	Nth         int64  // at which call
	Operation   string // of Hop flight: Nth counts the commands with it; "": the messages of the coordinator
}

// beChild runs its task until it is killed, or its parent is.
func beChild(text string) {
	var k task
	must(json.Unmarshal([]byte(text), &k))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	must(k.run(ctx, zerolog.New(os.Stderr).With().Timestamp().Logger(), k.hooks()))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// membership has group time-outs for tests.
func (k task) membership() []kgo.Opt {
	return []kgo.Opt{
		kgo.SessionTimeout(k.Session), kgo.RebalanceTimeout(session() * 9 / 10), kgo.HeartbeatInterval(100 * time.Millisecond),
	}
}

// patient is the session time-out, and the relay's lease, of members that are not killed: they keep their partitions when the
// machine stalls for a while.
const patient = 10 * time.Second

// session returns the session time-out of members that are killed: Apache Kafka allows none below 6 s, the embedded broker
// does.
func session() time.Duration {
	if os.Getenv("TROUPE_KAFKA") != "" {
		return 6 * time.Second
	}
	return time.Second
}

func (k task) run(ctx context.Context, log zerolog.Logger, hooks participant.Hooks) error {
	cfg, err := pgxpool.ParseConfig(k.URL)
	if err != nil {
		return err
	}
	cfg.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	if k.Hop == "flight" {
		return k.runFlight(ctx, pool, log)
	}
	p, err := k.participant(pool, log, hooks)
	if err != nil {
		return err
	}
	if k.Hop == "order" {
		_, err = k.coordinator(ctx, p, pool)
	} else {
		k.handle(p)
	}
	if err != nil {
		return err
	}
	lease := 1500 * time.Millisecond
	if k.Session == patient {
		lease = patient
	}
	r, err := relay.New(relay.Config{
		Source: relay.Poll,
		Pool:   pool, Brokers: k.Brokers, Service: k.Hop, Lease: lease, Interval: 50 * time.Millisecond, Log: log,
	})
	if err != nil {
		return err
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return p.Run(ctx) })
	both.Go(func() error { return r.Run(ctx) })
	return both.Wait()
}

func (k task) participant(
	pool *pgxpool.Pool, log zerolog.Logger, hooks participant.Hooks,
) (*participant.Participant, error) {
	return participant.New(participant.Config{
		Pool: pool, Brokers: k.Brokers, Hop: topics.MustHop(k.Flow, k.Hop), Partitions: 2, Batch: k.Batch, Concurrency: max(k.Concurrency, 2),
		Retry: retry.Policy{Initial: 10 * time.Millisecond, Cap: 20 * time.Millisecond, Attempts: 3}, Immediate: -1,
		Kafka: k.membership(), Hooks: hooks, Log: log,
	})
}

func (k task) coordinator(
	ctx context.Context, p *participant.Participant, pool *pgxpool.Pool,
) (*coordinator.Coordinator, error) {
	d, err := saga.Parse([]byte(k.Definition))
	if err != nil {
		return nil, err
	}
	return coordinator.New(ctx, coordinator.Config{Participant: p, Pool: pool, Definitions: []*saga.Definition{d}})
}

func (k task) hooks() participant.Hooks {
	var calls atomic.Int64
	die := func(point string) {
		if k.Die == point && calls.Add(1) == k.Nth {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // not one more instruction runs
		}
	}
	return participant.Hooks{
		BeforeHandler: func(participant.Delivery) { die("before the handler") },
		BeforeCommit:  func(participant.Delivery) { die("before the commit") },
		AfterCommit:   func(participant.Delivery) { die("after the commit") },
		Fired:         func(participant.Fired) { die("after firing") },
	}
}

func (k task) handle(p *participant.Participant) {
	switch k.Hop {
	case "payment":
		participant.Handle(p, moves[ChargePayment](k, PaymentCharged{"p-1"}, PaymentRefused{"no money"}))
		participant.Handle(p, moves[RefundPayment](k, PaymentRefunded{}, PaymentRefused{}))
	case "inventory":
		participant.Handle(p, moves[ReserveStock](k, StockReserved{"r-1"}, StockRefused{"no stock"}))
		participant.Handle(p, moves[ReleaseStock](k, StockReleased{}, StockRefused{}))
	case "shipping":
		participant.Handle(p, moves[ShipOrder](k, OrderShipped{"s-1"}, ShippingRefused{"no carrier"}))
	}
}

// moves returns a handler that writes a row for each effect, unless the command's key names a failure, in the form kind-hop:
//
//	refuse   refused by the business
//	fail     fails until the test repairs the hop
//	undo     fails likewise, and the operator has the saga compensated
//	broken   fails for ever
//	slow     fails once, and is tried again after the saga's time-out
//	late     takes about as long as the saga waits
//	refund   the compensation fails until the test repairs the hop
func moves[T any](k task, done, refused any) func(context.Context, pgx.Tx, participant.Command[T]) (participant.Outcome, error) {
	return func(ctx context.Context, tx pgx.Tx, c participant.Command[T]) (participant.Outcome, error) {
		key, operation := string(c.Message.Key), c.Message.SagaOperation
		forward := operation == "forward"
		is := func(kind string) bool { return strings.HasSuffix(key, "-"+kind+"-"+k.Hop) }
		switch {
		case forward && is("refuse"):
			return participant.Refuse(refused), nil
		case forward && is("broken"):
			return participant.Outcome{}, errors.New("it is broken")
		case forward && is("slow") && c.Attempt == 1:
			return participant.Outcome{}, retry.After(errors.New("it takes a while"), k.Slow)
		case forward && is("late"):
			select {
			case <-time.After(k.Slow - 250*time.Millisecond + rand.N(300*time.Millisecond)):
			case <-ctx.Done():
			}
		case forward && is("fail"), !forward && strings.Contains(key, "-refund-"):
			var mended bool
			if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM mended)").Scan(&mended); err != nil {
				return participant.Outcome{}, err
			}
			if !mended {
				return participant.Outcome{}, errors.New("it is not mended yet")
			}
		}
		const note = "INSERT INTO effects (hop, operation, key) VALUES ($1, $2, $3)"
		err := participant.Queue(ctx, tx, note, k.Hop, operation, key)
		return participant.Succeed(done), err
	}
}

// process runs a task in a process of its own.
type process struct {
	*exec.Cmd
	task  task
	ended chan error
	log   *safeBuffer
}

func spawn(t testing.TB, k task) *process {
	t.Helper()
	text, err := json.Marshal(k)
	require.NoError(t, err)
	m := &process{Cmd: exec.Command(os.Args[0]), task: k, ended: make(chan error, 1), log: &safeBuffer{}}
	m.Env = append(os.Environ(), childEnv+"="+string(text))
	m.Stderr = m.log
	hold, err := m.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, m.Start())
	go func() {
		m.ended <- m.Wait()
		close(m.ended)
	}()
	t.Cleanup(func() {
		_ = hold.Close()
		_ = m.Process.Kill()
		<-m.ended
		if t.Failed() {
			t.Logf("%s, process %d:\n%s", k.Hop, m.Process.Pid, m.log)
		}
	})
	return m
}

// killed waits until the process has died of SIGKILL.
func (m *process) killed(t testing.TB) {
	t.Helper()
	select {
	case err := <-m.ended:
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, -1, exit.ExitCode(), m.log.String())
	case <-time.After(4 * time.Minute):
		t.Fatalf("%s lives:\n%s", m.task.Hop, m.log)
	}
}

// stopped waits until the process has stopped with exit status 0 after a SIGTERM.
func (m *process) stopped(t testing.TB) {
	t.Helper()
	select {
	case err := <-m.ended:
		require.NoError(t, err, m.log.String())
	case <-time.After(4 * time.Minute):
		t.Fatalf("%s did not stop:\n%s", m.task.Hop, m.log)
	}
}

// safeBuffer keeps the end of the output.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.b.Len() > 1<<20 {
		s.b.Next(1 << 19)
	}
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
