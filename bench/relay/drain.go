package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// usage is the processor time of processes so far, in seconds.
type usage struct{ own, postgres, broker float64 }

func (s *stage) used(p *program) usage {
	return usage{p.CPU(), s.server.CPU(), s.process.CPU()}
}

// stall is the time without a new row after which missing rows count as lost. A JVM starts in less.
const stall = time.Minute

// drain makes a backlog, lets r publish all of it to Kafka, and counts the rows that arrive.
func (s *stage) drain(ctx context.Context, r relayer, l load, tcp bool) (d drained, err error) {
	b, err := s.bed(ctx, tcp, l.topics, r.into())
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := r.prime(ctx, b); err != nil {
		return d, fmt.Errorf("prime: %w", err)
	}
	if err := b.fill(ctx, r.into(), l); err != nil {
		return d, err
	}
	p, err := r.start(ctx, b)
	if err != nil {
		return d, err
	}
	defer p.stop()
	var before, after usage
	grown, last := time.Now(), 0
	limit := 2*time.Minute + time.Duration(l.rows)*time.Millisecond/2
	err = until(ctx, limit, "not drained", func(ctx context.Context) (bool, error) {
		n, err := b.ends(ctx)
		if err != nil {
			return false, err
		}
		if n == 0 {
			before = s.used(p)
		}
		if n > last {
			grown, last = time.Now(), n
		}
		if n >= l.rows || time.Since(grown) > stall {
			after = s.used(p)
			return true, nil
		}
		return false, p.alive()
	})
	if err != nil {
		return d, errors.Join(err, errors.New(tail(p.log)))
	}
	t, err := b.read(ctx, l)
	if err != nil {
		return d, err
	}
	d = drained{
		rows: l.rows, seconds: max(t.last.Sub(t.first).Seconds(), 0.001), cpu: after.own - before.own,
		postgres: after.postgres - before.postgres, broker: after.broker - before.broker,
		peakMB: p.PeakMB(), lost: t.lost(), doubled: t.doubled, disorder: t.disordered,
	}
	return d, nil
}

// floor measures how fast the server can send the same rows: to pg_recvlogical, which drops them.
func (s *stage) floor(ctx context.Context, l load, tcp bool) (d drained, err error) {
	receive, err := findReceive()
	if err != nil {
		return d, err
	}
	b, err := s.bed(ctx, tcp, l.topics, troupeTable)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	const name = "bench_floor"
	err = execute(ctx, b.socketURL(),
		"CREATE PUBLICATION "+name+" FOR TABLE troupe.outbox WITH (publish = 'insert', publish_via_partition_root = true)",
		"SELECT pg_create_logical_replication_slot('"+name+"', 'pgoutput')")
	if err != nil {
		return d, err
	}
	if err := b.fill(ctx, troupeTable, l); err != nil {
		return d, err
	}
	// It ends at a message after the rows.
	end, err := ask[string](ctx, b.socketURL(), "SELECT pg_logical_emit_message(true, 'bench', 'end')::text")
	if err != nil {
		return d, err
	}
	cmd := exec.Command(receive, "--dbname", b.url(), "--slot", name, "--start", "--no-loop", "--endpos", end, "--file", "/dev/null",
		"--option", "proto_version=1", "--option", "publication_names="+name, "--option", "binary=true", "--option", "messages=true")
	before, began := s.used(&program{}), time.Now()
	p, err := b.run("pg_recvlogical", cmd)
	if err != nil {
		return d, err
	}
	defer p.stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-p.child.Done():
			ended = true
		case <-tick.C:
			if now := p.CPU(); now > 0 {
				d.cpu, d.peakMB = now, max(d.peakMB, p.PeakMB())
			}
		case <-ctx.Done():
			return d, ctx.Err()
		}
	}
	d.rows, d.seconds = l.rows, time.Since(began).Seconds()
	if err := p.child.Wait(); err != nil {
		return d, fmt.Errorf("%w: %s", err, tail(p.log))
	}
	after := s.used(&program{})
	d.postgres = after.postgres - before.postgres
	return d, nil
}

