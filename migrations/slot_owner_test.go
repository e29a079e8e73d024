package migrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/testkit"
)

// While a table does not exist, its slot may have become another outbox's. The last outbox to store its state with the slot owns it, so the
// relay of a new table of that name may not take the slot by a new time alone.
func TestATableThatIsMadeAgainTakesNoSlotBack(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	ofA := grantstest.New(t, pool, grants.MappedRelay)
	_, err := pool.Exec(t.Context(), "CREATE TABLE public.a (id int); CREATE TABLE public.c (id int); CREATE TABLE public.b (id int); "+
		"GRANT SELECT ON public.a, public.c TO "+ofA.Name+"; "+
		"INSERT INTO troupe.mapped_tables (name, slot, source, updated_at) VALUES ('public.b', 'b', 'wal', now() - interval '1 hour'), "+
		"('public.a', 'b', 'wal', now() - interval '1 day'), ('public.c', 'outbox', 'wal', now() - interval '1 day'); "+
		"INSERT INTO troupe.relay_state (slot, source, system_id, timeline) VALUES ('outbox', 'wal', '1', 1)")
	require.NoError(t, err)
	for _, table := range []string{"public.a", "public.c"} {
		_, err = ofA.Pool().Exec(t.Context(), "UPDATE troupe.mapped_tables SET updated_at = now() WHERE name = $1", table)
		require.ErrorContains(t, err, "is the slot of another outbox", table)
		_, err = ofA.Pool().Exec(t.Context(), "UPDATE troupe.mapped_tables SET slot = 'own', updated_at = now() WHERE name = $1", table)
		require.NoError(t, err)
		_, err = ofA.Pool().Exec(t.Context(), "UPDATE troupe.mapped_tables SET updated_at = now() WHERE name = $1", table)
		require.NoError(t, err)
		_, err = ofA.Pool().Exec(t.Context(), "UPDATE troupe.mapped_tables SET slot = NULL WHERE name = $1", table)
		require.NoError(t, err)
	}
}
