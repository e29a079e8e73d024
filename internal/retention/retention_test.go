package retention_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/testkit"
)

// atOnce is an Age of zero.
const atOnce = -1

// room holds a database whose partitions from 20,000,000 on hold ten positions each; the earlier ones are dropped.
type room struct {
	*testing.T
	pool *pgxpool.Pool
}

var tens = retention.Partitions{Size: 10, Ahead: 8}

func newRoom(t *testing.T) room { return furnish(t, testkit.Database(t)) }

func furnish(t *testing.T, pool *pgxpool.Pool) room {
	t.Helper()
	r := room{t, pool}
	r.exec("SELECT setval('troupe.outbox_position_seq', 19999999)")
	r.ensure()
	require.Len(t, r.drop(r.retention(atOnce), "").Dropped, 4)
	return r
}

func (r room) exec(sql string, args ...any) {
	r.Helper()
	_, err := r.pool.Exec(r.Context(), sql, args...)
	require.NoError(r, err)
}

func (r room) count(sql string, args ...any) (n int) {
	r.Helper()
	require.NoError(r, r.pool.QueryRow(r.Context(), sql, args...).Scan(&n))
	return n
}

func (r room) ensure() {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Minute)
	defer cancel()
	_, err := tens.Ensure(ctx, r.pool)
	require.NoError(r, err)
}

func (r room) retention(age time.Duration) *retention.Dropper {
	r.Helper()
	dropper, err := retention.New(retention.Config{Pool: r.pool, Age: age})
	require.NoError(r, err)
	r.Cleanup(dropper.Close)
	return dropper
}

// drop must return: it could only wait for a transaction if it had missed that one.
func (r room) drop(dropper *retention.Dropper, published retention.Published) retention.Dropping {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 3*time.Minute)
	defer cancel()
	d, err := dropper.Drop(ctx, published)
	require.NoError(r, err)
	return d
}

// snapshot returns the snapshot that a relay confirms after it has published all existing rows.
func (r room) snapshot() (s retention.Published) {
	r.Helper()
	require.NoError(r, r.pool.QueryRow(r.Context(), "SELECT pg_current_snapshot()::text").Scan(&s))
	return s
}

func (r room) insert(rows int) {
	r.Helper()
	r.exec("INSERT INTO troupe.outbox (topic, type) SELECT 't', 'T' FROM generate_series(1, $1)", rows)
}

