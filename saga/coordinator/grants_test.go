package coordinator_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

func TestACoordinatorWorksWithNoMoreThanItsGrants(t *testing.T) {
	t.Parallel()
	f := newHops(t, false)
	role := grantstest.New(t, f.pool, grants.Sagas)
	pool := role.Pool()
	p := f.participant("order", pool)
	c, err := coordinator.New(t.Context(), coordinator.Config{
		Participant: p, Pool: pool, Definitions: []*saga.Definition{order(t), guests(t)}, Log: testkit.Logger(t),
	})
	require.NoError(t, err)
	f.run(p, f.pool)
	start := func(name string, fields map[string]any) {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := c.Start(t.Context(), tx, name, fields)
			return err
		}))
	}
	arrives := func(guest string) {
		_, err := f.pools["payment"].Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'Arrived', $3)",
			f.name+".payment.events", guest, fmt.Sprintf(`{"name": %q}`, guest))
		require.NoError(t, err)
	}

	f.set(f.refuse, "o-1 shipping/forward", "no carrier")
	start("order", map[string]any{"order_id": "o-1", "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 1})
	arrives("ada")
	testkit.Wait(t, "ada's arrival to be stashed", func() (there bool, err error) {
		err = f.pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM troupe.saga_stash)").Scan(&there)
		return there, err
	})
	start("visit", map[string]any{"id": "v-1", "guest": "ada"})
	start("visit", map[string]any{"id": "v-2", "guest": "bob"})
	start("visit", map[string]any{"id": "v-3", "guest": "bob"})
	arrives("bob")
	for id, want := range map[string]string{
		"order/o-1": "compensated", "visit/v-1": "completed", "visit/v-2": "completed", "visit/v-3": "completed",
	} {
		testkit.Wait(t, id+" to be "+want, func() (bool, error) {
			var is, why string
			err := f.pool.QueryRow(t.Context(), "SELECT status, coalesce(reason, '') FROM troupe.sagas WHERE id = $1", id).Scan(&is, &why)
			if err == nil && is != want {
				err = fmt.Errorf("it is %s: %s", is, why)
				return false, err
			}
			return err == nil, err
		})
	}
	var others int
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.saga_events WHERE role IS DISTINCT FROM $1", role.Name).Scan(&others))
	require.Zero(t, others, "each event has the role that wrote it")
	for _, sql := range []string{"SELECT FROM troupe.saga_events", "DELETE FROM troupe.sagas", "SELECT payload FROM troupe.outbox"} {
		_, err = pool.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "permission denied", sql)
	}
}

func guests(t testing.TB) *saga.Definition {
	t.Helper()
	d, err := saga.Define(saga.Spec{
		Saga: "visit", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String, "guest": saga.String},
		Lock: "data.guest",
		Steps: []saga.Step{{Name: "arrive", Success: []saga.Answer{
			{Hop: "payment", Event: "Arrived", By: &saga.Association{Variable: "guest", Field: "name"}},
		}}},
	})
	require.NoError(t, err)
	return d
}
