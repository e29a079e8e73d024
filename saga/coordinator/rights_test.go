package coordinator_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

// as is a desk of a role with these rights, in which "operator" stands for the role.
func (f *flow) as(grants ...string) *coordinator.Desk {
	f.t.Helper()
	role := pgx.Identifier{"troupe_test_" + strings.ReplaceAll(uuid.NewString(), "-", "")}.Sanitize()
	run := func(ctx context.Context, sql string) {
		_, err := f.pool.Exec(ctx, sql)
		require.NoError(f.t, err, sql)
	}
	run(f.t.Context(), "CREATE ROLE "+role)
	f.t.Cleanup(func() { run(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	for _, g := range grants {
		run(f.t.Context(), strings.ReplaceAll(g, "TO operator", "TO "+role))
	}
	config := f.pool.Config()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET ROLE "+role)
		return err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(f.t, err)
	f.t.Cleanup(pool.Close)
	desk, err := coordinator.NewDesk(coordinator.DeskConfig{Pool: pool})
	require.NoError(f.t, err)
	return desk
}

// TestTheDocumentedRightsSuffice takes them from docs/operating-sagas.md: the first two to look, those up to the eighth to
// act, one more to migrate, and two more to start.
func TestTheDocumentedRightsSuffice(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operating-sagas.md")
	require.NoError(t, err)
	_, rights, found := strings.Cut(string(page), "## Rights")
	require.True(t, found)
	grants := regexp.MustCompile(`(?s)GRANT.*?;`).FindAllString(rights, -1)
	require.Len(t, grants, 11)

	ctx := t.Context()
	f := newFlow(t, true)
	for _, key := range []string{"o-1", "o-2", "o-3"} {
		f.setFail(key+" inventory/forward", errors.New("no forklift"))
		f.start(key)
	}
	for _, key := range []string{"o-1", "o-2", "o-3"} {
		f.await("order/"+key, saga.Parked)
	}
	nothing := func(coordinator.Move) error { return nil }

	reader := f.as(grants[:2]...)
	_, _, err = reader.List(ctx, coordinator.Filter{}, coordinator.Page{})
	require.NoError(t, err)
	_, err = reader.Get(ctx, "order/o-1")
	require.NoError(t, err)
	_, err = reader.Log(ctx, "order/o-1", 0, 10)
	require.NoError(t, err)
	_, err = reader.Counts(ctx)
	require.NoError(t, err)
	_, err = reader.Definitions(ctx)
	require.NoError(t, err)
	_, err = reader.Locks(ctx, "", 10)
	require.NoError(t, err)
	_, err = reader.Stash(ctx)
	require.NoError(t, err)
	_, err = reader.Preview(ctx, "order/o-1", annsEvent(saga.ActRetry, "inventory"))
	require.NoError(t, err)
	require.NoError(t, reader.ReplayAll(ctx, "", func(coordinator.Replayed) error { return nil }))
	require.NoError(t, reader.Plan(ctx, coordinator.Migration{To: withInsurance(t)}, nothing))
	_, err = reader.Act(ctx, "order/o-1", annsEvent(saga.ActRetry, "inventory"))
	require.ErrorContains(t, err, "docs/operating-sagas.md")

	operator := f.as(grants[:8]...)
	for _, key := range []string{"o-1", "o-2", "o-3"} {
		f.setFail(key+" inventory/forward", nil)
	}
	require.ErrorContains(t, operator.Migrate(ctx, coordinator.Migration{To: withInsurance(t), Actor: "ann", Reason: "r"}, nothing), "docs/operating-sagas.md")
	_, err = operator.Act(ctx, "order/o-1", annsEvent(saga.ActRetry, "inventory"))
	require.NoError(t, err)
	f.await("order/o-1", saga.Completed)
	_, err = operator.Act(ctx, "order/o-2", annsEvent(saga.ActAbandon, ""))
	require.NoError(t, err)
	require.NoError(t, f.as(grants[:9]...).Migrate(ctx, coordinator.Migration{To: withInsurance(t), Actor: "ann", Reason: "r"}, nothing))
	_, err = operator.Act(ctx, "order/o-3", annsEvent(saga.ActCompensate, ""))
	require.NoError(t, err)
	start := coordinator.StartRequest{
		Definition: withInsurance(t), Actor: "ann", Reason: "r",
		Fields: map[string]any{"order_id": "o-4", "customer_id": "c-1", "amount_cents": 500, "title": 7, "quantity": 1},
	}
	_, err = reader.PreviewStart(ctx, start)
	require.NoError(t, err)
	_, err = operator.Start(ctx, start)
	require.ErrorContains(t, err, "docs/operating-sagas.md")
	_, err = f.as(append(grants[:8:8], grants[9:]...)...).Start(ctx, start)
	require.NoError(t, err)
	_, err = f.pool.Exec(ctx, "SELECT FROM troupe.saga_events WHERE kind = 'migrated'")
	require.NoError(t, err)
}
