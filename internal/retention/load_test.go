package retention_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/testkit"
)

// ownServer starts a server with prepared transactions that the test may restart.
func ownServer(t testing.TB) (*devstack.Postgres, *pgxpool.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	server, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{Settings: map[string]string{
		"max_prepared_transactions": "50",
		"autovacuum":                "off", // it may lock a table for a moment to shorten it
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	require.NoError(t, migrations.Up(ctx, server.URL("")))
	config, err := pgxpool.ParseConfig(server.SocketURL(""))
	require.NoError(t, err)
	config.MaxConns = 30
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return server, pool
}

// After a restart a prepared transaction is listed under another name, so a list from before would show it as ended.
func TestAPreparedWriterKeepsItsPartitionThroughARestart(t *testing.T) {
	t.Parallel()
	server, pool := ownServer(t)
	r := furnish(t, pool)
	prepare := r.begin()
	_, err := prepare.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, type) VALUES ('late', 'T')")
	require.NoError(t, err)
	_, err = prepare.Exec(t.Context(), "PREPARE TRANSACTION 'p'")
	require.NoError(t, err)
	r.insert(25)
	dropper := r.retention(atOnce)
	require.Empty(t, r.drop(dropper, r.snapshot()).Dropped)

	require.NoError(t, server.Restart(t.Context()))
	testkit.Wait(t, "the server", func() (bool, error) { return true, pool.Ping(t.Context()) })
	testkit.Wait(t, "a call that gets through", func() (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := dropper.Drop(ctx, r.snapshot()) // the first Drop finds its connection closed
		return true, err
	})
	for range 3 {
		require.Empty(t, r.drop(dropper, r.snapshot()).Dropped)
	}
	require.Equal(t, "attached", r.state(first))
	r.insert(10)

	r.exec("COMMIT PREPARED 'p'")
	require.Equal(t, 1, r.count("SELECT count(*) FROM troupe.outbox WHERE topic = 'late'"))
	require.Subset(t, r.drop(dropper, r.snapshot()).Dropped, []string{first, second})
}

// stream publishes nothing: it records the positions that logical decoding delivered, and the confirmed snapshot.
type stream struct {
	pool      *pgxpool.Pool
	seen      map[int64]int
	published atomic.Value // retention.Published

	snapshot retention.Published // to be confirmed when the stream has passed lsn
	lsn      string
}

func openStream(t testing.TB, pool *pgxpool.Pool) *stream {
	t.Helper()
	for _, sql := range []string{
		"CREATE PUBLICATION p FOR TABLE troupe.outbox WITH (publish = 'insert', publish_via_partition_root = true)",
		"SELECT pg_create_logical_replication_slot('s', 'pgoutput')",
	} {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	s := &stream{pool: pool, seen: make(map[int64]int)}
	s.published.Store(retention.Published(""))
	return s
}

func (s *stream) read(ctx context.Context) error {
	if s.lsn == "" {
		err := s.pool.QueryRow(ctx, "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text").
			Scan(&s.snapshot, &s.lsn)
		if err != nil {
			return err
		}
	}
	rows, err := s.pool.Query(ctx, `
		SELECT data FROM pg_logical_slot_get_binary_changes('s', NULL, NULL, 'proto_version', '1', 'publication_names', 'p')`)
	if err != nil {
		return err
	}
	changes, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c[0] != 'I' {
			continue
		}
		c = c[8:] // kind, relation, 'N', number of columns; then of the first: 't', length, text
		position, err := strconv.ParseInt(string(c[5:5+binary.BigEndian.Uint32(c[1:])]), 10, 64)
		if err != nil {
			return err
		}
		s.seen[position]++
	}
	var passed bool
	err = s.pool.QueryRow(ctx, `
		SELECT confirmed_flush_lsn >= $1::text::pg_lsn FROM pg_replication_slots WHERE slot_name = 's'`, s.lsn).Scan(&passed)
	if passed {
		s.published.Store(s.snapshot)
		s.lsn = ""
	}
	return err
}

// journal records which positions were committed, according to their writers.
type journal struct {
	mu        sync.Mutex
	committed []int64
}

func (j *journal) add(positions []int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.committed = append(j.committed, positions...)
}

func (j *journal) len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.committed)
}

// scribe writes in every possible way.
type scribe struct {
	conn    *pgx.Conn
	journal *journal
	name    string
	n       int
}