func (r room) begin() pgx.Tx {
	r.Helper()
	tx, err := r.pool.Begin(r.Context())
	require.NoError(r, err)
	r.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (r room) state(name string) (state string) {
	r.Helper()
	err := r.pool.QueryRow(r.Context(), "SELECT state FROM troupe.outbox_partitions WHERE name = $1", name).Scan(&state)
	if errors.Is(err, pgx.ErrNoRows) {
		require.Zero(r, r.count("SELECT count(*) FROM pg_class WHERE relname = $1", name), "the table without its line")
		return "gone"
	}
	require.NoError(r, err)
	return state
}

// waiting waits until a statement that contains this text waits for a lock.
func (r room) waiting(statement string) {
	r.Helper()
	testkit.Wait(r, statement, func() (bool, error) {
		return r.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
			AND query LIKE '%' || $1 || '%' AND pid <> pg_backend_pid()`, statement) > 0, nil
	})
}

// The first three of the small partitions.
const first, second, third = "outbox_20000000", "outbox_20000010", "outbox_20000020"

func TestPartitionsThatAreDoneAreDropped(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	dropper := r.retention(atOnce)
	r.insert(25)
	require.Empty(t, r.drop(dropper, "").Dropped, "nothing is confirmed")
	early := r.snapshot()
	r.insert(20) // ten of them in the third

	require.Equal(t, []string{first, second}, r.drop(dropper, early).Dropped)
	require.Equal(t, "attached", r.state(third), "it has rows that the snapshot does not see")
	require.Equal(t, []string{third, "outbox_20000030"}, r.drop(dropper, r.snapshot()).Dropped)
	require.Equal(t, 5, r.count("SELECT count(*) FROM troupe.outbox"), "one is not full, and is not dropped")
	r.ensure()
	r.insert(40)
}

// A restored dump has transaction ids of its former cluster, which this one may not have assigned yet.
func TestPublishedRowsOfAnOlderClusterDoNotKeepTheirPartition(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	dropper := r.retention(atOnce)
	r.insert(25)
	early := r.snapshot()
	r.exec("UPDATE troupe.outbox SET xid = '4000000000'")
	require.Empty(t, r.drop(dropper, early).Dropped, "restored behind the snapshot")
	require.Equal(t, []string{first, second}, r.drop(dropper, r.snapshot()).Dropped)
}

// A row that is restored after the snapshot was stored has a transaction id of its former cluster, which this one may have passed long
// ago.
func TestARestoredRowKeepsItsPartition(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	dropper := r.retention(atOnce)
	r.insert(25)
	early := r.snapshot()
	r.exec("DELETE FROM troupe.outbox WHERE position = 20000003")
	r.exec("INSERT INTO troupe.outbox (position, xid, topic, type) OVERRIDING SYSTEM VALUE VALUES (20000003, '3', 't', 'T')")
	require.Equal(t, retention.Dropping{
		Dropped: []string{second}, Kept: []retention.KeptPartition{{Name: first, Why: "position 20000003 is not published"}},
	}, r.drop(dropper, early))
	require.Equal(t, []string{first}, r.drop(dropper, r.snapshot()).Dropped)
}

// Even if the sequence was moved past all partitions: the next one is created after the highest.
func TestTheHighestPartitionStays(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.exec("SELECT setval('troupe.outbox_position_seq', 30000000)")
	r.drop(r.retention(atOnce), "")
	require.Equal(t, 1, r.count("SELECT count(*) FROM troupe.outbox_partitions"))
}

// Under poll published rows are gone, and the rows in the table are not published.
func TestUnderPollAPartitionGoesWhenItIsEmpty(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	dropper := r.retention(0)
	r.insert(25)
	r.exec("DELETE FROM troupe.outbox WHERE position <> 20000015")
	require.Equal(t, retention.Dropping{
		Dropped: []string{first}, Kept: []retention.KeptPartition{{Name: second, Why: "position 20000015 is not published"}},
	}, r.drop(dropper, ""))
	r.exec("DELETE FROM troupe.outbox WHERE position = 20000015")
	require.Equal(t, []string{second}, r.drop(dropper, "").Dropped)
}

func TestPublishedRowsStayForTheirAge(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.insert(25)
	dropper := r.retention(0)
	d := r.drop(dropper, r.snapshot())
	require.Empty(t, d.Dropped)
	require.Len(t, d.Kept, 2)
	require.Contains(t, d.Kept[0].Why, "published and kept until")
	r.exec("UPDATE troupe.outbox_partitions SET done_at = done_at - interval '59 minutes' WHERE name = $1", first)
	tx := r.begin() // millions of rows are not read each minute for an hour
	_, err := tx.Exec(t.Context(), "LOCK TABLE troupe."+first)
	require.NoError(t, err)
	require.Empty(t, r.drop(dropper, r.snapshot()).Dropped)
	require.NoError(t, tx.Rollback(t.Context()))
	r.exec("UPDATE troupe.outbox_partitions SET done_at = done_at - interval '1 minute' WHERE name = $1", first)
	require.Equal(t, []string{first}, r.drop(r.retention(0), r.snapshot()).Dropped, "a restart does not restart the hour")
}

// The hour is counted by the database's clock. A time from a clock that was ahead does not keep a partition until then.
func TestATimeFromAClockThatWasAheadKeepsNoPartition(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.insert(15)
	dropper := r.retention(0)
	r.drop(dropper, r.snapshot())
	r.exec("UPDATE troupe.outbox_partitions SET done_at = done_at + interval '1 year' WHERE name = $1", first)
	d := r.drop(dropper, r.snapshot())
	require.Len(t, d.Kept, 1)
	require.True(t, d.Kept[0].Aging)
	require.Equal(t, 1, r.count("SELECT count(*) FROM troupe.outbox_partitions WHERE name = $1 AND done_at <= clock_timestamp()", first))
	r.exec("UPDATE troupe.outbox_partitions SET done_at = done_at - interval '1 hour' WHERE name = $1", first)
	require.Equal(t, []string{first}, r.drop(dropper, r.snapshot()).Dropped)
}

func TestFailedRowsKeepTheirPartition(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	dropper := r.retention(atOnce)
	r.insert(25)
	r.exec(`INSERT INTO troupe.outbox_failures (position, id, topic, status, attempts, max_attempts, last_error)
		SELECT position, id, topic, 'parked', 1, 1, 'e' FROM troupe.outbox WHERE position = 20000003`)
	require.Equal(t, retention.Dropping{
		Dropped: []string{second},
		Kept:    []retention.KeptPartition{{Name: first, Why: "1 of its rows are in troupe.outbox_failures"}},
	}, r.drop(dropper, r.snapshot()))
	r.exec("DELETE FROM troupe.outbox_failures")
	require.Equal(t, []string{first}, r.drop(dropper, r.snapshot()).Dropped)
}

// A position was given out, its row is not visible, and all visible rows were published.
func TestAnOpenTransactionKeepsItsPartition(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	dropper := r.retention(atOnce)
	late := r.begin()
	_, err := late.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, type) VALUES ('t', 'T')")
	require.NoError(t, err)
	r.insert(25)
	d := r.drop(dropper, r.snapshot())
	require.Empty(t, d.Dropped)
	require.Contains(t, d.Kept[0].Why, "1 transactions that inserted into the outbox are open")
	require.NoError(t, late.Commit(t.Context()))
	stale := r.drop(dropper, retention.Published("3:3:"))
	require.Empty(t, stale.Dropped)
	require.Contains(t, stale.Kept[0].Why, "is not published")
	require.Equal(t, []string{first, second}, r.drop(dropper, r.snapshot()).Dropped)
}

// An insert takes its position before its transaction id, so no rule about ids sees it in between.
func TestAWriterWithoutATransactionIDKeepsItsPartition(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	dropper := r.retention(atOnce)
	r.exec(`CREATE FUNCTION slow_xid() RETURNS xid8 LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_lock_shared(7); PERFORM pg_advisory_unlock_shared(7); RETURN pg_current_xact_id(); END $$`)
	gate, err := r.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer gate.Release()
	hold := func() {
		_, err := gate.Exec(t.Context(), "SELECT pg_advisory_lock(7)")
		require.NoError(t, err)
	}
	release := func() {
		_, err := gate.Exec(t.Context(), "SELECT pg_advisory_unlock(7)")
		require.NoError(t, err)
	}
	r.insert(1)
	r.exec("ALTER TABLE troupe.outbox ALTER COLUMN xid SET DEFAULT slow_xid()")
	var written chan error
	for {
		hold()
		written = make(chan error, 1)
		go func() {
			_, err := r.pool.Exec(context.Background(), "INSERT INTO troupe.outbox (topic, type) VALUES ('late', 'T')")
			written <- err
		}()
		r.waiting("VALUES ('late', 'T')")
		if r.count(`SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND query LIKE '%late%'
			AND datname = current_database()`) == 0 {
			break
		}
		// Its position was logged, and then the transaction id comes first: every 32nd is, and the first behind a checkpoint,
		// which others may cause. The next one is neither.
		release()
		require.NoError(t, <-written)
		r.exec("DELETE FROM troupe.outbox WHERE topic = 'late'")
	}
	r.exec("INSERT INTO troupe.outbox (topic, type, xid) SELECT 't', 'T', pg_current_xact_id() FROM generate_series(1, 25)")
	for range 3 {
		require.Empty(t, r.drop(dropper, r.snapshot()).Dropped)
	}
	require.Equal(t, "attached", r.state(first))

	release()
	require.NoError(t, <-written)
	require.Equal(t, 1, r.count("SELECT count(*) FROM troupe.outbox WHERE topic = 'late'"))
	require.Subset(t, r.drop(dropper, r.snapshot()).Dropped, []string{first, second}) // each further try filled some more
}

func TestACrashBetweenAnyTwoStepsIsTakenUp(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"detaching", "detached", "noted", "dropped"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t)
			r.insert(25)
			crash := r.retention(atOnce)
			crash.At(func(now string) error {
				if now == step {
					return errors.New("crash")
				}
				return nil
			})
			_, err := crash.Drop(t.Context(), r.snapshot())
			require.ErrorContains(t, err, "crash")
			require.NotEqual(t, "gone", r.state(first))
			next := r.retention(atOnce)
			var dropped []string
			testkit.Wait(t, "both partitions gone", func() (bool, error) {
				dropped = append(dropped, r.drop(next, r.snapshot()).Dropped...)
				return len(dropped) == 2, nil
			})
			require.Equal(t, "gone", r.state(first))
			require.Equal(t, 5, r.count("SELECT count(*) FROM troupe.outbox"))
		})
	}
}

// A dump holds the readers' lock for as long as it runs, and a transaction that has written holds the writers' lock.
func TestALockOnTheTableDelaysADropAndStallsNoWriter(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]string{
		"a reader": "SELECT count(*) FROM troupe.outbox",
		"a writer": "INSERT INTO troupe.outbox (topic, type) VALUES ('t', 'T')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t)
			r.insert(25)
			dropper := r.retention(atOnce)
			r.drop(dropper, "") // has found that no transaction can write into the full partitions
			holder := r.begin()
			_, err := holder.Exec(t.Context(), hold)
			require.NoError(t, err)

			dropped, published := make(chan retention.Dropping, 1), r.snapshot()
			go func() {
				d, err := dropper.Drop(context.Background(), published)
				if err != nil {
					t.Errorf("drop: %v", err)
				}
				dropped <- d
			}()
			r.waiting("DETACH PARTITION")
			r.ensure()
			before := r.count("SELECT count(*) FROM troupe.outbox_partitions")
			for range 10 { // each would wait for the holder if it waited for the detach
				r.insert(10)
				r.ensure()
			}
			require.Equal(t, before+10, r.count("SELECT count(*) FROM troupe.outbox_partitions"))
			require.Equal(t, 1, r.count("SELECT count(*) FROM pg_inherits WHERE inhdetachpending"))
			soon, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			_, err = r.retention(atOnce).Drop(soon, r.snapshot())
			require.ErrorContains(t, err, "another session is at it")
			require.Empty(t, dropped)

			require.NoError(t, holder.Commit(t.Context()))
			require.Equal(t, []string{first, second}, (<-dropped).Dropped)
		})
	}
}

// The state after an interrupted detach: Postgres allows no other until it is completed.
func TestADetachCutShortIsFinalised(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(r room, stop context.CancelFunc){
		"by its caller": func(_ room, stop context.CancelFunc) { stop() },
		"by the server": func(r room, _ context.CancelFunc) {
			r.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE application_name = 'troupe retention' AND datname = current_database() AND query LIKE '%DETACH%'`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t)
			r.insert(25)
			reader := r.begin()
			_, err := reader.Exec(t.Context(), "SELECT count(*) FROM troupe.outbox")
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			dropper := r.retention(atOnce)
			ended, published := make(chan error, 1), r.snapshot()
			go func() {
				_, err := dropper.Drop(ctx, published)
				ended <- err
			}()
			r.waiting("DETACH PARTITION")
			cut(r, stop)
			require.ErrorContains(t, <-ended, "detach")
			testkit.Wait(t, "the server to have heard of it", func() (bool, error) {
				return r.count(`SELECT count(*) FROM pg_stat_activity
					WHERE application_name = 'troupe retention' AND datname = current_database() AND query LIKE '%DETACH%'`) == 0, nil
			})
			require.NoError(t, reader.Rollback(t.Context()))
			require.Equal(t, 1, r.count("SELECT count(*) FROM pg_inherits WHERE inhdetachpending"))
			require.Equal(t, "detaching", r.state(first))

			var dropped []string
			testkit.Wait(t, "both partitions gone", func() (bool, error) {
				d, err := dropper.Drop(t.Context(), r.snapshot()) // refused until the server has cancelled the first
				dropped = append(dropped, d.Dropped...)
				return len(dropped) == 2, err
			})
		})
	}
}

