//go:build unix

package relay_test

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// divided returns a configuration that polls this many shards.
func (s *stage) divided(shards int) relay.Config {
	cfg := s.config()
	cfg.Source, cfg.Delivery, cfg.Shards = relay.Poll, relay.AtLeastOnce, shards
	cfg.Lease = 10 * time.Second // a quarter is the wait for a shard that is not free yet
	return cfg
}

// waitShards waits until holder has n of this many shards.
func (s *stage) waitShards(holder string, n, of int) {
	s.t.Helper()
	testkit.Wait(s.t, fmt.Sprintf("%s with %d of %d shards", holder, n, of), func() (bool, error) {
		held := s.count(`SELECT count(*) FROM troupe.relay_leases l JOIN troupe.relay_leases lead ON lead.shard = 0
			WHERE l.holder = $1 AND l.expires_at > clock_timestamp() AND l.layout = lead.layout AND lead.shards = $2`, holder, of)
		if held != n {
			return false, fmt.Errorf("it has %d", held)
		}
		return true, nil
	})
}

// drained waits until the table is empty, and checks the records.
func (s *stage) drained(committed map[string]int) verdict {
	s.t.Helper()
	testkit.Wait(s.t, "an empty outbox", func() (bool, error) {
		if n := s.count("SELECT count(*) FROM troupe.outbox"); n > 0 {
			return false, fmt.Errorf("%d rows", n)
		}
		return true, nil
	})
	v := judge(s.collect(total(committed), s.topic), committed)
	s.t.Logf("%d rows", total(committed))
	v.requireSound(s.t)
	return v
}

func TestOneRelayHoldsAllShards(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	committed := s.fill(s.topic, 50, 40)
	s.exec(`INSERT INTO troupe.outbox (topic, type, payload) SELECT $1, 'Thing', convert_to('0', 'UTF8') FROM generate_series(1, 100)`, s.topic)
	cfg := s.divided(4)
	cfg.Batch, cfg.Lease = 100, 30*time.Second // no relay waits for it
	r := s.start(cfg)
	testkit.Wait(t, "four shards", func() (bool, error) { return len(r.Status().Held) == 4, nil })
	records := s.collect(2100, s.topic)
	keyed := records[:0]
	without := 0
	for _, record := range records {
		if record.Key == nil {
			without++
			continue
		}
		keyed = append(keyed, record)
	}
	require.Equal(t, 100, without)
	v := judge(keyed, committed)
	v.requireSound(t)
	require.Zero(t, v.repeated)
	require.Equal(t, []int{0, 1, 2, 3}, r.Status().Held)
	require.Equal(t, 4, r.Status().Shards)
	require.NoError(t, r.Ready())
	require.NoError(t, r.stop())
	require.Zero(t, s.count("SELECT count(*) FROM troupe.relay_leases WHERE expires_at > clock_timestamp()"), "all are let go")
}

// Of two processes each has two shards; when one is killed, the other takes its shards once their leases have expired.
func TestAKilledRelaysShardsAreTakenOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, victim string }{{"the leader", "first"}, {"another", "second"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			loaded := make(chan map[string]int)
			go func() { loaded <- s.load(ctx, 4, 5) }()
			processes := make(map[string]*process)
			for _, holder := range []string{"first", "second"} {
				processes[holder] = s.spawn(childConfig{
					Holder: holder, Source: relay.Poll, Shards: 4, Batch: 20, Lease: time.Second,
				})
				s.waitLeader("first")
			}
			s.waitShards("first", 2, 4)
			s.waitShards("second", 2, 4)
			processes[c.victim].signal(syscall.SIGKILL)
			processes[c.victim].wait(waitLimit)
			delete(processes, c.victim)
			for heir := range processes {
				s.waitShards(heir, 4, 4)
			}
			at := s.count("SELECT last_value FROM troupe.outbox_position_seq")
			testkit.Wait(t, "more rows", func() (bool, error) {
				return s.count("SELECT last_value FROM troupe.outbox_position_seq") > at+100, nil
			})
			cancel()
			s.drained(<-loaded)
		})
	}
}

// A relay that is frozen with two of four shards wakes after its leases: it repeats by id, and deletes no row.
func TestARelayThatWasFrozenWithShardsOnlyRepeats(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	spawn := func(holder string) *process {
		return s.spawn(childConfig{Holder: holder, Source: relay.Poll, Shards: 4, Batch: 20, Lease: time.Second})
	}
	frozen := spawn("frozen")
	s.waitLeader("frozen")
	spawn("heir")
	s.waitShards("frozen", 2, 4)
	s.waitShards("heir", 2, 4)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loaded := make(chan map[string]int)
	go func() { loaded <- s.load(ctx, 4, 5) }()
	testkit.Wait(t, "rows", func() (bool, error) { return s.count("SELECT last_value FROM troupe.outbox_position_seq") > 100, nil })
	frozen.signal(syscall.SIGSTOP)
	s.waitShards("heir", 4, 4)
	frozen.signal(syscall.SIGCONT)
	s.waitShards("frozen", 2, 4) // it requests its share again
	cancel()
	s.drained(<-loaded)
	frozen.signal(syscall.SIGTERM)
	require.Equal(t, 0, frozen.wait(waitLimit).ExitStatus())
}

