package participant_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
)

// TestTheInboxGoesByTheDatabasesClock checks that a member whose own clock is 20 days ahead of the database's does not use
// tables of today for days to come. Here the database's clock is 20 days slow.
func TestTheInboxGoesByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, err := s.pool.Exec(t.Context(), `
		CREATE SCHEMA behind;
		CREATE FUNCTION behind.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
		AS $$ SELECT pg_catalog.clock_timestamp() - interval '20 days' $$`)
	require.NoError(t, err)
	cfg := s.pool.Config()
	cfg.ConnConfig.RuntimeParams["search_path"] = "behind, pg_catalog, public"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	p := s.new(func(c *participant.Config) { c.Pool = pool })
	require.NoError(t, p.TurnNow())
	today := int(time.Now().Unix() / (24 * 60 * 60))
	require.InDelta(t, today-20+1, s.count("SELECT max(day) FROM troupe.inbox_slots"), 1)
}
