package participant_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestADatabaseWithoutTroupesTablesIsSaidWithWhatMakesThem checks that the log names the commands that create the tables, and
// that the participant continues once they exist.
func TestADatabaseWithoutTroupesTablesIsSaidWithWhatMakesThem(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	url := testkit.EmptyDatabase(t)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	var log safeBuffer
	p := s.new(func(c *participant.Config) { c.Pool, c.Log = pool, zerolog.New(&log) })
	participant.Handle(p, count)
	stop := s.start(p)
	testkit.Wait(t, "the remedy", func() (bool, error) {
		return strings.Contains(log.String(), "migrations.Up makes them, or outbox-relay migrate"), nil
	})
	require.NoError(t, migrations.Up(t.Context(), url))
	testkit.Wait(t, "ready", func() (bool, error) { return p.Ready() == nil, p.Ready() })
	stop()
}
