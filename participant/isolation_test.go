package participant_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestLocalWorkGoesOnUnderAnyDefaultIsolation checks that claims and records of members that lock the same rows wait for each
// other.
func TestLocalWorkGoesOnUnderAnyDefaultIsolation(t *testing.T) {
	t.Parallel()
	s := newLocalStage(t)
	s.makeLocal()
	_, err := s.pool.Exec(t.Context(), `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''repeatable read''', current_database()); END $$`)
	require.NoError(t, err)
	s.pool.Reset()
	var failed atomic.Pointer[error]
	for range 3 {
		p := s.new(func(c *participant.Config) {
			c.Batch, c.Concurrency = 5, 4
			c.Hooks.Breaker = func(b participant.Breaker) {
				var refused *pgconn.PgError
				if errors.As(b.Err, &refused) && refused.Code == "40001" {
					failed.Store(&b.Err)
				}
			}
		})
		participant.Handle(p, count)
		s.start(p)
	}
	for n := range 600 {
		s.write(s.keys(7)[n%7], Count{N: n})
	}
	s.waitCount(600, "SELECT count(*) FROM done")
	if err := failed.Load(); err != nil {
		require.NoError(t, *err)
	}
}