// Each relay starts while the previous one still runs, and leads when that one is stopped: then its number applies.
func TestTheNumberOfShardsMayChangeUnderLoad(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loaded := make(chan map[string]int)
	go func() { loaded <- s.load(ctx, 6, 5) }()
	var last *running
	for n, number := range []int{1, 4, 2, 3, 1, 4} {
		cfg := s.divided(number)
		cfg.Holder, cfg.Batch = "relay-"+strconv.Itoa(n), 20
		r := s.start(cfg)
		if last != nil {
			testkit.Wait(t, "it to see the leader", func() (bool, error) { return r.Status().Leader != "", nil })
			require.NoError(t, last.stop())
		}
		s.waitShards(cfg.Holder, number, number)
		from := r.Status().Deleted
		testkit.Wait(t, "rows", func() (bool, error) { return r.Status().Deleted > from+100, nil })
		last = &r
	}
	cancel()
	s.drained(<-loaded)
}

// Only polls use shards: a relay that is configured to stream leads when the leases of the shards are free, and vice versa.
func TestChangingTheSourceWithShardsUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	s, _ := newServer(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loaded := make(chan map[string]int)
	go func() { loaded <- s.load(ctx, 4, 5) }()
	var last *running
	for n, source := range []relay.Source{relay.Poll, relay.WAL, relay.Poll, relay.WAL, relay.Poll} {
		cfg := s.divided(4)
		cfg.Holder = "relay-" + strconv.Itoa(n)
		if cfg.Source = source; source == relay.WAL {
			cfg.Shards = 0
		}
		r := s.start(cfg)
		if last != nil {
			testkit.Wait(t, "it to see the leader", func() (bool, error) { return r.Status().Leader != "", nil })
			require.NoError(t, last.stop())
		}
		if source == relay.WAL {
			s.waitStream()
			s.waitShards(cfg.Holder, 1, 1)
		} else {
			s.waitShards(cfg.Holder, 4, 4)
		}
		from := r.Status().Deleted
		testkit.Wait(t, "rows from "+string(source), func() (bool, error) { return r.Status().Deleted > from+200, nil })
		last = &r
	}
	cancel()
	committed := <-loaded
	judge(s.gather(total(committed), s.topic), committed).requireSound(t)
}

// A parked row blocks its key, in whichever shard, and nothing else.
func TestAParkedRowHoldsOnlyItsKeyAmongShards(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for k := range 8 {
		s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'Thing', $3)`,
			s.topic, "big"+strconv.Itoa(k), incompressible(1_200_000))
		s.insert(s.topic, "big"+strconv.Itoa(k), "behind")
	}
	committed := s.fill(s.topic, 40, 50)
	cfg := s.divided(4)
	cfg.Batch = 50
	r := s.start(cfg)
	testkit.Wait(t, "all but the large rows and those behind them", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.outbox") == 16 && r.Status().Parked == 8, nil
	})
	s.exec("DELETE FROM troupe.outbox o USING troupe.outbox_failures t WHERE o.position = t.position")
	s.exec("DELETE FROM troupe.outbox_failures")
	rest := s.collect(2008, s.topic)
	keyed := rest[:0]
	for _, record := range rest {
		if string(record.Value) != "behind" {
			keyed = append(keyed, record)
		}
	}
	require.Len(t, keyed, 2000)
	judge(keyed, committed).requireSound(t)
}

// One look serves all shards of a process, and its standby for the lead.
func TestIdleShardsNeedOneStatementPerInterval(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	count := &statements{}
	config := s.pool.Config()
	config.ConnConfig.Tracer = count
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	cfg := s.divided(8)
	cfg.Pool, cfg.Interval, cfg.Lease, cfg.Holder = pool, 100*time.Millisecond, 3*time.Second, "r"
	r := s.start(cfg)
	s.waitShards("r", 8, 8)
	before, began := count.n.Load(), time.Now()
	testkit.Wait(t, "30 intervals of a statement each", func() (bool, error) {
		passed := time.Since(began)
		if passed < 30*cfg.Interval {
			return false, nil
		}
		n := count.n.Load() - before
		before, began = before+n, time.Now() // they have only begun to rest
		if n > int64(passed/cfg.Interval)+1 {
			return false, fmt.Errorf("%d statements in %s", n, passed)
		}
		return true, nil
	})
	require.NoError(t, r.Ready())
}

func TestShardsThatCannotBeMeantAreRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, c := range []struct {
		change func(*relay.Config)
		want   string
	}{
		{func(c *relay.Config) { c.Shards = -1 }, "shards -1: want 1 to 64"},
		{func(c *relay.Config) { c.Shards = 65 }, "shards 65: want 1 to 64"},
		{func(c *relay.Config) { c.Shards, c.Source = 2, relay.WAL }, "only the poll source is divided"},
	} {
		cfg := s.divided(1)
		c.change(&cfg)
		_, err := relay.New(cfg)
		require.ErrorContains(t, err, c.want)
	}
}
