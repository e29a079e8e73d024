package coordinator_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// TestAHandlerInARebuildStartsNoSaga: the trigger of the rebuild would discard the saga's commands, and the saga would wait for ever or
// compensate steps that never ran. A start that finds its saga is as ever.
func TestAHandlerInARebuildStartsNoSaga(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.c = f.coordinator(seat(t))
	f.begun("seat", map[string]any{"id": "s-1", "number": "7"})
	start := func(id string) (existed bool, err error) {
		err = pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SELECT set_config('troupe.rebuild', 'on', true)"); err != nil {
				return err
			}
			is, err := f.c.Start(t.Context(), tx, "seat", map[string]any{"id": id, "number": "7"})
			existed = is.Existed
			return err
		})
		return existed, err
	}
	existed, err := start("s-1")
	require.NoError(t, err)
	require.True(t, existed)
	_, err = start("s-2")
	require.ErrorContains(t, err, "a rebuild without emit starts and changes no saga")
	_, err = f.pool.Exec(t.Context(), "SELECT set_config('troupe.rebuild', 'on', true); UPDATE troupe.sagas SET wake_at = now()")
	require.ErrorContains(t, err, "a rebuild without emit starts and changes no saga")
	var n int
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.sagas").Scan(&n))
	require.Equal(t, 1, n)
}
