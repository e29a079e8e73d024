package relay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// slotName is the slot of stages with a server of their own.
const slotName = "troupe_shop"

// newServer returns a stage with a Postgres server of its own, which the test may crash, fill and configure.
func newServer(t testing.TB, settings map[string]string) (*stage, *devstack.Postgres) {
	t.Helper()
	return newServerOf(t, "", settings)
}

// newServerOf is newServer with the programs in the folder binaries; "" uses the installed ones.
func newServerOf(t testing.TB, binaries string, settings map[string]string) (*stage, *devstack.Postgres) {
	t.Helper()
	all := map[string]string{"max_prepared_transactions": "20", "shared_buffers": "32MB", "full_page_writes": "off"}
	maps.Copy(all, settings)
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{Binaries: binaries, Settings: all})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	address, err := server.CreateDatabase(t.Context(), "shop", "")
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), address))
	s := &stage{t: t, brokers: testkit.Kafka(t), flow: testkit.Flow(t)}
	s.topic = s.createTopic("main", 3)
	s.pool = poolOf(t, address)
	return s, server
}

func poolOf(t testing.TB, address string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(address)
	require.NoError(t, err)
	config.MaxConns = 30
	config.ConnConfig.RuntimeParams["client_encoding"] = "UTF8" // the default is the database's encoding
	return poolWith(t, config)
}

func poolWith(t testing.TB, config *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// wal returns a configuration that streams.
func (s *stage) wal() relay.Config {
	needsLog(s.t)
	cfg := s.config()
	cfg.Source = relay.WAL
	return cfg
}

// waitStream waits until a client streams the slot of the stage's database.
func (s *stage) waitStream() {
	s.t.Helper()
	testkit.Wait(s.t, "a stream", func() (bool, error) {
		var streams bool
		err := s.pool.QueryRow(context.Background(), `SELECT EXISTS (SELECT FROM troupe.relay_leases l
			JOIN pg_replication_slots s ON s.slot_name = l.slot AND s.active)`).Scan(&streams)
		return streams, err
	})
}

// waitProven waits until all rows that are committed now are known to be published.
func (s *stage) waitProven() {
	s.t.Helper()
	testkit.Wait(s.t, "a stored snapshot that sees all", func() (bool, error) {
		var left int
		err := s.pool.QueryRow(context.Background(), `SELECT count(*) FROM troupe.outbox
			WHERE NOT coalesce(pg_visible_in_snapshot(xid, (SELECT published FROM troupe.relay_state)), false)`).Scan(&left)
		return err == nil && left == 0, err
	})
}

// gather waits until n different ids were read and the topics have no more records, whatever is left in the table.
func (s *stage) gather(n int, topics ...string) []*kgo.Record {
	s.t.Helper()
	consumer := testkit.Consume(s.t, s.brokers, topics...)
	for part := range 4 { // a busy machine may take long, as long as it makes progress
		consumer.WaitN(n * part / 4)
	}
	testkit.Wait(s.t, fmt.Sprintf("%d different records", n), func() (bool, error) {
		ids := make(map[string]struct{})
		records := consumer.Records()
		if len(records) < n { // no need for a query, which takes the relay's time
			return false, fmt.Errorf("%d records so far", len(records))
		}
		for _, r := range records {
			ids[header(r, "ce_id")] = struct{}{}
		}
		if len(ids) < n {
			return false, fmt.Errorf("%d so far", len(ids))
		}
		return s.consumedAll(records, topics...), nil
	})
	return consumer.Records()
}

// endings lists how transactions of hardLoad end.
var endings = []string{"plain", "asynchronous", "late", "rolled back", "savepoint", "prepared", "prepared and rolled back"}

// hardLoad is load with every way in which a transaction can end. If the server goes away, a writer may not know whether its
// last transaction committed, and queries it.
func (s *stage) hardLoad(ctx context.Context, writers int) map[string]int {
	committed := make(map[string]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			mine := make(map[string]int)
			for ctx.Err() == nil {
				key, ending := fmt.Sprintf("w%d-%d", w, rand.N(5)), endings[rand.N(len(endings))]
				if err := s.writeAs(ending, fmt.Sprintf("%s-%d", s.flow, w), mine, key); err != nil && !errors.Is(err, errRollBack) {
					s.t.Errorf("write %s: %v", ending, err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(committed, mine)
		})
	}
	all.Wait()
	return committed
}

func (s *stage) writeAs(ending, name string, committed map[string]int, key string) error {
	ctx := context.Background()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	insert := func(value string) error {
		_, err := conn.Exec(ctx, `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'Thing', $3)`, s.topic, key, []byte(value))
		return err
	}
	begin := "BEGIN"
	if ending == "asynchronous" {
		begin = "BEGIN; SET LOCAL synchronous_commit = off"
	}
	if _, err := conn.Exec(ctx, begin); err != nil {
		return err
	}
	rows := 1 + rand.N(3)
	for n := range rows {
		value := strconv.Itoa(committed[key] + n)
		if ending == "rolled back" || ending == "prepared and rolled back" {
			value = "never"
		}
		if ending == "savepoint" {
			_, err = conn.Exec(ctx, "SAVEPOINT a")
			err = errors.Join(err, insert("never"))
			_, undone := conn.Exec(ctx, "ROLLBACK TO a")
			if err = errors.Join(err, undone); err != nil {
				return err
			}
		}
		if err := insert(value); err != nil {
			return err
		}
	}
	pause := fmt.Sprintf("SELECT pg_sleep(%f)", rand.Float64()/20)
	var end []string
	switch ending {
	case "late":
		end = []string{pause, "COMMIT"}
	case "rolled back":
		end = []string{"ROLLBACK"}
	case "prepared":
		end = []string{"PREPARE TRANSACTION '" + name + "'", pause, "COMMIT PREPARED '" + name + "'"}
	case "prepared and rolled back":
		end = []string{"PREPARE TRANSACTION '" + name + "'", pause, "ROLLBACK PREPARED '" + name + "'"}
	default:
		end = []string{"COMMIT"}
	}
	for _, statement := range end {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if ending == "rolled back" || ending == "prepared and rolled back" {
		return errRollBack
	}
	committed[key] += rows
	return nil
}

// committedNow counts the rows in the table by key, such as the rows left after a crash.
func (s *stage) committedNow() map[string]int {
	s.t.Helper()
	rows, err := s.pool.Query(context.Background(), "SELECT key, count(*) FROM troupe.outbox GROUP BY key")
	require.NoError(s.t, err)
	counts := make(map[string]int)
	var key string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&key, &n}, func() error { counts[key] = n; return nil })
	require.NoError(s.t, err)
	return counts
}
