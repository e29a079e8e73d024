package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/saga"
)

// childEnv holds the task of a child process of this binary, which recovery kills.
const childEnv = "TROUPE_BENCH_SAGA_CHILD"

// A task is a system on existing databases.
type task struct {
	Flow  string
	URLs  []string
	Addrs []string
	// Swift: members and relays do not wait until the previous ones time out.
	Swift bool
}

// beChild runs everything until it is killed, or its parent is.
func beChild(text string) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	err := serve(context.Background(), text)
	fmt.Fprintln(os.Stderr, "saga:", err)
	os.Exit(1)
}

func serve(ctx context.Context, text string) error {
	var k task
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		return err
	}
	y := &system{s: &stage{addrs: k.Addrs}, flow: k.Flow, swift: k.Swift, waits: make(map[string]chan saga.Status)}
	for _, url := range k.URLs {
		pool, err := connect(ctx, url)
		if err != nil {
			return err
		}
		y.pools = append(y.pools, pool)
	}
	y.pool = y.pools[0]
	if err := y.begin(ctx); err != nil {
		return err
	}
	return y.running.Wait()
}

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
	defer func() { err = errors.Join(err, y.close()) }()
	if err != nil {
		return "", err
	}
	y.swift = swift
	if _, err := y.coordinator(ctx); err != nil {
		return "", err
	}
	if err := y.startMany(ctx, s.stopped); err != nil {
		return "", err
	}
	kill, err := y.child()
	if err != nil {
		return "", err
	}
	err = awaitCount(ctx, y.pools[3], "SELECT count(*) FROM effects", s.stopped/10)
	if err := errors.Join(err, kill()); err != nil {
		return "", err
	}
	const ended = "SELECT count(*) FROM troupe.sagas WHERE status = 'completed'"
	var before int
	if err := y.pool.QueryRow(ctx, ended).Scan(&before); err != nil {
		return "", err
	}
	began := time.Now()
	if kill, err = y.child(); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, kill()) }()
	if err := awaitCount(ctx, y.pool, ended, min(before+1, s.stopped)); err != nil { // all may have ended before the kill
		return "", err
	}
	first := time.Since(began)
	if err := awaitCount(ctx, y.pool, ended, s.stopped); err != nil {
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
		err := pgx.BeginFunc(ctx, y.pool, func(tx pgx.Tx) error {
			for range min(some, n) {
				_, err := y.c.Start(ctx, tx, "order", map[string]any{
					"order_id": nextKey(), "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 1,
				})
				if err != nil {
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

// child runs this binary as a process of its own. kill ends it by SIGKILL.
func (y *system) child() (kill func() error, err error) {
	k := task{Flow: y.flow, Addrs: y.s.addrs, Swift: y.swift}
	for _, pool := range y.pools {
		k.URLs = append(k.URLs, pool.Config().ConnString())
	}
	text, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"="+string(text)), os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() error {
		err := cmd.Process.Kill()
		_ = cmd.Wait() // the error is that it was killed
		return err
	}, nil
}

// awaitCount waits until a query returns n or more.
func awaitCount(ctx context.Context, pool *pgxpool.Pool, sql string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		var count int
		if err := pool.QueryRow(ctx, sql).Scan(&count); err != nil {
			return err
		}
		if count >= n {
			tick.Stop()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return fmt.Errorf("%d of %d: %w", count, n, ctx.Err())
		}
	}
}
