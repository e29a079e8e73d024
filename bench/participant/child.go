package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

// taskEnv holds the task of a child process of this program, which consumes.
const taskEnv = "TROUPE_BENCH_TASK"

// A task is one run.
type task struct {
	Kind        string // participant or floor
	URL         string
	Brokers     []string
	Hop         string
	Group       string
	Partitions  int32
	Batch       int
	Concurrency int
	Wait        bool // the handler waits for its statement; else it queues it

	Skip     int  // messages before the clock starts
	Messages int  // messages until it stops
	Offsets  bool // the clock runs from the first record to the last committed offset, instead of by effects
	Profile  string
}

// The kinds of tasks.
const (
	byTroupe = "participant"
	byHand   = "floor"
)

// result holds the results of a run. All figures except Seconds are for the measured time only.
type result struct {
	Messages int
	Seconds  float64
	CPU      float64   // seconds
	Mallocs  uint64    // objects
	Bytes    uint64    // bytes of these objects
	Batch    float64   // messages a transaction, warm-up included
	PeakMB   float64   // resident, since the process began
	Tenths   []float64 // seconds that each took

	postgresCPU float64
}

func (r result) rate() float64 { return float64(r.Messages) / r.Seconds }

// run runs one task in a process of its own, on the servers that the task names.
func (s *stage) run(ctx context.Context, k task) (r result, err error) {
	if s.profiles != "" {
		k.Profile = filepath.Join(s.profiles, s.name(fmt.Sprintf("%s-batch%d", k.Kind, k.Batch))+".pprof")
	}
	k.Brokers = s.kafka.Addrs()
	text, err := json.Marshal(k)
	if err != nil {
		return r, err
	}
	program, err := os.Executable()
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), taskEnv+"="+string(text))
	var said bytes.Buffer
	cmd.Stderr = &said
	hold, err := cmd.StdinPipe()
	if err != nil {
		return r, err
	}
	defer hold.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := cmd.Start(); err != nil {
		return r, err
	}
	// The first line of the child's output marks the start of the clock, the second has the result.
	lines := bufio.NewScanner(out)
	var before float64
	if lines.Scan() {
		before = s.server.CPU()
	}
	if lines.Scan() {
		r.postgresCPU = s.server.CPU() - before
		err = json.Unmarshal(lines.Bytes(), &r)
	}
	if waited := cmd.Wait(); waited != nil {
		return r, fmt.Errorf("%s: %w: %s", k.Kind, waited, said.String())
	}
	if err == nil && r.Messages == 0 {
		err = fmt.Errorf("%s ended before it was through: %s", k.Kind, said.String())
	}
	return r, err
}

// beChild consumes until the task is done. It ends with its parent.
func beChild(text string) error {
	var k task
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &meter{task: k, done: cancel}
	if k.Kind == byHand {
		if err := floor(ctx, k, m); err != nil {
			return err
		}
	} else if err := serve(ctx, k, m); err != nil {
		return err
	}
	return m.print()
}
