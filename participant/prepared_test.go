package participant_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// newPreparedStage returns a stage on a server of its own that has prepared transactions.
func newPreparedStage(t *testing.T) *stage {
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{Settings: map[string]string{"max_prepared_transactions": "5"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	require.NoError(t, migrations.Up(t.Context(), server.URL("")))
	pool, err := pgxpool.New(t.Context(), server.SocketURL(""))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := &stage{t: t, pool: pool, brokers: testkit.Kafka(t), hop: topics.MustHop(testkit.Flow(t), "payment")}
	_, err = s.pool.Exec(t.Context(), counters)
	require.NoError(t, err)
	s.client, err = kafka.NewClient(s.brokers, kgo.UnknownTopicRetries(200))
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	return s
}

// TestAPreparedTransactionThatHoldsALockIsNamed: a role that may only connect takes a lock of a participant in a transaction, prepares
// that, and disconnects. No session holds the lock then, and a restart of the server does not release it.
func TestAPreparedTransactionThatHoldsALockIsNamed(t *testing.T) {
	t.Parallel()
	s := newPreparedStage(t)
	role := grantstest.New(t, s.pool)
	const fireClass, leaseClass, keyClass = 0x74727564, 0x74727570, 0x74727573
	prepare := func(lock string, args ...any) (number string) {
		tx, err := role.Pool().Begin(t.Context())
		require.NoError(t, err)
		defer tx.Rollback(context.Background())
		_, err = tx.Exec(t.Context(), lock, args...)
		require.NoError(t, err)
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_current_xact_id()::xid::text").Scan(&number))
		_, err = tx.Exec(t.Context(), "PREPARE TRANSACTION 'p'")
		require.NoError(t, err)
		return number
	}
	end := func() {
		_, err := s.pool.Exec(t.Context(), "ROLLBACK PREPARED 'p'")
		require.NoError(t, err)
	}
	namedAs := func(p *participant.Participant, number, text string) {
		testkit.Wait(t, "the transaction is named", func() (bool, error) {
			reason := fmt.Sprint(p.Ready())
			return strings.Contains(reason, text) && strings.Contains(reason, role.Name) && strings.Contains(reason, "ROLLBACK PREPARED") &&
				strings.Contains(reason, "transaction "+number+" "), nil
		})
	}
	number := prepare("SELECT pg_advisory_xact_lock($1::int, hashtext($2))", fireClass, s.hop.String())
	p := s.expecting()
	stop := s.start(p)
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "k", Body: Overdue{N: 1}, At: time.Now()}))
	namedAs(p, number, "deadlines are not fired")
	end()
	s.fired(1)
	waitFor(t, "ready", func() bool { return p.Ready() == nil })
	stop()

	number = prepare("SELECT pg_advisory_xact_lock($1::int, $2::int)", leaseClass, s.count("SELECT id FROM troupe.leases WHERE partition = 0"))
	p = s.expecting()
	s.start(p)
	namedAs(p, number, "waits for")
	end()
	waitFor(t, "ready", func() bool { return p.Ready() == nil })

	number = prepare("SELECT pg_advisory_xact_lock($1::int, 1)", keyClass)
	waiting := make(chan error, 1)
	go func() {
		_, err := s.pool.Exec(t.Context(), "SELECT pg_advisory_lock_shared($1::int, 1), pg_advisory_unlock_shared($1::int, 1)", keyClass)
		waiting <- err
	}()
	namedAs(p, number, "a transaction waits")
	end()
	require.NoError(t, <-waiting)
	waitFor(t, "ready", func() bool { return p.Ready() == nil })
}

// TestAnOperatorOfSagasWhoHoldsALockIsNamed: this role may write deadlines, as a participant may, but fires none.
func TestAnOperatorOfSagasWhoHoldsALockIsNamed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	role := grantstest.New(t, s.pool, grants.SagaOperator)
	operator, err := role.Pool().Acquire(t.Context())
	require.NoError(t, err)
	defer operator.Release()
	const fireClass = 0x74727564
	_, err = operator.Exec(t.Context(), "SELECT pg_advisory_lock($1::int, hashtext($2))", fireClass, s.hop.String())
	require.NoError(t, err)
	p := s.expecting()
	s.start(p)
	require.NoError(t, s.schedule(p, participant.Deadline{Name: overdueName, Key: "k", Body: Overdue{N: 1}, At: time.Now()}))
	named(t, p, role.Name, "deadlines are not fired")
	_, err = operator.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	s.fired(1)
	waitFor(t, "ready", func() bool { return p.Ready() == nil })
}