func (s *scribe) write(ctx context.Context) error {
	async := "on"
	if rand.IntN(2) == 0 {
		async = "off"
	}
	tx, err := s.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = "+async); err != nil {
		return err
	}
	positions, err := s.fill(ctx, tx)
	if err != nil {
		return err
	}
	switch rand.IntN(12) {
	case 0:
		return tx.Rollback(ctx)
	case 1:
		return s.prepare(ctx, tx, positions)
	case 2, 3: // stays open, and then writes again
		if _, err := tx.Exec(ctx, "SELECT pg_sleep($1)", rand.Float64()*0.3); err != nil {
			return err
		}
		more, err := insert(ctx, tx, 1)
		if err != nil {
			return err
		}
		positions = append(positions, more...)
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	s.journal.add(positions)
	return nil
}

func (s *scribe) fill(ctx context.Context, tx pgx.Tx) ([]int64, error) {
	switch rand.IntN(4) {
	case 0:
		return insert(ctx, tx, 2+rand.IntN(40))
	case 1: // savepoints, some rolled back
		var all []int64
		for range 4 {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return nil, err
			}
			positions, err := insert(ctx, inner, 1+rand.IntN(3))
			if err != nil {
				return nil, err
			}
			if rand.IntN(2) == 0 {
				err = inner.Rollback(ctx)
			} else {
				err = inner.Commit(ctx)
				all = append(all, positions...)
			}
			if err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return insert(ctx, tx, 1)
}

func (s *scribe) prepare(ctx context.Context, tx pgx.Tx, positions []int64) error {
	s.n++
	id := fmt.Sprintf("'%s-%d'", s.name, s.n)
	if _, err := tx.Exec(ctx, "PREPARE TRANSACTION "+id); err != nil {
		return err
	}
	if _, err := s.conn.Exec(ctx, "SELECT pg_sleep($1)", rand.Float64()*0.3); err != nil {
		return err
	}
	if rand.IntN(3) == 0 {
		_, err := s.conn.Exec(ctx, "ROLLBACK PREPARED "+id)
		return err
	}
	if _, err := s.conn.Exec(ctx, "COMMIT PREPARED "+id); err != nil {
		return err
	}
	s.journal.add(positions)
	return nil
}

func insert(ctx context.Context, tx pgx.Tx, rows int) ([]int64, error) {
	found, err := tx.Query(ctx, `
		INSERT INTO troupe.outbox (topic, type) SELECT 't', 'T' FROM generate_series(1, $1) RETURNING position`, rows)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowTo[int64])
}

// Every row that its writer knows to be committed is streamed once, while the partitions it was written to are dropped.
func TestNoRowIsLostWhilePartitionsComeAndGo(t *testing.T) {
	t.Parallel()
	_, pool := ownServer(t)
	s := openStream(t, pool)
	_, err := pool.Exec(t.Context(), "SELECT setval('troupe.outbox_position_seq', 19999999)")
	require.NoError(t, err)
	small := retention.Partitions{Size: 400, Ahead: 60} // whose creation may stall for a while; the writers continue
	_, err = small.Ensure(t.Context(), pool)
	require.NoError(t, err)

	var all sync.WaitGroup
	work, stop := context.WithCancel(t.Context())
	defer all.Wait()
	defer stop()
	repeat := func(what string, once func(context.Context) error) {
		all.Go(func() {
			for work.Err() == nil {
				if err := once(context.Background()); err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
			}
		})
	}
	j := &journal{}
	for n := range 10 {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		writer := &scribe{conn: conn.Conn(), journal: j, name: fmt.Sprintf("w%d", n)}
		repeat("write", writer.write)
	}
	repeat("ensure", func(ctx context.Context) error {
		if _, err := small.Ensure(ctx, pool); err != nil && !impatient(err) {
			return err
		}
		return nil
	})
	repeat("read", s.read)
	dropped := atomic.Int64{}
	dropper, err := retention.New(retention.Config{Pool: pool, Age: atOnce})
	require.NoError(t, err)
	defer dropper.Close()
	calls := 0
	repeat("drop", func(ctx context.Context) error {
		if calls++; calls%5 == 0 {
			dropper.Close() // the results of (a) and (b) are forgotten
		}
		d, err := dropper.Drop(ctx, s.published.Load().(retention.Published))
		dropped.Add(int64(len(d.Dropped)))
		for _, k := range d.Kept {
			if strings.HasPrefix(k.Why, "it is detached") {
				t.Errorf("%s: %s", k.Name, k.Why)
			}
		}
		return err
	})
	// Not the duration of inserts, which depends on the machine, but whether one ever waits for the goroutines that create
	// and drop partitions.
	repeat("look at waits", func(ctx context.Context) error {
		var waits []string
		err := pool.QueryRow(ctx, `
			SELECT array_agg(query) FROM pg_stat_activity
			WHERE query LIKE 'INSERT INTO troupe.outbox%' AND wait_event_type = 'Lock' AND wait_event = 'relation'`).Scan(&waits)
		if len(waits) > 0 {
			t.Errorf("inserts wait for a table: %s", waits)
		}
		return err
	})
	testkit.Wait(t, "twenty partitions gone", func() (bool, error) { return t.Failed() || dropped.Load() >= 20, nil })
	stop()
	all.Wait()
	require.False(t, t.Failed())

	testkit.Wait(t, "the end of the stream", func() (bool, error) { return len(s.seen) >= j.len(), s.read(t.Context()) })
	require.Len(t, s.seen, j.len())
	for _, p := range j.committed {
		require.Equal(t, 1, s.seen[p], "position %d", p)
	}
	t.Logf("%d rows, %d partitions dropped", j.len(), dropped.Load())
}