// findReceive searches pg_recvlogical on PATH and in the folders of packages.
func findReceive() (string, error) {
	path, err := exec.LookPath("pg_recvlogical")
	if err == nil {
		return path, nil
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/pg_recvlogical", "/usr/pgsql-*/bin/pg_recvlogical"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", err
}

// A contender is a program in a comparison, with the results of its rounds.
type contender struct {
	name string
	way  string // name in the flag
	tcp  bool
	run  func(context.Context, load) (drained, error)
	done []drained
}

// contenders returns the contenders of the flags, over each transport.
func (s *stage) contenders(ways []string) (all []*contender) {
	for _, tcp := range s.transports {
		over := ", socket"
		if tcp {
			over = ", TCP"
		}
		for _, way := range ways {
			c := &contender{name: way + over, way: way, tcp: tcp}
			if way == floorWay {
				c.run = func(ctx context.Context, l load) (drained, error) { return s.floor(ctx, l, tcp) }
			} else {
				r := s.relayers[way].throughput
				if _, java := r.(*debezium); java { // it supports only TCP
					if slices.ContainsFunc(all, func(c *contender) bool { return c.way == way }) {
						continue
					}
					c.tcp, over = true, ", TCP"
				}
				c.name = r.String() + over
				c.run = func(ctx context.Context, l load) (drained, error) { return s.drain(ctx, r, l, c.tcp) }
			}
			all = append(all, c)
		}
	}
	return all
}

// warmUp makes a broker that is a JVM compile its code, once: the first contender would pay for that, with up to three times the
// broker's processor time for a row, and for minutes with rows that wait some milliseconds for the broker.
func (s *stage) warmUp(ctx context.Context, all []*contender) error {
	if s.quick || s.warmed {
		return nil
	}
	s.warmed = true
	const enough = 4_000_000
	i := slices.IndexFunc(all, func(c *contender) bool { return c.way != floorWay })
	for done := 0; i >= 0 && done < enough; done += s.rows {
		if _, err := all[i].run(ctx, load{rows: s.rows, keys: s.keys, topics: s.topics}); err != nil {
			return fmt.Errorf("warm up: %s: %w", all[i].name, err)
		}
	}
	return nil
}

// compare makes all contenders drain the same rows, in turns within each round.
func (s *stage) compare(ctx context.Context, l load, ways []string) error {
	all := s.contenders(ways)
	if err := s.warmUp(ctx, all); err != nil {
		return err
	}
	drainHeading()
	var wrong []error
	for range s.rounds {
		for _, c := range all {
			d, err := c.run(ctx, l)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			d.show(c.name, 0, 0)
			if d.lost > 0 || d.disorder > 0 {
				wrong = append(wrong, fmt.Errorf("%s: %d rows lost, %d out of order", c.name, d.lost, d.disorder))
			}
			c.done = append(c.done, d)
		}
	}
	for _, c := range all {
		var floor, dbz float64
		for _, other := range all {
			if other.way == floorWay && other.tcp == c.tcp {
				floor = medianOf(other.done).rate()
			}
			if other.way == debeziumWay {
				dbz = medianOf(other.done).rate()
			}
		}
		medianOf(c.done).show("median "+c.name, floor, dbz)
	}
	return errors.Join(wrong...)
}

func measureDrain(ctx context.Context, s *stage) error {
	l := load{rows: s.rows, keys: s.keys, topics: s.topics}
	fmt.Printf("%d rows, %s\n", l.rows, l)
	return s.compare(ctx, l, s.ways)
}

// measureShapes drains rows that differ only in keys and topics.
func measureShapes(ctx context.Context, s *stage) error {
	for _, l := range []load{
		{rows: s.rows, keys: 1_000_000, topics: 1},
		{rows: s.rows, keys: 1_000_000, topics: 10},
		{rows: s.rows, keys: 1, topics: 1},
	} {
		fmt.Printf("%d rows, %s\n", l.rows, l)
		if err := s.compare(ctx, l, s.ours()); err != nil {
			return err
		}
	}
	return nil
}

// measureBacklog drains backlogs that differ only in size.
func measureBacklog(ctx context.Context, s *stage) error {
	for _, rows := range s.backlogs {
		l := load{rows: rows, keys: s.keys, topics: s.topics}
		fmt.Printf("%d rows, %s\n", l.rows, l)
		if err := s.compare(ctx, l, s.ours()); err != nil {
			return err
		}
	}
	return nil
}
