package participant_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// memberEnv holds the task of a test binary that was run again to be a member of a group, and killed.
const memberEnv = "TROUPE_TEST_MEMBER"

// memberUp is the line that a member logs when SIGTERM no longer kills it.
const memberUp = "member is up"

type task struct {
	URL     string
	Brokers []string
	Hop     string
	Die     string // the hook to die in
	Nth     int64  // at which call
	Freeze  bool   // to stop there, instead
	Batch   int
	Local   bool
	Stale   time.Duration

	Concurrency int  // 0: the default
	Tell        bool // log each transaction

	Registry string // of a member that handles Claims in Avro
	Charges  bool   // its commands call a bank, which stores them in a table
	Projects bool   // it handles the events of the hop bank
}

// beMember runs a participant until SIGTERM, and exits with its parent.
func beMember(text string) {
	var k task
	must(json.Unmarshal([]byte(text), &k))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Fprintln(os.Stderr, memberUp)
	pool, err := pgxpool.New(ctx, k.URL)
	must(err)
	defer pool.Close()
	hop, err := topics.ParseHop(k.Hop)
	must(err)
	var calls atomic.Int64
	die := func(point string) {
		if k.Die == point && calls.Add(1) == k.Nth {
			self, err := os.FindProcess(os.Getpid())
			must(err)
			if k.Freeze {
				goesOn := make(chan os.Signal, 1)
				signal.Notify(goesOn, syscall.SIGCONT)
				must(self.Signal(syscall.SIGSTOP))
				<-goesOn // a thread may continue for a while before it is stopped
				return
			}
			must(self.Kill())
			select {}
		}
	}
	var codec envelope.Codec
	if k.Registry != "" {
		codec = avroCodec(ctx, k.Registry)
	}
	p, err := participant.New(participant.Config{
		Codec: codec,
		Pool:  pool, Brokers: k.Brokers, Local: k.Local, Stale: k.Stale, Hop: hop, Partitions: 2, Kafka: quick(), Log: zerolog.New(os.Stderr),
		Batch: k.Batch, Concurrency: k.Concurrency,
		Retry: retry.Policy{Initial: 300 * time.Millisecond, NoJitter: true, Attempts: 4}, Immediate: -1,
		Hooks: participant.Hooks{
			Transaction: func(ctx context.Context, ds []participant.Delivery) (context.Context, func(error)) {
				if k.Tell {
					fmt.Fprintf(os.Stderr, "transaction of %d\n", len(ds))
				}
				return ctx, nil
			},
			BeforeHandler: func(participant.Delivery) { die("before the handler") },
			BeforeCommit:  func(participant.Delivery) { die("before the commit") },
			AfterCommit:   func(participant.Delivery) { die("after the commit") },
			Failed:        func(participant.Delivery) { die("after a failed attempt") },
			BeforeOffsets: func(map[string]map[int32]int64) { die("before the commit of offsets") },
			AfterOffsets:  func(map[string]map[int32]int64) { die("after the commit of offsets") },
			Fired:         func(participant.Fired) { die("after firing") },
		},
	})
	must(err)
	switch {
	case codec != nil:
		participant.Handle(p, claim)
	case k.Charges:
		participant.Ask(p, "Count", func(ctx context.Context, c participant.Command[[]byte]) (struct{}, error) {
			_, err := pool.Exec(ctx, "INSERT INTO charges VALUES ($1)", c.Message.IdempotencyKey)
			die("after the call")
			return struct{}{}, err
		}, (*bank)(nil).take)
		participant.Handle(p, undo)
	case k.Projects:
		participant.On(p, topics.MustHop(hop.Flow(), "bank"), func(ctx context.Context, tx pgx.Tx, e participant.Event[Paid]) error {
			if e.Body.N%17 == 5 && e.Attempt == 1 {
				return errAsked
			}
			return project(ctx, tx, p, string(e.Message.Key), e.Body.N)
		})
		participant.OnDeadline(p, "late", func(context.Context, pgx.Tx, participant.Due[Paid]) error { return nil })
	default:
		participant.Handle(p, count)
		participant.OnDeadline(p, overdueName, overdue)
	}
	must(p.Run(ctx))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// process is a member in a process of its own.
type process struct {
	*exec.Cmd
	ended chan error
	log   *safeBuffer
}

func (s *stage) member(die string, nth int64) *process {
	return s.memberOf(task{Die: die, Nth: nth, Batch: s.batch})
}

func (s *stage) memberOf(k task) *process {
	s.t.Helper()
	k.URL, k.Brokers, k.Local, k.Hop = s.pool.Config().ConnString(), s.brokers, s.local, s.hop.String()
	text, err := json.Marshal(k)
	require.NoError(s.t, err)
	m := &process{Cmd: exec.Command(os.Args[0]), ended: make(chan error, 1), log: &safeBuffer{}}
	m.Env = append(os.Environ(), memberEnv+"="+string(text))
	m.Stderr = m.log
	hold, err := m.StdinPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, m.Start())
	go func() {
		m.ended <- m.Wait()
		close(m.ended)
	}()
	s.t.Cleanup(func() {
		_ = hold.Close()
		_ = m.Process.Kill()
		<-m.ended
		if s.t.Failed() {
			s.t.Logf("member %d:\n%s", m.Process.Pid, m.log)
		}
	})
	return m
}

// killed waits until the member has killed itself.
func (m *process) killed(t testing.TB) {
	t.Helper()
	select {
	case err := <-m.ended:
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, -1, exit.ExitCode(), m.log.String())
	case <-time.After(4 * time.Minute):
		t.Fatalf("the member lives:\n%s", m.log)
	}
}

// terminate asks the member to stop and expects exit status 0.
func (m *process) terminate(t testing.TB) {
	t.Helper()
	m.waitSaid(t, memberUp)
	require.NoError(t, m.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-m.ended:
		require.NoError(t, err, m.log.String())
	case <-time.After(4 * time.Minute):
		t.Fatalf("the member did not stop:\n%s", m.log)
	}
}

// waitSaid waits until the member has logged a text: its log comes through a pipe, later than its effects.
func (m *process) waitSaid(t testing.TB, what string) {
	t.Helper()
	testkit.Wait(t, what, func() (bool, error) { return strings.Contains(m.log.String(), what), nil })
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
