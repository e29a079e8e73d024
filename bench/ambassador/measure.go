package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/troupe-go/troupe/bench/harness"
)

// figures holds the results of a run.
type figures struct{ rate, cpu, postgres, peakMB float64 }

var table = harness.Table[figures]{Width: 28, Columns: []harness.Column[figures]{
	{Head: "messages/s", Width: 11, Figure: func(f *figures) *float64 { return &f.rate }},
	{Head: "cpu us", Width: 9, Decimals: 1, Figure: func(f *figures) *float64 { return &f.cpu }, Optional: true},
	{Head: "pg cpu us", Width: 9, Decimals: 1, Figure: func(f *figures) *float64 { return &f.postgres }, Optional: true},
	{Head: "peak MB", Width: 9, Decimals: 1, Figure: func(f *figures) *float64 { return &f.peakMB }, Optional: true},
}}

// measureRate measures the messages a second that reach a service that does nothing, from a part of a full topic to its end.
func (s *stage) measureRate(ctx context.Context) error {
	table.Heading()
	for _, concurrency := range s.concurrency {
		c := &harness.Contender[figures]{
			Name: fmt.Sprintf("%3d requests at once", concurrency),
			Run:  func(ctx context.Context) (figures, error) { return s.rate(ctx, concurrency) },
		}
		if err := table.Compare(ctx, s.rounds, []*harness.Contender[figures]{c}); err != nil {
			return err
		}
		rate := harness.Median(c.Results, func(f figures) float64 { return f.rate })
		table.Show(fmt.Sprintf("median, %3d requests at once", concurrency), figures{rate: rate})
	}
	return nil
}

func (s *stage) rate(ctx context.Context, concurrency int) (f figures, err error) {
	var requests atomic.Int64
	skip := int64(s.messages / 10)
	warm := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if requests.Add(1) == skip {
			close(warm)
		}
	}))
	defer service.Close()
	r, err := s.prepare(ctx, s.messages, 100)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.start(ctx, service.URL, concurrency); err != nil {
		return f, err
	}
	select {
	case <-warm:
	case <-ctx.Done():
		return f, ctx.Err()
	case <-time.After(2 * time.Minute):
		return f, fmt.Errorf("the service got %d requests in 2 min: %s", requests.Load(), r.output.String())
	}
	began, cpu, pg := time.Now(), r.process().CPU(), s.Server.CPU()
	from, err := r.count(ctx, "troupe.outbox")
	for n := from; err == nil && n < s.messages; n, err = r.count(ctx, "troupe.outbox") {
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return f, err
	}
	took, done := time.Since(began), float64(s.messages-from)
	cpu, pg = r.process().CPU()-cpu, s.Server.CPU()-pg
	if n := requests.Load(); n != int64(s.messages) {
		return f, fmt.Errorf("%d messages were posted %d times", s.messages, n)
	}
	return figures{rate: done / took.Seconds(), cpu: 1e6 * cpu / done, postgres: 1e6 * pg / done, peakMB: r.process().PeakMB()}, nil
}

// measureHang measures what an ambassador holds in memory while its service does not answer and the topic is full.
func (s *stage) measureHang(ctx context.Context) error {
	for _, concurrency := range s.concurrency {
		if err := s.hang(ctx, concurrency); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) hang(ctx context.Context, concurrency int) (err error) {
	const bytes = 4000
	var now, most, requests atomic.Int64
	first := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body) // only then the server notices that the client has gone
		if requests.Add(1) == 1 {
			close(first)
		}
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-q.Context().Done()
		now.Add(-1)
	}))
	defer service.Close()
	r, err := s.prepare(ctx, s.hanging, bytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.start(ctx, service.URL, concurrency, "--timeout", "2s", "--drain", "3s"); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * time.Minute):
		return fmt.Errorf("the service got no request in 2 min: %s", r.output.String())
	case <-first:
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.hangs):
	}
	held, err := r.count(ctx, "troupe.held")
	if err != nil {
		return err
	}
	if allowed := 2 * int64(concurrency); most.Load() > allowed { // as many again are cancelled, unnoticed by the server
		return fmt.Errorf("%d requests at once, %d in all: want %d at most", most.Load(), requests.Load(), allowed)
	}
	fmt.Printf("%d messages of %d bytes wait, time-out 2s, for %s: %d requests, at most %d of %d at once, %d messages held, peak %.1f MB\n",
		s.hanging, bytes, s.hangs, requests.Load(), most.Load(), concurrency, held, r.process().PeakMB())
	return nil
}
