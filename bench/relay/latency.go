package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/bench/harness"
	"github.com/troupe-go/troupe/outbox"
)

// writers is the number of connections that write concurrently: with fewer, the rates would not be reached if a commit takes
// long.
const writers = 8

// insert returns a function that inserts one row into the table in tx. For Troupe's table it calls outbox.Write, which wakes a
// relay that polls.
func (b *bed) insert(into table) func(ctx context.Context, tx pgx.Tx, l load, i int) error {
	if into.create == "" {
		box, err := outbox.New(outbox.Config{})
		return func(ctx context.Context, tx pgx.Tx, l load, i int) error {
			if err != nil {
				return err
			}
			return box.Write(ctx, tx, outbox.Entry{
				ID: rowID(i).String(), Topic: b.topics[l.topic(i)], Key: l.key(i), Type: rowType, Payload: payload(i),
			})
		}
	}
	return func(ctx context.Context, tx pgx.Tx, l load, i int) error {
		const sql = "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ($1, $2, $3, $4, $5)"
		_, err := tx.Exec(ctx, sql, rowID(i), b.topics[l.topic(i)], l.key(i), rowType, payload(i))
		return err
	}
}

// stamps holds the times at which rows were committed and arrived.
type stamps struct {
	mu        sync.Mutex
	committed []time.Time
	arrived   []time.Time
	left      int
	all       chan struct{} // closed when all rows have arrived
}

func newStamps(rows int) *stamps {
	return &stamps{committed: make([]time.Time, rows), arrived: make([]time.Time, rows), left: rows, all: make(chan struct{})}
}

func (s *stamps) commit(i int, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed[i] = at
}

func (s *stamps) arrive(i int, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived[i] = at
	if s.left--; s.left == 0 {
		close(s.all)
	}
}

// delays returns the delays of the rows that have arrived, beginning with row from. A row that arrived before its writer's commit
// returned counts as no delay.
func (s *stamps) delays(from int) (all []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := from; i < len(s.arrived); i++ {
		if !s.arrived[i].IsZero() {
			all = append(all, max(0, s.arrived[i].Sub(s.committed[i])))
		}
	}
	return all
}

// latency writes rows at a steady rate, one in a transaction, and measures the time of each from the return of its commit to a
// consumer. The first seconds are not measured, and a writer's lateness does not count. Without a relay, r is nil, and each
// writer sends the message itself when its commit has returned.
func (s *stage) latency(ctx context.Context, r relayer, rate int, tcp bool) (d delay, err error) {
	l := s.load(rate * int((s.warm + s.time).Seconds()))
	warm := rate * int(s.warm.Seconds()) // rows that are not measured
	w := &writer{load: l, rate: rate}
	if r != nil {
		w.into = r.table()
	}
	b, err := s.newBed(ctx, tcp, l.topics, r, w.into)
	if err != nil {
		return d, err
	}
	w.bed = b
	defer func() { err = errors.Join(err, b.close()) }()
	var p *program
	if r == nil {
		if w.sender, err = kgo.NewClient(kgo.SeedBrokers(b.addrs...), kgo.ProducerLinger(0)); err != nil {
			return d, err
		}
		defer w.sender.Close()
	} else {
		if p, err = b.startReady(ctx, r); err != nil {
			return d, err
		}
		defer p.stop()
	}
	st, t := newStamps(l.rows), newTally(l)
	consumer, err := b.consumer()
	if err != nil {
		return d, err
	}
	defer consumer.Close()
	w.stamps = st
	d, err = s.measured(ctx, p, consumer, t, st, warm, w.write)
	if p == nil {
		return d, err
	}
	if err != nil {
		return d, errors.Join(err, p.alive())
	}
	d.peakMB = p.PeakMB()
	return d, nil
}

