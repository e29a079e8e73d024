package coordinator_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// seat returns a saga that locks a seat and awaits its payment.
func seat(t *testing.T) *saga.Definition {
	return parsed(t, `{"saga":"seat","version":1,"key":"id","data":{"id":"string","number":"string"},"lock":"data.number",
 "steps":[{"name":"payment","success":[{"hop":"desk","event":"Paid"}],"timeout":"100h"}]}`)
}

// TestAStartWithAnEarlierSnapshotIsRefused starts a saga in transactions that cannot see what other transactions have committed
// since they began: the end of the saga that had the lock, and an event that came before its saga.
func TestAStartWithAnEarlierSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
			f.c = f.coordinator(seat(t))
			first := f.begun("seat", map[string]any{"id": "s-1", "number": "7"})
			tx, err := f.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(t.Context()) }()
			_, err = tx.Exec(t.Context(), "SELECT FROM troupe.sagas")
			require.NoError(t, err)
			f.publishEvent("Paid", "s-1")
			f.publishEvent("Paid", "s-2")
			f.completes(first)
			f.waitCount("the event to be kept", 1, "SELECT count(*) FROM troupe.saga_stash")

			_, err = f.c.Start(t.Context(), tx, "seat", map[string]any{"id": "s-2", "number": "7"})
			require.ErrorContains(t, err, "read committed", "it would wait for a lock that no saga has, and for an event that was kept for it")
		})
	}
}

// TestSagasWorkUnderAnyDefaultIsolation: the role's default applies to no transaction of ours.
func TestSagasWorkUnderAnyDefaultIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
			_, err := f.pool.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %s SET default_transaction_isolation = '%s'",
				pgx.Identifier{f.pool.Config().ConnConfig.Database}.Sanitize(), level))
			require.NoError(t, err)
			f.pool.Reset()
			f.c = f.coordinator(seat(t))
			_, err = f.c.Submit(t.Context(), "seat", map[string]any{"id": "s-1", "number": "7"}, nil)
			require.NoError(t, err)
			desk, err := sagadesk.New(sagadesk.Config{Pool: f.pool})
			require.NoError(t, err)
			_, err = desk.Start(t.Context(), sagadesk.StartRequest{
				Definition: seat(t), Fields: map[string]any{"id": "s-2", "number": "7"}, Actor: "ann", Reason: "a test",
			})
			require.NoError(t, err)
			_, err = desk.Act(t.Context(), "seat/s-1", saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "a test"})
			require.NoError(t, err)
			f.publishEvent("Paid", "s-2")
			f.completes("seat/s-2")
		})
	}
}
