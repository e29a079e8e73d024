package coordinator_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/saga"
)

// as returns a desk whose role has the rights of part and no others.
func (f *flow) as(part grants.Part) *sagadesk.Desk {
	f.t.Helper()
	desk, err := sagadesk.New(sagadesk.Config{Pool: grantstest.New(f.t, f.pool, part).Pool()})
	require.NoError(f.t, err)
	return desk
}

// TestAViewerReadsSagasAndAnOperatorActsOnThem as roles with the rights of these parts.
func TestAViewerReadsSagasAndAnOperatorActsOnThem(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newFlow(t, true)
	for _, key := range []string{"o-1", "o-2", "o-3"} {
		f.setFail(key+" inventory/forward", errors.New("no forklift"))
		f.start(key)
	}
	for _, key := range []string{"o-1", "o-2", "o-3"} {
		f.await("order/"+key, saga.Parked)
	}
	nothing := func(sagadesk.Move) error { return nil }

	reader := f.as(grants.Viewer)
	_, _, err := reader.List(ctx, sagadesk.Filter{}, sagadesk.Page{})
	require.NoError(t, err)
	_, err = reader.Get(ctx, "order/o-1")
	require.NoError(t, err)
	_, err = reader.Log(ctx, "order/o-1", 0, 10)
	require.NoError(t, err)
	_, err = reader.Counts(ctx)
	require.NoError(t, err)
	_, err = reader.Definitions(ctx)
	require.NoError(t, err)
	_, _, err = reader.Locks(ctx, "", 10)
	require.NoError(t, err)
	_, err = reader.Stash(ctx)
	require.NoError(t, err)
	_, err = reader.Preview(ctx, "order/o-1", annsEvent(saga.ActRetry, "inventory"))
	require.NoError(t, err)
	require.NoError(t, reader.ReplayAll(ctx, "", func(sagadesk.Replayed) error { return nil }))
	require.NoError(t, reader.Plan(ctx, sagadesk.Migration{To: withInsurance(t)}, nothing))
	_, err = reader.Act(ctx, "order/o-1", annsEvent(saga.ActRetry, "inventory"))
	require.ErrorContains(t, err, "docs/operating-sagas.md")

	operator := f.as(grants.SagaOperator)
	for _, key := range []string{"o-1", "o-2", "o-3"} {
		f.setFail(key+" inventory/forward", nil)
	}
	require.ErrorContains(t, reader.Migrate(ctx, sagadesk.Migration{To: withInsurance(t), Actor: "ann", Reason: "r"}, nothing), "docs/operating-sagas.md")
	_, err = operator.Act(ctx, "order/o-1", annsEvent(saga.ActRetry, "inventory"))
	require.NoError(t, err)
	f.await("order/o-1", saga.Completed)
	_, err = operator.Act(ctx, "order/o-2", annsEvent(saga.ActAbandon, ""))
	require.NoError(t, err)
	require.NoError(t, operator.Migrate(ctx, sagadesk.Migration{To: withInsurance(t), Actor: "ann", Reason: "r"}, nothing))
	_, err = operator.Act(ctx, "order/o-3", annsEvent(saga.ActCompensate, ""))
	require.NoError(t, err)
	start := sagadesk.StartRequest{
		Definition: withInsurance(t), Actor: "ann", Reason: "r",
		Fields: map[string]any{"order_id": "o-4", "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 1},
	}
	_, err = reader.PreviewStart(ctx, start)
	require.NoError(t, err)
	_, err = reader.Start(ctx, start)
	require.ErrorContains(t, err, "docs/operating-sagas.md")
	_, err = operator.Start(ctx, start)
	require.NoError(t, err)
	var byRole int
	require.NoError(t, f.pool.QueryRow(ctx, "SELECT count(*) FROM troupe.saga_events WHERE actor IS NOT NULL AND role LIKE 'troupe_test_%'").Scan(&byRole))
	require.Equal(t, 5, byRole, "retry, abandon, migrated, compensate and started are the operator's")
}
