package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/internal/demo"
)

// patience bounds the time without a change, after which a round has failed.
const patience = time.Minute

// round posts orders as fast as possible, and then at the rate.
func (s *stage) round(ctx context.Context, style demo.Style, command string) (f figures, err error) {
	y, err := s.start(ctx, style, command)
	defer func() { err = errors.Join(err, y.close()) }()
	if err != nil {
		return f, err
	}
	if _, err := y.part(ctx, "warm", s.warm, 0); err != nil {
		return f, err
	}
	if f.flat, err = y.part(ctx, "flat", s.orders, 0); err != nil {
		return f, err
	}
	if f.steady, err = y.part(ctx, "steady", s.steady, time.Duration(float64(time.Second)/s.rate)); err != nil {
		return f, err
	}
	n, err := y.messages(ctx)
	f.flat.messages = float64(n) / float64(s.warm+s.orders+s.steady)
	return f, err
}

// part posts n orders and waits until each has completed.
func (y *system) part(ctx context.Context, name string, n int, every time.Duration) (p part, err error) {
	before, err := y.used(ctx)
	if err != nil {
		return p, err
	}
	if err := y.post(ctx, name, n, every); err != nil {
		return p, err
	}
	if err := y.completed(ctx, name, n); err != nil {
		return p, err
	}
	after, err := y.used(ctx)
	if err != nil {
		return p, err
	}
	each := 1000 / float64(n)
	p.cpu, p.pg, p.command = (after.cpu-before.cpu)*each, (after.pg-before.pg)*each, (after.command-before.command)*each
	err = y.pools["order"].QueryRow(ctx, `
		SELECT count(*) / extract(epoch FROM max(ended_at) - min(created_at)),
		       1000 * percentile_disc(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM ended_at - created_at)),
		       1000 * percentile_disc(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM ended_at - created_at))
		FROM order_flow
		WHERE order_id LIKE $1 || '-%'`, name).Scan(&p.perSecond, &p.p50, &p.p99)
	return p, err
}

// used returns the processor time so far, in total seconds, not in ms an order.
func (y *system) used(ctx context.Context) (p part, err error) {
	command, sessions, err := y.commandCPU(ctx)
	p.cpu, p.pg, p.command = harness.CPU(), y.Server.CPU()-sessions, command+sessions
	return p, err
}

func (y *system) post(ctx context.Context, name string, n int, every time.Duration) error {
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: y.stage.callers}}
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(y.stage.callers)
	for i, began := 0, time.Now(); i < n && ctx.Err() == nil; i++ {
		time.Sleep(time.Until(began.Add(time.Duration(i) * every)))
		group.Go(func() error { return y.postOrder(ctx, client, name, i) })
	}
	return group.Wait()
}

func (y *system) postOrder(ctx context.Context, client *http.Client, name string, i int) error {
	body, err := json.Marshal(map[string]any{
		"order_id": fmt.Sprintf("%s-%d", name, i), "customer_id": fmt.Sprintf("c-%d", i%500), "placed_at": "1997-01-31", "quantity": 1, "amount": "5.00",
	})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, y.url+"/orders", bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return fmt.Errorf("POST /orders: %s: %s", response.Status, reason)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// completed waits until the orders of a part have completed.
func (y *system) completed(ctx context.Context, name string, want int) error {
	last, since := -1, time.Now()
	return harness.Until(ctx, time.Hour, "the orders have not completed", func(ctx context.Context) (bool, error) {
		if y.Context.Err() != nil {
			return false, y.Wait()
		}
		var completed, others int
		err := y.pools["order"].QueryRow(ctx, `
			SELECT count(*) FILTER (WHERE status = 'completed'), count(*) FILTER (WHERE status IN ('compensated', 'parked'))
			FROM order_flow
			WHERE order_id LIKE $1 || '-%'`, name).Scan(&completed, &others)
		switch {
		case err != nil:
			return false, err
		case others > 0:
			return false, fmt.Errorf("%d orders did not complete", others)
		case completed != last:
			last, since = completed, time.Now()
		case time.Since(since) > patience:
			return false, fmt.Errorf("%d of %d orders have completed, and no other one for %s", completed, want, patience)
		}
		return completed == want, nil
	})
}
