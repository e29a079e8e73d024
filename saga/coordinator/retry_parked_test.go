package coordinator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

// twoAtOnce is the order's definition with payment and inventory at the same time, and an end that parks a saga of two pieces.
func twoAtOnce(t testing.TB) *saga.Definition {
	t.Helper()
	spec := order(t).Spec()
	spec.Steps = append([]saga.Step{}, spec.Steps...)
	spec.Steps[1].Needs, spec.Steps[2].Needs = nil, []string{"payment", "inventory"}
	spec.Ends = []saga.End{{When: "data.quantity == 2", Then: saga.ThenPark}}
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

// stuckFlow returns a flow with three parked sagas: o-1 with one stuck step, o-2 with two, and o-3 with none.
func stuckFlow(t *testing.T, local bool) *flow {
	t.Helper()
	f := newFlow(t, local, twoAtOnce(t))
	for _, what := range []string{"o-1 inventory/forward", "o-2 inventory/forward", "o-2 payment/forward"} {
		f.setFail(what, errors.New("no power"))
	}
	f.start("o-1")
	f.start("o-2")
	require.NoError(t, pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error {
		_, err := f.c.Start(t.Context(), tx, "order", map[string]any{
			"order_id": "o-3", "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 2,
		})
		return err
	}))
	f.becomes("order/o-1", saga.Parked, 1)
	f.becomes("order/o-2", saga.Parked, 2)
	f.becomes("order/o-3", saga.Parked, 0)
	return f
}

var noStep = sagadesk.RetriedSaga{ID: "order/o-3", Steps: []string{}, Obstacle: "no step is stuck: correct the cause, then resume it"}

var asAnn = sagadesk.ParkedRetry{Saga: "order", Actor: "ann", Reason: "ticket 4711", Rate: -1}

// All stuck steps of all parked sagas of a type are retried, in the operator's name, and the sagas go on.
func TestAllParkedSagasOfATypeAreRetried(t *testing.T) {
	t.Parallel()
	for name, local := range map[string]bool{"Kafka": false, "Postgres alone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := stuckFlow(t, local)
			var planned []sagadesk.RetriedSaga
			require.NoError(t, f.desk().PlanRetry(t.Context(), "order", func(one sagadesk.RetriedSaga) error {
				planned = append(planned, one)
				return nil
			}))
			want := []sagadesk.RetriedSaga{
				{ID: "order/o-1", Steps: []string{"inventory exhausted"}},
				{ID: "order/o-2", Steps: []string{"payment exhausted", "inventory exhausted"}}, noStep,
			}
			require.Equal(t, want, planned)
			n, err := f.desk().CountParked(t.Context(), "order")
			require.NoError(t, err)
			require.Equal(t, 3, n)
			for _, what := range []string{"o-1 inventory/forward", "o-2 inventory/forward", "o-2 payment/forward"} {
				f.setFail(what, nil)
			}
			require.Equal(t, want, f.retryParked(asAnn))
			f.becomes("order/o-1", saga.Completed, 0)
			f.becomes("order/o-2", saga.Completed, 0)
			f.becomes("order/o-3", saga.Parked, 0)
			for id, acts := range map[string]int{"order/o-1": 1, "order/o-2": 2, "order/o-3": 0} {
				f.equalsItsLogOf(id)
				log, err := f.desk().Log(t.Context(), id, 0, 100)
				require.NoError(t, err)
				var found int
				for _, e := range log {
					if e.Event.Kind == saga.ActRetry {
						found++
						require.Equal(t, []string{"ann", "ticket 4711"}, []string{e.Event.Actor, e.Event.Reason})
						require.NotEmpty(t, e.Role, "the server records the database role")
					}
				}
				require.Equal(t, acts, found, id)
			}
			require.Equal(t, []sagadesk.RetriedSaga{noStep}, f.retryParked(asAnn), "the others are not parked any more")
		})
	}
}

