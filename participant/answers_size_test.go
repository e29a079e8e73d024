package participant_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestTheStoredAnswersToABatchHaveALimit: 1,000 commands of a few bytes could read gigabytes.
func TestTheStoredAnswersToABatchHaveALimit(t *testing.T) {
	t.Parallel()
	pool := testkit.Database(t)
	for _, row := range []struct {
		answers, messages int
		err               error
	}{{60, 60, nil}, {80, 80, participant.ErrLargeAnswers}, {80, 1, nil}} {
		b := &pgx.Batch{}
		b.Queue(`SELECT 'T', n::text, 'success', 'T', 'application/json', decode(repeat('78', 1048576), 'hex'), '', NULL::xid, NULL::bytea
			FROM generate_series(1, $1::int) AS n`, row.answers)
		results := pool.SendBatch(t.Context(), b)
		found, err := participant.ReadAnswers(results, row.messages)
		require.ErrorIs(t, err, row.err)
		require.NoError(t, results.Close())
		if err == nil {
			require.Equal(t, row.answers, found)
		}
	}
}
