package workload

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
)

// firstLimit bounds the time until the first row is published or the first saga has ended, on a busy machine.
const firstLimit = 2 * time.Minute

// A Run is one scenario: load, a failure under load, load again; then the database and the topics are compared.
type Run struct {
	Relay relay.Config  // with the pool and the brokers of the whole run
	URL   func() string // of the database to compare with, after the failure
	After time.Duration // of load after the failure
	// Fail returns the time of the failure, once the rest of the run may go on. services is nil in a run of rows.
	Fail func(ctx context.Context, services *Services) (failed time.Time, err error)
}

// Rows runs the scenario with rows to a topic that exists.
func (run Run) Rows(ctx context.Context, topic string) (r Result, err error) {
	client, err := kafka.NewClient(run.Relay.Brokers, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return r, err
	}
	defer client.Close()
	pauses := &pauses{}
	run.Relay.Hooks.Deleted = func(int) { pauses.note(time.Now()) }
	stop, err := startRelay(ctx, run.Relay)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	rows := &rows{pool: run.Relay.Pool, topic: topic}
	writing, end := context.WithCancel(ctx)
	defer end()
	var writers sync.WaitGroup
	writers.Go(func() { rows.write(writing) })
	seen := &tally{}
	reading, endReading := context.WithCancel(ctx)
	defer endReading()
	var reader sync.WaitGroup
	reader.Go(func() { seen.read(reading, client) })
	defer reader.Wait()
	defer endReading()

	err = harness.Until(ctx, firstLimit, "nothing was published", func(context.Context) (bool, error) { return seen.count() > 0, nil })
	if err != nil {
		return r, err
	}
	failed, err := run.Fail(ctx, nil)
	if err != nil {
		return r, err
	}
	if err = harness.Sleep(ctx, run.After); err != nil {
		return r, err
	}
	end()
	writers.Wait()
	stalled := pauses.longest(time.Now())
	if r, err = seen.settle(ctx, run.URL(), rows); err != nil {
		return r, err
	}
	again, err := run.readAgain(ctx, topic, seen.count())
	if err != nil {
		return r, err
	}
	there, err := written(ctx, run.URL())
	if err != nil {
		return r, err
	}
	stored := again.judge(there)
	r.Lost, r.Reordered = max(r.Lost, stored.Lost), max(r.Reordered, stored.Reordered)
	r.Seconds, r.Stalled = seen.firstAfter(failed), stalled
	return r, nil
}

// readAgain reads the topic from its start: brokers can lose a record that a consumer has read. It returns when it has as many rows, or
// when none has come for 10 s.
func (run Run) readAgain(ctx context.Context, topic string, rows int) (*tally, error) {
	client, err := kafka.NewClient(run.Relay.Brokers, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	reading, end := context.WithCancel(ctx)
	defer end()
	stored := &tally{}
	var reader sync.WaitGroup
	reader.Go(func() { stored.read(reading, client) })
	defer reader.Wait()
	defer end()
	last, since := -1, time.Now()
	for stored.count() < rows && time.Since(since) < 10*time.Second {
		if now := stored.count(); now != last {
			last, since = now, time.Now()
		}
		if err := harness.Sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

// Services runs the scenario with commands and sagas.
func (run Run) Services(ctx context.Context, flow string, unruly bool) (commands, sagas Result, err error) {
	s, err := newServices(ctx, run.Relay, flow, unruly)
	if s.client != nil {
		defer s.client.Close()
	}
	if err != nil {
		return commands, sagas, err
	}
	r, err := relay.New(run.Relay)
	if err != nil {
		return commands, sagas, err
	}
	serving, stop := context.WithCancel(ctx)
	running, serving := errgroup.WithContext(serving)
	running.Go(func() error { return r.Run(serving) })
	for _, p := range s.all {
		running.Go(func() error { return p.Run(serving) })
	}
	defer func() {
		stop()
		err = errors.Join(err, running.Wait())
	}()
	loading, end := context.WithCancel(serving)
	defer end()
	var senders sync.WaitGroup
	senders.Go(func() { s.send(loading) })
	senders.Go(func() { s.start(loading) })
	seen := &answers{}
	senders.Go(func() { seen.read(serving, s) })
	defer senders.Wait()
	defer stop()

	err = harness.Until(serving, firstLimit, "no saga has ended", func(context.Context) (bool, error) { return seen.sagas() > 0, nil })
	if err != nil {
		return commands, sagas, err
	}
	failed, err := run.Fail(serving, s)
	if err != nil {
		return commands, sagas, err
	}
	if err = harness.Sleep(serving, run.After); err != nil {
		return commands, sagas, err
	}
	end()
	if err = s.settle(serving, run.URL(), seen, failed, &commands, &sagas); err != nil {
		return commands, sagas, err
	}
	if unruly && s.held() == 0 {
		err = errors.New("no command has failed at first: no key was held")
	}
	return commands, sagas, err
}

// startRelay runs a relay until stop.
func startRelay(ctx context.Context, cfg relay.Config) (stop func() error, err error) {
	r, err := relay.New(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}, nil
}

// pauses measures the longest time between two events.
type pauses struct {
	mu   sync.Mutex
	last time.Time
	most time.Duration
}

func (p *pauses) note(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.IsZero() {
		p.most = max(p.most, at.Sub(p.last))
	}
	p.last = at
}

// longest returns the seconds, with the time from the last event until now.
func (p *pauses) longest(now time.Time) float64 {
	p.note(now)
	return p.most.Seconds()
}
