package retention_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/testkit"
)

// nearTheEnd moves the sequence to the last positions for which partitions exist.
func nearTheEnd(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), "SELECT setval('troupe.outbox_position_seq', (SELECT max(hi) FROM troupe.outbox_partitions) - 20)")
	require.NoError(t, err)
}

func TestPartitionsAreMadeAheadOfWriters(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	nearTheEnd(t, pool)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	var longest time.Duration
	written := 0
	small := retention.Partitions{Size: 50, Ahead: 40} // whose creation may stall for a while; the writers continue
	_, err := small.Ensure(ctx, pool)
	require.NoError(t, err)
	partitions := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.outbox_partitions").Scan(&n))
		return n
	}
	before := partitions()
	for range 4 { // writers, some of which stay open
		all.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				_, err := pool.Exec(context.Background(), `
					WITH row AS (INSERT INTO troupe.outbox (topic, type) VALUES ('t', 'T') RETURNING 1) SELECT pg_sleep(0.005) FROM row`)
				mu.Lock()
				if err != nil {
					t.Errorf("insert: %v", err)
				}
				written++
				longest = max(longest, time.Since(began))
				mu.Unlock()
			}
		})
	}
	for range 3 { // relays that all call Ensure at the same time
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := small.Ensure(context.Background(), pool); err != nil && !impatient(err) {
					t.Errorf("ensure: %v", err)
				}
			}
		})
	}
	testkit.Wait(t, "a thousand rows, and as many positions made", func() (bool, error) {
		made := partitions()
		mu.Lock()
		defer mu.Unlock()
		return written >= 1000 && made >= before+20, nil
	})
	cancel()
	all.Wait()
	var rows int
	require.NoError(t, pool.QueryRow(context.Background(), "SELECT count(*) FROM troupe.outbox").Scan(&rows))
	require.Equal(t, written, rows)
	t.Logf("%d rows, the longest insert took %s", written, longest)

	var gaps int
	require.NoError(t, pool.QueryRow(context.Background(), `
		SELECT count(*) FILTER (WHERE lo <> before) FROM (
			SELECT lo, coalesce(lag(hi) OVER (ORDER BY lo), 0) AS before FROM troupe.outbox_partitions) AS p`).Scan(&gaps))
	require.Zero(t, gaps)
}

// impatient reports whether err is the time-out of an Ensure that waited 2 s for a lock of a stalled session. The next Ensure
// makes up for it.
func impatient(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == "55P03"
}

func TestWithEnoughPartitionsNothingIsMade(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	headroom, err := retention.Partitions{}.Ensure(t.Context(), pool)
	require.NoError(t, err)
	require.GreaterOrEqual(t, headroom, int64(15_000_000))
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.outbox_partitions").Scan(&n))
	require.Equal(t, 4, n)
}

func TestAnInsertPastTheLastPartitionFails(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), "SELECT setval('troupe.outbox_position_seq', 20000000)")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, type) VALUES ('t', 'T')")
	require.ErrorContains(t, err, "no partition")
	_, err = retention.Partitions{}.Ensure(t.Context(), pool)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, type) VALUES ('t', 'T')")
	require.NoError(t, err)
}

// A role that does not own the table still gets the headroom.
func TestHeadroomIsToldWhereAPrivilegeIsMissing(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	role := pgx.Identifier{"troupe_test_" + strings.ReplaceAll(uuid.NewString(), "-", "")}.Sanitize()
	_, err := pool.Exec(t.Context(), "CREATE ROLE "+role+"; GRANT USAGE ON SCHEMA troupe TO "+role+
		"; GRANT SELECT ON ALL TABLES IN SCHEMA troupe TO "+role+"; GRANT SELECT ON ALL SEQUENCES IN SCHEMA troupe TO "+role)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		require.NoError(t, err)
	})
	nearTheEnd(t, pool)
	config := pool.Config()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET ROLE "+role)
		return err
	}
	limited, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer limited.Close()
	headroom, err := retention.Partitions{}.Ensure(t.Context(), limited)
	require.ErrorContains(t, err, "make partitions")
	require.EqualValues(t, 20, headroom)
}