// No poll finds the row and no stream delivers it, so an operator must be informed.
func TestARowThatTurnsUpAfterTheDetachKeepsTheTable(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.insert(25)
	published := r.snapshot()
	dropper := r.retention(atOnce)
	dropper.At(func(step string) error {
		if step == "detached" && r.count("SELECT count(*) FROM troupe."+first) == 9 {
			r.exec("INSERT INTO troupe." + first + " (position, topic, type) VALUES (20000000, 'by hand', 'T')")
		}
		return nil
	})
	r.exec("DELETE FROM troupe." + first + " WHERE position = 20000000")
	for range 2 {
		d := r.drop(dropper, published)
		require.Equal(t, first, d.Kept[0].Name)
		require.Contains(t, d.Kept[0].Why, "position 20000000 is not published")
		require.Equal(t, "detached", r.state(first))
	}
	require.Equal(t, "gone", r.state(second), "the others go on")

	// The procedure of docs/retention.md.
	r.exec(`WITH late AS (DELETE FROM troupe.outbox_20000000 WHERE position = 20000000 RETURNING *)
		INSERT INTO troupe.outbox (id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at)
		SELECT id, topic, key, key_bytes, type, headers, raw_headers, payload, created_at FROM late ORDER BY position`)
	require.Equal(t, []string{first}, r.drop(dropper, published).Dropped)
	require.Equal(t, 1, r.count("SELECT count(*) FROM troupe.outbox WHERE topic = 'by hand'"))
}

func TestADroppedTableThatSomebodyReadsIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.insert(15)
	dropper := r.retention(atOnce)
	reader := r.begin()
	dropper.At(func(step string) error {
		if step != "detached" {
			return nil
		}
		_, err := reader.Exec(t.Context(), "SELECT count(*) FROM troupe."+first)
		return err
	})
	d := r.drop(dropper, r.snapshot())
	require.Equal(t, []retention.KeptPartition{{Name: first, Why: "it is detached, and a session still reads it"}}, d.Kept)
	require.NoError(t, reader.Rollback(t.Context()))
	require.Equal(t, []string{first}, r.drop(dropper, r.snapshot()).Dropped)
}

func TestPartitionsChangedByHandAreRecognised(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.insert(45)
	r.exec("ALTER TABLE troupe.outbox DETACH PARTITION troupe." + first)
	r.exec("DROP TABLE troupe." + second)
	d := r.drop(r.retention(atOnce), r.snapshot())
	require.Equal(t, []string{second, third, "outbox_20000030"}, d.Dropped)
	require.Len(t, d.Kept, 1)
	require.Contains(t, d.Kept[0].Why, "it was detached by hand")
	require.Equal(t, "gone", r.state(second))
}

func TestNothingIsDroppedWhereTheRulesDoNotHold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ sql, want string }{
		"the sequence caches": {
			"ALTER SEQUENCE troupe.outbox_position_seq CACHE 20",
			"CACHE 20, so that a low position may come late: ALTER SEQUENCE",
		},
		"a default partition": {
			"CREATE TABLE troupe.rest PARTITION OF troupe.outbox DEFAULT",
			"troupe.rest is a DEFAULT partition",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t)
			r.insert(25)
			r.exec(c.sql)
			_, err := r.retention(atOnce).Drop(t.Context(), r.snapshot())
			require.ErrorContains(t, err, c.want)
			require.Equal(t, "attached", r.state(first))
		})
	}
	t.Run("a snapshot of another server", func(t *testing.T) {
		t.Parallel()
		r := newRoom(t)
		r.insert(25)
		_, err := r.retention(atOnce).Drop(t.Context(), "900000000:900000000:")
		require.ErrorContains(t, err, "another server")
		_, err = r.retention(atOnce).Drop(t.Context(), "yesterday")
		require.ErrorContains(t, err, "invalid input syntax for type pg_snapshot")
		require.Equal(t, "attached", r.state(first))
	})
	t.Run("a role that does not own the table", func(t *testing.T) {
		t.Parallel()
		r := newRoom(t)
		role := pgx.Identifier{"troupe_test_" + strings.ReplaceAll(uuid.NewString(), "-", "")}.Sanitize()
		r.exec(fmt.Sprintf("CREATE ROLE %[1]s; GRANT USAGE ON SCHEMA troupe TO %[1]s", role))
		t.Cleanup(func() {
			_, err := r.pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
			require.NoError(t, err)
		})
		config := r.pool.Config()
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SET ROLE "+role)
			return err
		}
		limited, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(limited.Close)
		dropper, err := retention.New(retention.Config{Pool: limited})
		require.NoError(t, err)
		defer dropper.Close()
		_, err = dropper.Drop(t.Context(), r.snapshot())
		require.ErrorContains(t, err, "does not own Troupe's tables")
	})
	_, err := retention.New(retention.Config{})
	require.ErrorContains(t, err, "no pool")
}
