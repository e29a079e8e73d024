package relay_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// After a failover connections to the former server may stay open and silent for more than a minute. Closing a pool
// must not wait for them: the connection here is in use until the test ends.
func TestAFailoverDoesNotWaitForConnectionsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	other, err := pgxpool.NewWithConfig(t.Context(), testkit.Database(t).Config())
	require.NoError(t, err)
	conn, err := other.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	relay.ClosePool(other)
	_, err = other.Acquire(t.Context())
	require.ErrorContains(t, err, "closed pool")
}
