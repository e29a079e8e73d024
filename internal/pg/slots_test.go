package pg_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/pg"
)

func TestEachInvalidationHasACauseAndARemedy(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"":                       "removed log",
		"wal_removed":            "removed log",
		"rows_removed":           "removed rows of the catalog",
		"wal_level_insufficient": "wal_level",
		"idle_timeout":           "idle_replication_slot_timeout",
		"of_postgres_30":         "of_postgres_30",
	} {
		cause, remedy := pg.Invalidation(reason)
		require.Contains(t, cause, want)
		require.NotEmpty(t, remedy)
	}
}