// How long a single insert takes, alone and while partitions of 1,000 rows are created and dropped; with four other
// inserters, and two transactions that stay open for 3 s.
func BenchmarkInsertWhilePartitionsAreDropped(b *testing.B) {
	for _, dropping := range []bool{false, true} {
		b.Run(fmt.Sprintf("dropping=%t", dropping), func(b *testing.B) {
			_, pool := ownServer(b)
			_, err := pool.Exec(b.Context(), "SELECT setval('troupe.outbox_position_seq', 19999999)")
			require.NoError(b, err)
			small := retention.Partitions{Size: 1000, Ahead: 20}
			if !dropping {
				small = retention.Partitions{}
			}
			_, err = small.Ensure(b.Context(), pool)
			require.NoError(b, err)
			var all sync.WaitGroup
			work, stop := context.WithCancel(b.Context())
			repeat := func(once func(context.Context) error) {
				all.Go(func() {
					for work.Err() == nil {
						if err := once(context.Background()); err != nil {
							b.Errorf("%v", err)
							return
						}
					}
				})
			}
			const one = "INSERT INTO troupe.outbox (topic, type) VALUES ('t', 'T')"
			for range 4 {
				repeat(func(ctx context.Context) error {
					_, err := pool.Exec(ctx, one)
					return err
				})
			}
			for n := range 2 {
				time.Sleep(time.Duration(n) * 1500 * time.Millisecond) //nolint:forbidigo // a benchmark's load: so that one of them is always open
				repeat(func(ctx context.Context) error {
					return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
						if _, err := tx.Exec(ctx, one); err != nil {
							return err
						}
						_, err := tx.Exec(ctx, "SELECT pg_sleep(3)")
						return err
					})
				})
			}
			dropped := 0
			if dropping {
				dropper, err := retention.New(retention.Config{Pool: pool, Age: atOnce})
				require.NoError(b, err)
				defer dropper.Close()
				repeat(func(ctx context.Context) error {
					time.Sleep(50 * time.Millisecond) //nolint:forbidigo // a benchmark's load: a relay looks each minute
					_, err := small.Ensure(ctx, pool)
					return err
				})
				repeat(func(ctx context.Context) error {
					var published retention.Published
					if err := pool.QueryRow(ctx, "SELECT pg_current_snapshot()::text").Scan(&published); err != nil {
						return err
					}
					d, err := dropper.Drop(ctx, published)
					dropped += len(d.Dropped)
					return err
				})
			}
			took := make([]time.Duration, 0, b.N)
			b.ResetTimer()
			for range b.N {
				began := time.Now()
				_, err := pool.Exec(b.Context(), one)
				require.NoError(b, err)
				took = append(took, time.Since(began))
			}
			b.StopTimer()
			stop()
			all.Wait()
			slices.Sort(took)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
			b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
			b.ReportMetric(ms(took[len(took)-1]), "max-ms")
			b.ReportMetric(float64(dropped), "dropped")
		})
	}
}
