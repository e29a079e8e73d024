package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/troupe-go/troupe/bench/harness"
)

// usage is the processor time of processes so far, in seconds.
type usage struct{ own, postgres, broker float64 }

// used returns the processor time of p, unless that is nil, and of the servers.
func (s *stage) used(p *program) usage {
	u := usage{postgres: s.Server.CPU(), broker: s.process.CPU()}
	if p != nil {
		u.own = p.CPU()
	}
	return u
}

// stall is the time without a new row after which missing rows count as lost. A JVM starts in less.
const stall = time.Minute

// drain makes a backlog, lets r publish all of it to Kafka, and counts the rows that arrive.
func (s *stage) drain(ctx context.Context, r relayer, l load, tcp bool) (d drained, err error) {
	b, err := s.newBed(ctx, tcp, l.topics, r, r.table())
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.fill(ctx, r.table(), l); err != nil {
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
	err = harness.Until(ctx, limit, "not drained", func(ctx context.Context) (bool, error) {
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
	return drained{
		rows: l.rows, seconds: max(t.last.Sub(t.first).Seconds(), 0.001), cpu: after.own - before.own,
		postgres: after.postgres - before.postgres, broker: after.broker - before.broker,
		peakMB: p.PeakMB(), lost: float64(t.lost()), doubled: float64(t.doubled), disorder: float64(t.disordered),
	}, nil
}

// floor measures how fast the server can send the same rows: to pg_recvlogical, which drops them.
func (s *stage) floor(ctx context.Context, l load, tcp bool) (d drained, err error) {
	receive, err := findReceive()
	if err != nil {
		return d, err
	}
	b, err := s.newBed(ctx, tcp, l.topics, nil, troupeTable)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	const name = "bench_floor"
	err = harness.Execute(ctx, b.socketURL(),
		"CREATE PUBLICATION "+name+" FOR TABLE troupe.outbox WITH (publish = 'insert', publish_via_partition_root = true)",
		"SELECT pg_create_logical_replication_slot('"+name+"', 'pgoutput')")
	if err != nil {
		return d, err
	}
	if err := b.fill(ctx, troupeTable, l); err != nil {
		return d, err
	}
	// It ends at a message after the rows.
	end, err := harness.Query[string](ctx, b.socketURL(), "SELECT pg_logical_emit_message(true, 'bench', 'end')::text")
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

// A contender is a program in a comparison, over one transport.
type contender struct {
	name string
	way  string // name in the flag
	tcp  bool
}

// contenders returns the contenders of the flags, over each transport. Debezium supports only TCP.
func (s *stage) contenders(ways []string) (all []contender) {
	for _, tcp := range s.transports {
		for _, way := range ways {
			c := contender{name: way, way: way, tcp: tcp}
			if way != floorWay {
				r := s.relayers[way].throughput
				c.name = r.String()
				if _, java := r.(*debezium); java {
					if slices.ContainsFunc(all, func(c contender) bool { return c.way == way }) {
						continue
					}
					c.tcp = true
				}
			}
			c.name += map[bool]string{false: ", socket", true: ", TCP"}[c.tcp]
			all = append(all, c)
		}
	}
	return all
}

// drainOnce runs a contender on a backlog.
func (s *stage) drainOnce(ctx context.Context, c contender, l load) (drained, error) {
	if c.way == floorWay {
		return s.floor(ctx, l, c.tcp)
	}
	return s.drain(ctx, s.relayers[c.way].throughput, l, c.tcp)
}

// warmUp makes a broker that is a JVM compile its code, once: the first contender would pay for that, with up to three times the
// broker's processor time for a row, and for minutes with rows that wait some milliseconds for the broker.
func (s *stage) warmUp(ctx context.Context, all []contender) error {
	if s.quick || s.cold || s.warmed {
		return nil
	}
	s.warmed = true
	const enough = 4_000_000
	i := slices.IndexFunc(all, func(c contender) bool { return c.way != floorWay })
	for done := 0; i >= 0 && done < enough; done += s.rows {
		if _, err := s.drainOnce(ctx, all[i], s.load(s.rows)); err != nil {
			return fmt.Errorf("warm up: %s: %w", all[i].name, err)
		}
	}
	return nil
}

func (s *stage) load(rows int) load { return load{rows: rows, keys: s.keys, topics: s.topics} }

// compare makes all contenders drain the same rows, in turns within each round.
func (s *stage) compare(ctx context.Context, l load, ways []string) error {
	fmt.Printf("%d rows, %s\n", l.rows, l)
	contenders := s.contenders(ways)
	if err := s.warmUp(ctx, contenders); err != nil {
		return err
	}
	drainTable.Heading()
	all := make([]*harness.Contender[drained], len(contenders))
	for i, c := range contenders {
		all[i] = &harness.Contender[drained]{Name: c.name, Run: func(ctx context.Context) (drained, error) { return s.drainOnce(ctx, c, l) }}
	}
	var wrong []error
	err := harness.Compare(ctx, s.rounds, all, func(name string, d drained) error {
		drainTable.Show(name, d)
		if d.lost > 0 || d.disorder > 0 {
			wrong = append(wrong, fmt.Errorf("%s: %.0f rows lost, %.0f out of order", name, d.lost, d.disorder))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, c := range contenders {
		m := drainTable.Median(all[i].Results)
		for j, other := range contenders {
			rate := drainTable.Median(all[j].Results).rate()
			if other.way == floorWay && other.tcp == c.tcp {
				m.ofFloor = m.rate() / rate
			}
			if other.way == debeziumWay {
				m.ofDebezium = m.rate() / rate
			}
		}
		drainTable.Show("median "+c.name, m)
	}
	return errors.Join(wrong...)
}

func (s *stage) measureDrain(ctx context.Context) error {
	return s.compare(ctx, s.load(s.rows), s.ways)
}

// measureShapes drains rows that differ only in keys and topics.
func (s *stage) measureShapes(ctx context.Context) error {
	for _, l := range []load{
		{rows: s.rows, keys: 1_000_000, topics: 1},
		{rows: s.rows, keys: 1_000_000, topics: 10},
		{rows: s.rows, keys: 1, topics: 1},
	} {
		if err := s.compare(ctx, l, s.ours()); err != nil {
			return err
		}
	}
	return nil
}

// measureBacklog drains backlogs that differ only in size.
func (s *stage) measureBacklog(ctx context.Context) error {
	for _, rows := range s.backlogs {
		if err := s.compare(ctx, s.load(rows), s.ours()); err != nil {
			return err
		}
	}
	return nil
}
