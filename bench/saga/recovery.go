package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/saga"
)

// A task is a system on existing databases, in a process that recovery kills.
type task struct {
	Flow  string
	URLs  []string
	Addrs []string
	// Swift: members and relays do not wait until the previous ones time out.
	Swift bool
}

// serve runs everything until the process is killed, or its parent is.
func serve(ctx context.Context, k task) error {
	servers := &harness.Servers{}
	y := &system{System: servers.NewSystem(ctx), swift: k.Swift, brokers: k.Addrs, waits: make(map[string]chan saga.Status)}
	y.Flow = k.Flow
	for _, url := range k.URLs {
		if err := y.connect(ctx, url); err != nil {
			return err
		}
	}
	if err := y.run(ctx); err != nil {
		return err
	}
	return y.Wait()
}

// patience bounds the time until all sagas have ended.
const patience = 5 * time.Minute

// recovery starts sagas, kills the process that runs them when a tenth has been shipped, and starts it again: with the defaults,
// and with static members of the groups and leases of a second for the relays, which need not wait until the old ones time out.
func (s *stage) recovery(ctx context.Context) (string, error) {
	plain, err := s.recover(ctx, false)
	if err != nil {
		return "", err
	}
	swift, err := s.recover(ctx, true)
	return "as it comes, " + plain + "; with static members and short leases, " + swift, err
}

func (s *stage) recover(ctx context.Context, swift bool) (_ string, err error) {
	y, err := s.prepare(ctx, "kafka")
	defer func() { err = errors.Join(err, y.Close()) }()
	if err != nil {
		return "", err
	}
	y.swift = swift
	if _, err := y.newCoordinator(ctx); err != nil {
		return "", err
	}
	if err := y.startMany(ctx, s.stopped); err != nil {
		return "", err
	}
	kill, err := y.startChild(ctx)
	if err != nil {
		return "", err
	}
	err = harness.UntilCount(ctx, y.pools[3], patience, "SELECT count(*) FROM effects", s.stopped/10)
	kill()
	if err != nil {
		return "", err
	}
	const ended = "SELECT count(*) FROM troupe.sagas WHERE status = 'completed'"
	var before int
	if err := y.order.QueryRow(ctx, ended).Scan(&before); err != nil {
		return "", err
	}
	began := time.Now()
	if kill, err = y.startChild(ctx); err != nil {
		return "", err
	}
	defer kill()
	if err := harness.UntilCount(ctx, y.order, patience, ended, min(before+1, s.stopped)); err != nil { // all may have ended before the kill
		return "", err
	}
	first := time.Since(began)
	if err := harness.UntilCount(ctx, y.order, patience, ended, s.stopped); err != nil {
		return "", err
	}
	all := time.Since(began)
	return fmt.Sprintf("%d sagas under way when all was killed: the next one ended %.1f s after the start, all after %.1f s",
		s.stopped-before, first.Seconds(), all.Seconds()), y.check(ctx)
}

// startMany begins n sagas, 100 in a transaction.
func (y *system) startMany(ctx context.Context, n int) error {
	const some = 100
	for ; n > 0; n -= some {
		err := pgx.BeginFunc(ctx, y.order, func(tx pgx.Tx) error {
			for range min(some, n) {
				if _, err := y.coordinator.Start(ctx, tx, "order", orderData(nextKey())); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// startChild runs the system in a process of its own. kill ends it by SIGKILL.
func (y *system) startChild(ctx context.Context) (kill func(), err error) {
	k := task{Flow: y.Flow, Addrs: y.brokers, Swift: y.swift}
	for _, pool := range y.pools {
		k.URLs = append(k.URLs, pool.Config().ConnString())
	}
	child, err := harness.StartTask(ctx, k, nil, os.Stderr)
	if err != nil {
		return nil, err
	}
	return func() {
		child.Kill()
		<-child.Done()
	}, nil
}
