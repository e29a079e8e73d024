package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-go/troupe/bench/harness"
)

// measure runs callers that each wait for their saga, and then sagas at a steady rate.
func (s *stage) measure(ctx context.Context, kind string) (flat, steady result, err error) {
	y, err := s.start(ctx, kind)
	defer func() { err = errors.Join(err, y.Close()) }()
	if err != nil {
		return flat, steady, err
	}
	if _, err = y.flatOut(ctx, s.warm); err != nil {
		return flat, steady, err
	}
	if flat, err = y.flatOut(ctx, s.time); err != nil {
		return flat, steady, err
	}
	if steady, err = y.atRate(ctx, s.time); err != nil {
		return flat, steady, err
	}
	return flat, steady, y.check(ctx)
}

var keys atomic.Int64

func nextKey() string { return fmt.Sprint("o-", keys.Add(1)) }

// flatOut runs callers that start the next saga when the last has ended.
func (y *system) flatOut(ctx context.Context, d time.Duration) (result, error) {
	return y.timed(ctx, func(began time.Time, run func(due time.Time) error) {
		var callers sync.WaitGroup
		for range y.stage.callers {
			callers.Go(func() {
				for time.Since(began) < d && run(time.Now()) == nil {
				}
			})
		}
		callers.Wait()
	})
}

// atRate starts sagas at a steady rate for a time.
func (y *system) atRate(ctx context.Context, d time.Duration) (result, error) {
	began := time.Now()
	return y.atRateWhile(ctx, y.stage.rate, func() bool { return time.Since(began) < d })
}

// atRateWhile starts sagas at a steady rate, independent of their ends, as long as a condition holds; a saga's time counts from when it
// was due to start.
func (y *system) atRateWhile(ctx context.Context, rate float64, holds func() bool) (result, error) {
	every := time.Duration(float64(time.Second) / rate)
	return y.timed(ctx, func(began time.Time, run func(due time.Time) error) {
		var sagas sync.WaitGroup
		for i := 0; holds() && ctx.Err() == nil; i++ {
			due := began.Add(time.Duration(i) * every)
			time.Sleep(time.Until(due))
			sagas.Go(func() { _ = run(due) })
		}
		sagas.Wait()
	})
}

// timed measures all sagas that start runs.
func (y *system) timed(ctx context.Context, start func(began time.Time, run func(due time.Time) error)) (r result, err error) {
	var mu sync.Mutex
	var times []time.Duration
	cpu, pg, began := harness.CPU(), y.Server.CPU(), time.Now()
	start(began, func(due time.Time) error {
		failed := y.runSaga(ctx, nextKey())
		mu.Lock()
		defer mu.Unlock()
		times, err = append(times, time.Since(due)), errors.Join(err, failed)
		return failed
	})
	n := float64(len(times))
	r.perSecond = n / time.Since(began).Seconds()
	r.cpu, r.pg = 1000*(harness.CPU()-cpu)/n, 1000*(y.Server.CPU()-pg)/n
	r.percentiles(times)
	return r, err
}