// A saga that changes between the read and the retry is left as it is, with the reason, and so is one that another transaction has
// locked. The others are retried. A saga that is parked while the retry runs is left for the next one.
func TestASagaThatChangesMeanwhileIsNotRetried(t *testing.T) {
	t.Parallel()
	f := stuckFlow(t, true)
	desk := f.desk()
	var all []sagadesk.RetriedSaga
	err := desk.RetryParked(t.Context(), asAnn, func(one sagadesk.RetriedSaga) error {
		if len(all) == 0 { // the page with all of them has been read
			_, err := desk.Act(t.Context(), "order/o-2", annsEvent(saga.ActAbandon, ""))
			require.NoError(t, err)
			f.setFail("o-9 inventory/forward", errors.New("no power"))
			f.start("o-9") // it would be on the next page
			f.becomes("order/o-9", saga.Parked, 1)
		}
		all = append(all, one)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, "it has changed meanwhile, and is abandoned", all[1].Obstacle)
	require.Empty(t, all[0].Obstacle)
	f.becomes("order/o-1", saga.Parked, 1) // it fails again

	tx, err := f.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM troupe.sagas WHERE id = 'order/o-1' FOR UPDATE")
	require.NoError(t, err)
	all = f.retryParked(asAnn)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Len(t, all, 3)
	require.Contains(t, all[0].Obstacle, "another transaction has locked it")
	require.Equal(t, noStep, all[1])
	require.Equal(t, sagadesk.RetriedSaga{ID: "order/o-9", Steps: []string{"inventory exhausted"}}, all[2])
}

// Without a registry the sagas of a flow whose payloads are Avro are left parked, and the plan names the reason.
func TestAnAvroFlowIsNotRetriedWithoutItsRegistry(t *testing.T) {
	t.Parallel()
	f := stuckFlow(t, true)
	_, err := f.pool.Exec(t.Context(), "UPDATE troupe.sagas SET content_type = $1", envelope.Avro)
	require.NoError(t, err)
	for _, one := range f.retryParked(asAnn)[:2] {
		require.Contains(t, one.Obstacle, "name the schema registry")
	}
	f.becomes("order/o-1", saga.Parked, 1)
}

// A type without a saga, a type without a parked saga, and a missing reason have different results.
func TestARetryOfAllNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	f := newFlow(t, true)
	none := func(sagadesk.RetriedSaga) error { return errors.New("there is none") }
	other := asAnn
	other.Saga = "oder"
	err := f.desk().RetryParked(t.Context(), other, none)
	require.ErrorIs(t, err, coordinator.ErrNotFound)
	require.ErrorContains(t, err, `saga type "oder": not found in this database: troupe saga list --counts shows what there is`)
	require.ErrorIs(t, f.desk().PlanRetry(t.Context(), "oder", none), coordinator.ErrNotFound)
	require.NoError(t, f.desk().RetryParked(t.Context(), asAnn, none), "a definition without a saga")
	other = asAnn
	other.Reason = ""
	require.ErrorContains(t, f.desk().RetryParked(t.Context(), other, none), "reason: want a reason")
}

// The rate limits the retries, and a cancelled run leaves the rest parked for the next.
func TestARetryOfAllIsLimitedAndGoesOnAfterAnInterruption(t *testing.T) {
	t.Parallel()
	f := stuckFlow(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	slow := asAnn
	slow.Rate = 1.0 / 3600 // the second retry would come in an hour
	var first []sagadesk.RetriedSaga
	err := f.desk().RetryParked(ctx, slow, func(one sagadesk.RetriedSaga) error {
		first = append(first, one)
		time.AfterFunc(time.Second, cancel) // time enough for the second, if nothing limits it
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, first, 1)
	f.becomes("order/o-1", saga.Parked, 1)
	f.becomes("order/o-2", saga.Parked, 2)
	require.Len(t, f.retryParked(asAnn), 3)
}

func (f *flow) retryParked(r sagadesk.ParkedRetry) (all []sagadesk.RetriedSaga) {
	f.t.Helper()
	require.NoError(f.t, f.desk().RetryParked(f.t.Context(), r, func(one sagadesk.RetriedSaga) error {
		all = append(all, one)
		return nil
	}))
	return all
}

// becomes waits until a saga on any definition has a status and this number of exhausted steps.
func (f *flow) becomes(id string, want saga.Status, exhausted int) {
	f.t.Helper()
	testkit.Wait(f.t, id+" to be "+string(want), func() (bool, error) {
		g, err := f.desk().Get(f.t.Context(), id)
		if err != nil {
			return false, err
		}
		n := 0
		for _, ss := range g.State.Steps {
			if ss.Phase == saga.GivenUp {
				n++
			}
		}
		return g.Status == want && n == exhausted, nil
	})
}
