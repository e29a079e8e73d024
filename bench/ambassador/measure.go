package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"time"
)

// measureRate measures the messages a second that reach a service that does nothing, from a part of a full topic to its end.
func measureRate(ctx context.Context, s *stage) error {
	fmt.Printf("%-28s %11s %9s %9s %9s\n", "", "messages/s", "cpu us", "pg cpu us", "peak MB")
	for _, concurrency := range s.concurrency {
		var rates []float64
		for range s.rounds {
			r, err := s.rate(ctx, concurrency)
			if err != nil {
				return err
			}
			rates = append(rates, r)
		}
		slices.Sort(rates)
		fmt.Printf("median, %3d requests at once  %11.0f\n", concurrency, rates[len(rates)/2])
	}
	return nil
}

func (s *stage) rate(ctx context.Context, concurrency int) (rate float64, err error) {
	r, err := s.begin(ctx, s.messages, 100)
	if err != nil {
		return 0, err
	}
	var asked atomic.Int64
	skip := int64(s.messages / 10)
	warm := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if asked.Add(1) == skip {
			close(warm)
		}
	}))
	defer service.Close()
	if err := r.start(ctx, service.URL, concurrency); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.end(ctx)) }()
	select {
	case <-warm:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(2 * time.Minute):
		return 0, fmt.Errorf("the service was asked %d times in 2 min: %s", asked.Load(), r.said.String())
	}
	began, cpu, pg := time.Now(), r.process().CPU(), s.server.CPU()
	from, err := r.count(ctx, "SELECT count(*) FROM troupe.outbox")
	for n := from; err == nil && n < s.messages; n, err = r.count(ctx, "SELECT count(*) FROM troupe.outbox") {
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return 0, err
	}
	took, done := time.Since(began), s.messages-from
	cpu, pg = r.process().CPU()-cpu, s.server.CPU()-pg
	if n := asked.Load(); n != int64(s.messages) {
		return 0, fmt.Errorf("%d messages were posted %d times", s.messages, n)
	}
	rate = float64(done) / took.Seconds()
	fmt.Printf("%3d requests at once          %11.0f %9.1f %9.1f %9.1f\n", concurrency, rate,
		1e6*cpu/float64(done), 1e6*pg/float64(done), r.process().PeakMB())
	return rate, nil
}

// measureHang measures what an ambassador holds in memory while its service does not answer and the topic is full.
func measureHang(ctx context.Context, s *stage) error {
	for _, concurrency := range s.concurrency {
		if err := s.hang(ctx, concurrency); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) hang(ctx context.Context, concurrency int) (err error) {
	const bytes = 4000
	r, err := s.begin(ctx, s.hanging, bytes)
	if err != nil {
		return err
	}
	var now, most, asked atomic.Int64
	first := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body) // only then the server notices that the client has gone
		if asked.Add(1) == 1 {
			close(first)
		}
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-q.Context().Done()
		now.Add(-1)
	}))
	defer service.Close()
	if err := r.start(ctx, service.URL, concurrency, "--timeout", "2s", "--drain", "3s"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.end(ctx)) }()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * time.Minute):
		return fmt.Errorf("the service was not asked in 2 min: %s", r.said.String())
	case <-first:
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.hangs):
	}
	held, err := r.count(ctx, "SELECT count(*) FROM troupe.held")
	if err != nil {
		return err
	}
	if allowed := 2 * int64(concurrency); most.Load() > allowed { // as many again are cancelled, unnoticed by the server
		return fmt.Errorf("%d requests at once, %d in all: want %d at most", most.Load(), asked.Load(), allowed)
	}
	fmt.Printf("%d messages of %d bytes wait, time-out 2s, for %s: %d requests, at most %d of %d at once, %d messages held, peak %.1f MB\n",
		s.hanging, bytes, s.hangs, asked.Load(), most.Load(), concurrency, held, r.process().PeakMB())
	return nil
}
