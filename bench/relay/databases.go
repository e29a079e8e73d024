package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/bench/harness"
)

// sharedRate is the number of rows per second that are written to all databases together.
const sharedRate = 200

// A sharedCost is the cost of one outbox-relay with the outboxes of many databases, first without rows and then at sharedRate.
type sharedCost struct {
	start       float64 // seconds from the process's start until all outboxes are relayed
	connections float64
	idling
	delay
}

var sharedTable = harness.Table[sharedCost]{Width: 38, Columns: []harness.Column[sharedCost]{
	{Head: "start s", Width: 8, Decimals: 1, Figure: func(c *sharedCost) *float64 { return &c.start }},
	{Head: "connections", Width: 11, Figure: func(c *sharedCost) *float64 { return &c.connections }},
	{Head: "statements/min", Width: 14, Figure: func(c *sharedCost) *float64 { return &c.statements }},
	{Head: "idle cpu s/min", Width: 14, Decimals: 2, Figure: func(c *sharedCost) *float64 { return &c.idling.cpu }},
	{Head: "idle pg s/min", Width: 13, Decimals: 2, Figure: func(c *sharedCost) *float64 { return &c.idling.postgres }},
	{Head: "p50 ms", Width: 9, Decimals: 2, Figure: func(c *sharedCost) *float64 { return &c.p50 }},
	{Head: "p99 ms", Width: 9, Decimals: 2, Figure: func(c *sharedCost) *float64 { return &c.p99 }},
	{Head: "cpu s/min", Width: 9, Decimals: 2, Figure: func(c *sharedCost) *float64 { return &c.delay.cpu }},
	{Head: "pg s/min", Width: 9, Decimals: 2, Figure: func(c *sharedCost) *float64 { return &c.delay.postgres }},
	{Head: "peak MB", Width: 8, Decimals: 1, Figure: func(c *sharedCost) *float64 { return &c.peakMB }},
	{Head: "lost", Width: 5, Figure: func(c *sharedCost) *float64 { return &c.lost }, Sum: true},
	{Head: "doubled", Width: 7, Figure: func(c *sharedCost) *float64 { return &c.doubled }, Sum: true},
}}

// measureDatabases measures each number of databases once, since its figures are compared with those of the other numbers.
func (s *stage) measureDatabases(ctx context.Context) error {
	for _, n := range s.databases {
		fmt.Printf("one process, outboxes of %d databases: empty for %s, then %d rows/s in all for %s\n", n, s.time, sharedRate, s.time)
		sharedTable.Heading()
		for _, way := range s.ours() {
			t, ok := s.relayers[way].latency.(*troupe)
			if way == floorWay || !ok {
				continue
			}
			cost, err := s.many(ctx, t, n)
			if err != nil {
				return fmt.Errorf("%s: %w", t, err)
			}
			sharedTable.Show(t.name, cost)
			if cost.lost > 0 {
				return fmt.Errorf("%.0f rows lost", cost.lost)
			}
		}
	}
	return nil
}