// TestANewPartitionBelongsToTheOwnerOfTheOutbox checks relays that are members of the owner, as docs/security.md says: another
// member drops the partitions that one of them made, the owner can change the table, and no row is lost with a relay's role.
func TestANewPartitionBelongsToTheOwnerOfTheOutbox(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	var owner string
	require.NoError(t, r.pool.QueryRow(t.Context(), "SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class WHERE oid = 'troupe.outbox'::regclass").Scan(&owner))
	maker, dropper := grantstest.New(t, r.pool), grantstest.New(t, r.pool)
	for _, member := range []grantstest.Role{maker, dropper} {
		r.exec("GRANT " + owner + " TO " + pgx.Identifier{member.Name}.Sanitize())
	}
	r.exec("SELECT setval('troupe.outbox_position_seq', (SELECT max(hi) - 1 FROM troupe.outbox_partitions))")
	_, err := tens.Ensure(t.Context(), maker.Pool())
	require.NoError(t, err)
	r.insert(25)
	require.Zero(t, r.count(`SELECT count(*) FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid
		WHERE i.inhparent = 'troupe.outbox'::regclass AND c.relowner <> (SELECT relowner FROM pg_class WHERE oid = 'troupe.outbox'::regclass)`))
	r.exec("REVOKE " + owner + " FROM " + pgx.Identifier{maker.Name}.Sanitize() + "; DROP OWNED BY " + pgx.Identifier{maker.Name}.Sanitize())
	require.Equal(t, 25, r.count("SELECT count(*) FROM troupe.outbox"))

	drops, err := retention.New(retention.Config{Pool: dropper.Pool(), Age: atOnce})
	require.NoError(t, err)
	defer drops.Close()
	require.NotEmpty(t, r.drop(drops, r.snapshot()).Dropped)
	require.Less(t, r.count("SELECT count(*) FROM troupe.outbox"), 25)
}

// A role that may only connect can take each advisory lock. It must not stop the creation of partitions, and is named where it stops
// their end.
func TestNoStrangerStopsPartitions(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	role := grantstest.New(t, r.pool)
	stranger, err := role.Pool().Acquire(t.Context())
	require.NoError(t, err)
	defer stranger.Release()
	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_lock(x'74726f757065'::bigint), pg_advisory_lock(x'74726f757066'::bigint)")
	require.NoError(t, err)
	r.exec("SELECT nextval('troupe.outbox_position_seq') FROM generate_series(1, 20)")
	before := r.count("SELECT count(*) FROM troupe.outbox_partitions")
	r.ensure()
	require.Equal(t, before+2, r.count("SELECT count(*) FROM troupe.outbox_partitions"))

	_, err = r.retention(atOnce).Drop(t.Context(), "")
	require.ErrorContains(t, err, role.Name)
	require.ErrorContains(t, err, "pg_terminate_backend(")
	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	r.drop(r.retention(atOnce), "")
}

// TestAPreparedTransactionThatHoldsTheLockIsNamed: no session holds such a lock.
func TestAPreparedTransactionThatHoldsTheLockIsNamed(t *testing.T) {
	t.Parallel()
	_, pool := ownServer(t)
	r := furnish(t, pool)
	stranger := r.begin()
	var number string
	err := stranger.QueryRow(t.Context(), "SELECT pg_current_xact_id()::xid::text FROM pg_advisory_xact_lock(x'74726f757066'::bigint)").Scan(&number)
	require.NoError(t, err)
	_, err = stranger.Exec(t.Context(), "PREPARE TRANSACTION 'p'")
	require.NoError(t, err)
	_, err = r.retention(atOnce).Drop(t.Context(), "")
	require.ErrorContains(t, err, "prepared transaction "+number+" of role")
	r.exec("ROLLBACK PREPARED 'p'")
	r.drop(r.retention(atOnce), r.snapshot())
}
