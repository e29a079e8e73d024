//go:build unix

package relay_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// childEnv makes this binary run a relay in its own process, which can really be killed or frozen.
const childEnv = "TROUPE_RELAY_TEST_CHILD"

// childStarted is the line that the process prints when it handles SIGTERM.
const childStarted = "the child has started"

// childConfig configures the process.
type childConfig struct {
	URL     string // default: the stage's database
	Brokers []string
	Holder  string
	Slot    string
	Batch   int
	Lease   time.Duration
	Shards  int
	Source  relay.Source  // default: the suite's
	KillAt  string        // hook in which the process kills itself
	KillNth int           // number of the call
	Freeze  bool          // it stops instead, until it is continued
	Exactly time.Duration // transaction time-out of exactly-once; 0: at least once

	Delivery     relay.Delivery // default: the suite's
	UnknownTopic time.Duration
	Other        string // another database whose troupe.outbox the process publishes too
	Table        string // with Publication and Mapping, a table that is not troupe.outbox
	Publication  string
	Mapping      map[string]string
	Second       string // another table with this mapping, whose publication has its name without the schema
}

func child() int {
	var c childConfig
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &c); err != nil {
		panic(err)
	}
	go func() { // ends with its parent
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	_, _ = os.Stdout.WriteString(childStarted + "\n")
	pool, err := pgxpool.New(ctx, c.URL)
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	cfg := relay.Config{
		Pool: pool, Brokers: c.Brokers, Service: "shop", Holder: c.Holder, Slot: c.Slot, Batch: c.Batch, Lease: c.Lease, Shards: c.Shards,
		Source: cmp.Or(c.Source, source), Delivery: cmp.Or(c.Delivery, delivery), Interval: 50 * time.Millisecond, Hooks: c.hooks(), Log: zerolog.New(os.Stdout),
		UnknownTopic: c.UnknownTopic,
	}
	if c.Table != "" {
		cfg.Table, cfg.Publication, cfg.Source, cfg.Mapping = c.Table, c.Publication, relay.Auto, c.Mapping
		if c.Mapping == nil {
			cfg.Mapping = map[string]string{}
		}
	}
	if c.Source == relay.Poll {
		cfg.Delivery = relay.AtLeastOnce
	}
	if c.Exactly > 0 {
		cfg.Source, cfg.Delivery, cfg.TransactionTimeout = relay.WAL, relay.ExactlyOnce, c.Exactly
	}
	var all sync.WaitGroup
	run := func(cfg relay.Config) {
		r, err := relay.New(cfg)
		if err != nil {
			panic(err)
		}
		all.Go(func() {
			if err := r.Run(ctx); err != nil {
				panic(err)
			}
		})
	}
	run(cfg)
	if c.Second != "" {
		second := cfg
		second.Table, second.Slot = c.Second, ""
		_, second.Publication, _ = strings.Cut(c.Second, ".")
		run(second)
	}
	if c.Other != "" {
		if cfg.Pool, err = pgxpool.New(ctx, c.Other); err != nil {
			panic(err)
		}
		defer cfg.Pool.Close()
		cfg.Table, cfg.Publication, cfg.Mapping, cfg.Slot = "", "", nil, ""
		run(cfg)
	}
	all.Wait()
	return 0
}

func (c childConfig) hooks() (h relay.Hooks) {
	var mu sync.Mutex
	calls := 0
	die := func() {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls == c.KillNth && c.Freeze {
			goesOn := make(chan os.Signal, 1)
			signal.Notify(goesOn, syscall.SIGCONT)
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			<-goesOn // a thread may run on for a while before it is stopped
		} else if calls == c.KillNth {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // no further instruction of the relay runs
		}
	}
	switch c.KillAt {
	case "before send":
		h.BeforeSend = func(int) { die() }
	case "after send, before ack":
		h.Sent = func(int) { die() }
	case "after ack, before delete":
		h.Acked = func(int, time.Duration) { die() }
	case "failure":
		h.PublishFailed = func(relay.PublishFailure) { die() }
	case "before the end":
		h.Ending = func(int) { die() }
	case "after delete":
		h.Deleted = func(int) { die() }
	}
	return h
}

// A process is a relay in a child process.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	end  chan error
	said lines
}

func (s *stage) spawn(c childConfig) *process {
	s.t.Helper()
	c.URL, c.Brokers = cmp.Or(c.URL, testkit.DatabaseURL(s.t, s.pool)), s.brokers
	text, err := json.Marshal(c)
	require.NoError(s.t, err)
	executable, err := os.Executable()
	require.NoError(s.t, err)
	p := &process{t: s.t, cmd: exec.Command(executable), end: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	stdin, err := p.cmd.StdinPipe()
	require.NoError(s.t, err)
	logs, out := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	require.NoError(s.t, p.cmd.Start())
	log := testkit.Logger(s.t)
	var side sync.WaitGroup
	side.Go(func() {
		for said := bufio.NewScanner(logs); said.Scan(); {
			log.Info().Int("pid", p.cmd.Process.Pid).Msg(said.Text())
			_, _ = p.said.Write(append(said.Bytes(), '\n'))
		}
	})
	side.Go(func() {
		p.end <- p.cmd.Wait()
		_ = out.Close()
	})
	s.t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
		_ = stdin.Close()
		side.Wait()
	})
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// broke returns the reason why the relay's rows may be repeated, see requireOnce.
func (p *process) broke() string {
	for line := range strings.Lines(p.said.String()) {
		if strings.Contains(line, "source: failed") || strings.Contains(line, "no longer the active relay") {
			return line
		}
	}
	return ""
}

// wait returns the signal or error that ended the process.
func (p *process) wait(limit time.Duration) syscall.WaitStatus {
	p.t.Helper()
	select {
	case err := <-p.end:
		var exit *exec.ExitError
		if err != nil {
			require.True(p.t, errors.As(err, &exit), "%v", err)
		}
		status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		require.True(p.t, ok)
		return status
	case <-time.After(limit):
		p.t.Fatalf("process %d did not end within %s", p.cmd.Process.Pid, limit)
		return 0
	}
}

// waitLeader waits until holder leads and returns its term.
func (s *stage) waitLeader(holder string) (term int64) {
	s.t.Helper()
	testkit.Wait(s.t, holder+" to lead", func() (bool, error) {
		var leader string
		err := s.pool.QueryRow(context.Background(),
			"SELECT holder, term FROM troupe.relay_leases WHERE shard = 0 AND expires_at > clock_timestamp()").Scan(&leader, &term)
		return leader == holder, err
	})
	return term
}
