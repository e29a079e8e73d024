package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"github.com/troupe-go/troupe/bench/harness"
)

// A task is one run, in a child process.
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
	Mallocs  float64   // objects
	Bytes    float64   // bytes of these objects
	Batch    float64   // messages a transaction, warm-up included
	PeakMB   float64   // resident, since the process began
	Tenths   []float64 // seconds that each took

	postgresCPU float64
}

func (r result) rate() float64 { return float64(r.Messages) / r.Seconds }

// run runs one task in a process of its own, on the servers that the task names.
func (s *stage) run(ctx context.Context, k task) (r result, err error) {
	if s.profiles != "" {
		k.Profile = filepath.Join(s.profiles, s.Name(fmt.Sprintf("%s-batch%d", k.Kind, k.Batch))+".pprof")
	}
	k.Brokers = s.Kafka.Addrs()
	out, stdout := io.Pipe()
	var stderr bytes.Buffer
	child, err := harness.StartTask(ctx, k, stdout, &stderr)
	if err != nil {
		return r, err
	}
	go func() { _ = stdout.CloseWithError(child.Wait()) }()
	// The first line of the child's output marks the start of the clock, the second has the result.
	lines := bufio.NewScanner(out)
	var before float64
	if lines.Scan() {
		before = s.Server.CPU()
	}
	if lines.Scan() {
		r.postgresCPU = s.Server.CPU() - before
		err = json.Unmarshal(lines.Bytes(), &r)
	}
	_, _ = io.Copy(io.Discard, out)
	if ended := child.Wait(); ended != nil {
		return r, fmt.Errorf("%s: %w: %s", k.Kind, ended, stderr.String())
	}
	if err == nil && r.Messages == 0 {
		err = fmt.Errorf("%s ended before it was through: %s", k.Kind, stderr.String())
	}
	return r, err
}

// consume runs a task in the child process.
func consume(ctx context.Context, k task) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &meter{task: k, done: cancel}
	run := serve
	if k.Kind == byHand {
		run = floor
	}
	if err := run(ctx, k, m); err != nil {
		return err
	}
	return m.print()
}
