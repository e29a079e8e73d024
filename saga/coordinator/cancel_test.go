package coordinator_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// CancelRefused is emitted if a cancel comes too late.
type CancelRefused struct {
	OrderID string `json:"order_id"`
}

// cancellable is an order that a customer or an operator may cancel before it is shipped.
func cancellable(t testing.TB) *saga.Definition {
	t.Helper()
	spec := order(t).Spec()
	spec.Cancel = &saga.Cancel{
		Before: "shipping", Operator: true, Events: []saga.Answer{{Hop: "customer", Event: "CancelRequested", Reason: "event.reason"}},
		Refused: []saga.Emit{{Event: "CancelRefused", Failure: true, Input: saga.Mapping{"order_id": "data.order_id"}}},
	}
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

// bothCancellable runs a test over Kafka and without it, with a hop that counts the refused cancels.
func bothCancellable(t *testing.T, do func(t *testing.T, f *flow)) {
	for name, local := range map[string]bool{"Kafka": false, "Postgres alone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFlow(t, local, cancellable(t))
			p := f.participant("customer", f.pool)
			participant.On(p, topics.MustHop(f.name, "order"), func(ctx context.Context, tx pgx.Tx, e participant.Event[CancelRefused]) error {
				_, err := tx.Exec(ctx, "INSERT INTO effects (hop, operation, key) VALUES ('customer', 'refused', $1)", e.Body.OrderID)
				return err
			})
			_, err := f.pool.Exec(t.Context(), effects)
			require.NoError(t, err)
			f.run(p, f.pool)
			do(t, f)
		})
	}
}

// cancels publishes the request of a customer.
func (f *flow) cancels(key string) {
	f.t.Helper()
	const request = "INSERT INTO troupe.outbox (topic, key, type, payload, headers) VALUES ($1, $2, 'CancelRequested', '{\"reason\": \"ill\"}', '{}')"
	_, err := f.pool.Exec(f.t.Context(), request, f.name+".customer.events", key)
	require.NoError(f.t, err)
}

// becomesState waits until a saga, of any definition, has a status, and requires that its log gives its row.
func (f *flow) becomesState(id string, want saga.Status) saga.State {
	f.t.Helper()
	var s saga.State
	testkit.Wait(f.t, id+" to be "+string(want), func() (bool, error) {
		g, err := f.desk().Get(f.t.Context(), id)
		if err != nil {
			return false, err
		}
		s = g.State
		return s.Status == want, nil
	})
	f.equalsItsLogOf(id)
	return s
}

// In TestACustomersCancelCompensatesTheOrder the depot has given up the second command.
func TestACustomersCancelCompensatesTheOrder(t *testing.T) {
	t.Parallel()
	bothCancellable(t, func(t *testing.T, f *flow) {
		f.setFail("o-1 inventory/forward", errors.New("no forklift"))
		id := f.start("o-1")
		f.becomesState(id, saga.Parked)
		f.cancels("o-1")
		s := f.becomesState(id, saga.Compensated)
		require.Equal(t, saga.CancelAccepted, s.Cancel)
		require.Contains(t, s.Reason, "ill")
		require.Equal(t, []string{"payment/forward", "payment/compensate"}, f.effects("o-1"))
	})
}

// In TestACancelOfAShippedOrderIsRefusedOnceAndTheOrderGoesOn three cancels come while the shipment is parked.
func TestACancelOfAShippedOrderIsRefusedOnceAndTheOrderGoesOn(t *testing.T) {
	t.Parallel()
	bothCancellable(t, func(t *testing.T, f *flow) {
		f.setFail("o-1 shipping/forward", errors.New("no wheels"))
		id := f.start("o-1")
		f.becomesState(id, saga.Parked)
		f.cancels("o-1")
		f.cancels("o-1")
		f.waitCount("the refusal", 1, "SELECT count(*) FROM effects WHERE hop = 'customer'")
		_, err := f.act(id, saga.Event{Kind: saga.ActCancel})
		require.ErrorIs(t, err, coordinator.ErrRefused)
		require.ErrorContains(t, err, "the cancel comes too late: the pivot shipping has begun")
		f.setFail("o-1 shipping/forward", nil)
		_, err = f.act(id, saga.Event{Kind: saga.ActRetry, Step: "shipping"})
		require.NoError(t, err)
		require.Equal(t, saga.CancelRefused, f.becomesState(id, saga.Completed).Cancel)
		require.Equal(t, 1, f.count("SELECT count(*) FROM effects WHERE hop = 'customer'"))
	})
}

// In TestACancelThatComesBeforeItsOrderIsKept the event comes first, and an operator cancels another order.
func TestACancelThatComesBeforeItsOrderIsKept(t *testing.T) {
	t.Parallel()
	bothCancellable(t, func(t *testing.T, f *flow) {
		f.cancels("o-1")
		f.waitCount("the event to be kept", 1, "SELECT count(*) FROM troupe.saga_stash")
		id := f.start("o-1")
		require.Equal(t, "ill", f.becomesState(id, saga.Compensated).Reason)
		require.Zero(t, f.count("SELECT count(*) FROM troupe.saga_stash"))

		f.setFail("o-2 inventory/forward", errors.New("no forklift"))
		second := f.start("o-2")
		f.becomesState(second, saga.Parked)
		_, err := f.act(second, saga.Event{Kind: saga.ActCancel})
		require.NoError(t, err)
		require.Equal(t, saga.CancelAccepted, f.becomesState(second, saga.Compensated).Cancel)
	})
}
