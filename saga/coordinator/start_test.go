package coordinator_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

func TestStartedByManyAtOnceItIsOneSaga(t *testing.T) {
	t.Parallel()
	f := newHops(t, true)
	f.setFail("o-1 payment/forward", errors.New("the bank is closed"))
	p := f.participant("order", f.pool) // it does not run
	var err error
	f.c, err = coordinator.New(t.Context(), coordinator.Config{Participant: p, Pool: f.pool, Definitions: []*saga.Definition{order(t)}})
	require.NoError(t, err)
	var starting sync.WaitGroup
	for i := range 16 {
		starting.Go(func() {
			for {
				err := pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error {
					_, err := f.c.Start(t.Context(), tx, "order", map[string]any{
						"order_id": "o-1", "customer_id": fmt.Sprint("c-", i), "amount_cents": 500, "title": 7, "quantity": 1,
					})
					return err
				})
				if !errors.Is(err, coordinator.ErrConflict) {
					require.NoError(t, err)
					return
				}
			}
		})
	}
	starting.Wait()
	require.Equal(t, 1, f.state("order/o-1").Version)
	require.Equal(t, saga.Intent, f.state("order/o-1").Steps[0].Phase)
	require.Empty(t, f.effects("o-1"))
	for what, rows := range map[string]string{
		"sagas": "SELECT FROM troupe.sagas WHERE key = 'o-1'", "decisions": "SELECT FROM troupe.saga_events WHERE saga_id = 'order/o-1'",
		// in the outbox until the hop has made its topic local
		"commands": "SELECT FROM troupe.local_work WHERE topic LIKE '%.commands' UNION ALL SELECT FROM troupe.outbox WHERE topic LIKE '%.commands'",
	} {
		var n int
		require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT count(*) FROM ("+rows+") AS r").Scan(&n))
		require.Equal(t, 1, n, what)
	}
}

func TestEveryCommandSaysWhoseItIs(t *testing.T) {
	t.Parallel()
	f := newFlow(t, true)
	f.set(f.refuse, "o-1 shipping/forward", "no carrier")
	id := f.start("o-1")
	f.await(id, saga.Compensated)
	const commands = `
SELECT headers ->> 'ce_idempotencykey', headers ->> 'ce_sagaid', headers ->> 'ce_sagastep', headers ->> 'ce_sagaoperation'
FROM troupe.local_work
WHERE topic LIKE '%.commands' AND key = 'o-1'
ORDER BY position`
	rows, err := f.pool.Query(t.Context(), commands)
	require.NoError(t, err)
	var keys []string
	var key, of, step, operation string
	_, err = pgx.ForEachRow(rows, []any{&key, &of, &step, &operation}, func() error {
		require.Equal(t, id, of)
		require.Equal(t, id+"/"+step+"/"+operation+"/0", key)
		keys = append(keys, step+"/"+operation)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"payment/forward", "inventory/forward", "shipping/forward", "inventory/compensate", "payment/compensate"}, keys)
}
