package relay

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Half of a claim is for new rows. The other half is for the rows that are due the longest, so that each refused row is tried.
func TestRowsThatAreTriedAgainHaveHalfOfAClaim(t *testing.T) {
	t.Parallel()
	pool, l := tenure(t)
	exec := func(sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("INSERT INTO troupe.outbox (topic, key, type) SELECT 't', 'k' || n, 'T' FROM generate_series(1, 40) AS n")
	exec(`INSERT INTO troupe.outbox_failures (position, id, topic, order_key, status, attempts, max_attempts, next_try, last_error)
		SELECT position, id, topic, convert_to(key, 'UTF8'), 'retrying', 1, 0, now() - (position || ' s')::interval, 'e'
		FROM troupe.outbox WHERE position <= 20`)
	p := &poll{session: session{pool: pool}, lease: l, batch: 10, passLimit: 0} // no claim is read ahead: each begins at the lowest row
	defer p.close()
	claim := func() (retried, fresh []int64) {
		t.Helper()
		items, err := p.claim(t.Context(), 0)
		require.NoError(t, err)
		for _, i := range items {
			if i.failedBefore {
				retried = append(retried, i.row.Position)
			} else {
				fresh = append(fresh, i.row.Position)
			}
		}
		return retried, fresh
	}
	retried, fresh := claim()
	require.Equal(t, []int64{16, 17, 18, 19, 20}, retried, "due the longest")
	require.Equal(t, []int64{21, 22, 23, 24, 25}, fresh)
	exec("UPDATE troupe.outbox_failures SET next_try = now() WHERE position > 15")
	retried, _ = claim()
	require.Equal(t, []int64{11, 12, 13, 14, 15}, retried)
	exec("DELETE FROM troupe.outbox WHERE position > 20")
	retried, fresh = claim()
	require.Len(t, retried, 5)
	require.Empty(t, fresh)
}
