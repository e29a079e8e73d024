package coordinator_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

// TestAStartSaysWhatWasThereBefore: the result distinguishes a repeated request from two requests with one key.
func TestAStartSaysWhatWasThereBefore(t *testing.T) {
	t.Parallel()
	s := newDesk(t)
	begin := func(key, customer string) (is coordinator.StartResult) {
		require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) (err error) {
			is, err = s.c.Start(t.Context(), tx, "order", orderOf(key, customer))
			return err
		}))
		return is
	}
	submit := func(key, customer string) coordinator.StartResult {
		is, err := s.submitted(t.Context(), key, customer)
		require.NoError(t, err)
		return is
	}
	for key, start := range map[string]func(key, customer string) coordinator.StartResult{"o-1": begin, "o-2": submit} {
		id := "order/" + key
		require.Equal(t, coordinator.StartResult{ID: id}, start(key, "c-1"))
		require.Equal(t, coordinator.StartResult{ID: id, Existed: true}, begin(key, "c-1"))
		require.Equal(t, coordinator.StartResult{ID: id, Existed: true}, submit(key, "c-1"))
		require.Equal(t, coordinator.StartResult{ID: id, Existed: true, OtherData: true}, begin(key, "c-2"))
		require.Equal(t, coordinator.StartResult{ID: id, Existed: true, OtherData: true}, submit(key, "c-2"))
		require.Equal(t, "c-1", s.state(id).Data["customer_id"])
		s.replayed(id)
	}
}

func TestTwoCoordinatorsOfOneSagaInOneDatabaseAreRefused(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	first, second := &flow{t: t, name: testkit.Flow(t), local: true, pool: pool}, &flow{t: t, name: testkit.Flow(t), local: true, pool: pool}
	first.c, second.c = first.coordinator(order(t)), second.coordinator(order(t))
	first.start("o-1")

	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = second.c.Start(t.Context(), tx, "order", orderOf("o-1", "c-1"))
	require.ErrorContains(t, err, "the coordinator "+first.name+".order")
	require.NotErrorIs(t, err, coordinator.ErrConflict, "trying again cannot help")
	require.NoError(t, tx.Rollback(t.Context()))
	_, err = second.c.Submit(t.Context(), "order", orderOf("o-1", "c-1"), nil)
	require.ErrorContains(t, err, "the coordinator "+first.name+".order")

	spec := order(t).Spec()
	spec.Steps = spec.Steps[:len(spec.Steps)-1]
	other, err := saga.Define(spec)
	require.NoError(t, err)
	_, err = coordinator.New(t.Context(), coordinator.Config{
		Participant: second.participant("order", pool), Pool: pool, Definitions: []*saga.Definition{other},
	})
	require.ErrorContains(t, err, "the coordinator "+first.name+".order")
	var stored int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.saga_definitions").Scan(&stored))
	require.Equal(t, 1, stored, "the definition of the coordinator that is refused would be the latest one")
}

// An operator names the hop of another coordinator, or misspells it. With a saga under way for each, no process of either
// coordinator could start.
func TestASagaOfATypeThatAnotherCoordinatorHasIsNotStartedByHand(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.c = f.coordinator(order(t))
	id := f.start("o-1")
	desk, err := sagadesk.New(sagadesk.Config{Pool: f.pool})
	require.NoError(t, err)
	refused := func(key, why string) {
		t.Helper()
		r := sagadesk.StartRequest{Definition: order(t), Fields: orderOf(key, "c-1"), Actor: "ann", Reason: "r", Hop: f.name + ".ordr"}
		_, err := desk.PreviewStart(t.Context(), r)
		require.ErrorIs(t, err, coordinator.ErrRefused)
		require.ErrorContains(t, err, why)
		_, started := desk.Start(t.Context(), r)
		require.EqualError(t, started, err.Error())
	}
	refused("o-1", "has sagas order under way in this database")
	refused("o-2", "has sagas order under way in this database")
	_, err = desk.Act(t.Context(), id, annsEvent(saga.ActAbandon, ""))
	require.NoError(t, err)
	refused("o-1", "has it in the same database")
	f.coordinator(order(t))
}
