package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-go/troupe/bench/machine"
)

// measure runs callers that each wait for their saga, and then sagas at a steady rate.
func (s *stage) measure(ctx context.Context, kind string) (flat, steady result, err error) {
	y, err := s.start(ctx, kind)
	defer func() { err = errors.Join(err, y.close()) }()
	if err != nil {
		return flat, steady, err
	}
	if _, err = y.closed(ctx, s.warm); err != nil {
		return flat, steady, err
	}
	if flat, err = y.closed(ctx, s.time); err != nil {
		return flat, steady, err
	}
	if steady, err = y.open(ctx, s.time); err != nil {
		return flat, steady, err
	}
	return flat, steady, y.check(ctx)
}

var keys atomic.Int64

func nextKey() string { return fmt.Sprint("o-", keys.Add(1)) }

// closed runs callers that start the next saga when the last has ended.
func (y *system) closed(ctx context.Context, d time.Duration) (r result, err error) {
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	var callers sync.WaitGroup
	cpu, pg, began := machine.CPU(), y.s.server.CPU(), time.Now()
	for range y.s.callers {
		callers.Go(func() {
			for time.Since(began) < d {
				start := time.Now()
				err := y.one(ctx, nextKey())
				mu.Lock()
				took, failed = append(took, time.Since(start)), errors.Join(failed, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	callers.Wait()
	n := float64(len(took))
	r.perSecond = n / time.Since(began).Seconds()
	r.cpu, r.pg = (machine.CPU()-cpu)/n, (y.s.server.CPU()-pg)/n
	r.percentiles(took)
	return r, failed
}

// open starts sagas at a steady rate, independent of their ends; a saga's time counts from when it was due to start.
func (y *system) open(ctx context.Context, d time.Duration) (r result, err error) {
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	var sagas sync.WaitGroup
	cpu, pg, began := machine.CPU(), y.s.server.CPU(), time.Now()
	every := time.Duration(float64(time.Second) / y.s.rate)
	for i := 0; time.Duration(i)*every < d; i++ {
		due := began.Add(time.Duration(i) * every)
		time.Sleep(time.Until(due))
		sagas.Go(func() {
			err := y.one(ctx, nextKey())
			mu.Lock()
			took, failed = append(took, time.Since(due)), errors.Join(failed, err)
			mu.Unlock()
		})
	}
	sagas.Wait()
	n := float64(len(took))
	r.perSecond = n / time.Since(began).Seconds()
	r.cpu, r.pg = (machine.CPU()-cpu)/n, (y.s.server.CPU()-pg)/n
	r.percentiles(took)
	return r, failed
}
