package retention_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/pg/silenttest"
	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/testkit"
)

// TestClosedRecordsAreRemovedAfterAServerFellSilent lets the database server fall silent once in a pass. The pass ends with an error, and the next
// one removes the records.
func TestClosedRecordsAreRemovedAfterAServerFellSilent(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"the rights":  "saga_events'::regclass",
		"the times":   "troupe.retention",
		"the removal": "Deletes locked sagas with their logs",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.saga("completed", "completed", "91 days")
			var server silenttest.Server
			server.At(text)
			records := retention.NewRecords(server.Pool(t, a.pool))
			records.Limit(2 * time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var err error
			for server.Fell() == 0 {
				_, err = records.Remove(ctx)
				require.NoError(t, ctx.Err(), "the pass waited for ever")
			}
			require.Error(t, err)
			testkit.Wait(t, "the removal", func() (bool, error) { // the server may still end the session that fell silent, and its locks
				_, err := records.Remove(ctx)
				return len(a.list(ids)) == 0, err
			})
		})
	}
}