// measured calls write, which commits the rows of t, and measures their delays and the cost of p, unless that is nil, from row
// warm on.
func (s *stage) measured(ctx context.Context, p *program, consumer *kgo.Client, t *tally, st *stamps, warm int,
	write func(ctx context.Context, from, to int) error) (d delay, err error) {
	running, ctx := errgroup.WithContext(ctx)
	listening, stopListening := context.WithCancel(ctx)
	running.Go(func() error { return recordArrivals(listening, consumer, t, st) })
	running.Go(func() error {
		defer stopListening()
		if err := write(ctx, 0, warm); err != nil {
			return err
		}
		before, began := s.used(p), time.Now()
		if err := write(ctx, warm, t.rows); err != nil {
			return err
		}
		after, took := s.used(p), time.Since(began)
		d.rate = float64(t.rows-warm) / took.Seconds()
		d.cpu, d.postgres = (after.own-before.own)/took.Minutes(), (after.postgres-before.postgres)/took.Minutes()
		select {
		case <-st.all:
		case <-time.After(quiet):
		case <-ctx.Done():
		}
		return harness.Sleep(ctx, 200*time.Millisecond) // for duplicates
	})
	if err := running.Wait(); err != nil {
		return d, err
	}
	d.percentiles(st.delays(warm))
	d.lost, d.doubled = float64(t.lost()), float64(t.doubled)
	return d, nil
}

// recordArrivals records when rows arrive, until ctx ends.
func recordArrivals(ctx context.Context, consumer *kgo.Client, t *tally, st *stamps) (err error) {
	for {
		fetches := consumer.PollFetches(ctx)
		now := time.Now()
		if ctx.Err() != nil {
			return nil
		}
		fetches.EachRecord(func(r *kgo.Record) {
			i, isNew, bad := t.record(r)
			if isNew {
				st.arrive(i, now)
			}
			if bad != nil && err == nil {
				err = bad
			}
		})
		if err != nil {
			return err
		}
	}
}

// writer commits rows at a steady rate.
type writer struct {
	bed    *bed
	into   table
	load   load
	rate   int
	stamps *stamps
	sender *kgo.Client // sends each row's message after its commit; nil: a relay does
}

// write writes a range of rows, each when it is due.
func (w *writer) write(ctx context.Context, from, to int) error {
	insert := w.bed.insert(w.into)
	began := time.Now()
	running, ctx := errgroup.WithContext(ctx)
	for first := from; first < from+writers; first++ {
		running.Go(func() error {
			conn, err := pgx.Connect(ctx, w.bed.socketURL())
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			for i := first; i < to; i += writers {
				due := began.Add(time.Duration(i-from) * time.Second / time.Duration(w.rate))
				if err := harness.Sleep(ctx, time.Until(due)); err != nil {
					return err
				}
				if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return insert(ctx, tx, w.load, i) }); err != nil {
					return err
				}
				w.stamps.commit(i, time.Now())
				if w.sender != nil {
					w.send(ctx, i)
				}
			}
			return nil
		})
	}
	return running.Wait()
}

// send sends row i's message and does not wait for the broker, nor end with ctx, which may end before. A message that the broker does not accept counts as lost.
func (w *writer) send(ctx context.Context, i int) {
	w.sender.Produce(context.WithoutCancel(ctx), &kgo.Record{
		Topic: w.bed.topics[w.load.topic(i)], Key: []byte(w.load.key(i)), Value: payload(i),
		Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(rowID(i).String())}},
	}, nil)
}

func (s *stage) measureLatency(ctx context.Context) error {
	contenders := s.contenders(s.ways)
	if err := s.warmUp(ctx, contenders); err != nil {
		return err
	}
	for _, rate := range s.rates {
		fmt.Printf("%d rows/s, one in a transaction, for %s\n", rate, s.time)
		delayTable.Heading()
		all := make([]*harness.Contender[delay], len(contenders))
		for i, c := range contenders {
			name := c.name
			if c.way == floorWay {
				name = "floor, sent by the writer"
			}
			all[i] = &harness.Contender[delay]{Name: name, Run: func(ctx context.Context) (delay, error) {
				return s.latency(ctx, s.relayers[c.way].latency, rate, c.tcp)
			}}
		}
		err := harness.Compare(ctx, s.rounds, all, func(name string, d delay) error {
			delayTable.Show(name, d)
			if d.lost > 0 {
				return fmt.Errorf("%.0f rows lost", d.lost)
			}
			return nil
		})
		if err != nil {
			return err
		}
		delayTable.Medians(all)
	}
	return nil
}

// relaying returns the ways except the floor.
func (s *stage) relaying() (ways []string) {
	for _, way := range s.ways {
		if way != floorWay {
			ways = append(ways, way)
		}
	}
	return ways
}