// many runs t with the outboxes of n databases, which it reaches over the Unix socket.
func (s *stage) many(ctx context.Context, t *troupe, n int) (c sharedCost, err error) {
	b, err := s.newBed(ctx, false, 1, nil, troupeTable)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	var names []string
	defer func() {
		for _, name := range names {
			err = errors.Join(err, s.Postgres.DropDatabase(context.WithoutCancel(ctx), name))
		}
	}()
	var file strings.Builder
	file.WriteString("outboxes:\n")
	for i := range n {
		name := fmt.Sprintf("%s_%d", b.name, i)
		if _, err := s.Postgres.CreateDatabase(ctx, name, template); err != nil {
			return c, err
		}
		names = append(names, name)
		// The setting applies to new connections, such as the relay's.
		if err := harness.Execute(ctx, s.Postgres.SocketURL(""), "ALTER DATABASE "+name+" SET log_statement = 'all'"); err != nil {
			return c, err
		}
		fmt.Fprintf(&file, "  - {name: db%d, database-url: %q}\n", i, s.Postgres.SocketURL(name))
	}
	config := filepath.Join(s.dir, b.name+".yaml")
	if err := os.WriteFile(config, []byte(file.String()), 0o600); err != nil {
		return c, err
	}
	began := time.Now()
	args := append([]string{"--config", config, "--service", "bench"}, t.args...)
	p, err := b.startRelay(args, append(os.Environ(), "KAFKA_BROKERS="+strings.Join(s.addrs, ",")))
	if err != nil {
		return c, err
	}
	defer p.stop()
	if err := p.ready(ctx); err != nil {
		return c, err
	}
	if t.wal {
		err := harness.Until(ctx, 5*time.Minute, "the relay does not stream from all databases", func(ctx context.Context) (bool, error) {
			const active = "SELECT count(*) FROM pg_replication_slots WHERE active AND starts_with(database, $1)"
			streams, err := harness.Query[int](ctx, s.Postgres.SocketURL(""), active, b.name+"_")
			return streams == n, errors.Join(err, p.alive())
		})
		if err != nil {
			return c, err
		}
	}
	c.start = time.Since(began).Seconds()
	if err := harness.Sleep(ctx, s.warm); err != nil {
		return c, err
	}
	if c.idling, err = s.idleCost(ctx, p, regexp.QuoteMeta(b.name)+`_\d+`); err != nil {
		return c, err
	}
	const open = "SELECT count(*)::float8 FROM pg_stat_activity WHERE starts_with(datname, $1)"
	if c.connections, err = harness.Query[float64](ctx, s.Postgres.SocketURL(""), open, b.name+"_"); err != nil {
		return c, err
	}
	for _, name := range names { // the writers' statements need no log
		if err := harness.Execute(ctx, s.Postgres.SocketURL(""), "ALTER DATABASE "+name+" RESET log_statement"); err != nil {
			return c, err
		}
	}
	if c.delay, err = s.trickle(ctx, b, p, names); err != nil {
		return c, errors.Join(err, p.alive())
	}
	c.peakMB = p.PeakMB()
	return c, p.alive()
}

// trickle writes rows at sharedRate to the databases in turn, one in a transaction, and measures as latency does.
func (s *stage) trickle(ctx context.Context, b *bed, p *program, names []string) (d delay, err error) {
	l := s.load(sharedRate * int((s.warm + s.time).Seconds()))
	warm := sharedRate * int(s.warm.Seconds())
	st, t := newStamps(l.rows), newTally(l)
	consumer, err := b.consumer()
	if err != nil {
		return d, err
	}
	defer consumer.Close()
	conns := make([]*pgx.Conn, len(names))
	for i, name := range names {
		if conns[i], err = pgx.Connect(ctx, s.Postgres.SocketURL(name)); err != nil {
			return d, err
		}
		defer conns[i].Close(context.WithoutCancel(ctx))
	}
	insert := b.insert(troupeTable)
	write := func(ctx context.Context, from, to int) error {
		began := time.Now()
		running, ctx := errgroup.WithContext(ctx)
		for n := range min(writers, len(conns)) { // each writes to a part of the databases
			running.Go(func() error {
				for i := from; i < to; i++ {
					db := i % len(conns)
					if db%writers != n {
						continue
					}
					if err := harness.Sleep(ctx, time.Until(began.Add(time.Duration(i-from)*time.Second/sharedRate))); err != nil {
						return err
					}
					if err := pgx.BeginFunc(ctx, conns[db], func(tx pgx.Tx) error { return insert(ctx, tx, l, i) }); err != nil {
						return err
					}
					st.commit(i, time.Now())
				}
				return nil
			})
		}
		return running.Wait()
	}
	return s.measured(ctx, p, consumer, t, st, warm, write)
}
