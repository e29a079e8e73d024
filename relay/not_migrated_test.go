package relay_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// TestADatabaseThatIsNotMigratedIsWaitedFor: the relay publishes once the tables are there.
func TestADatabaseThatIsNotMigratedIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	address := testkit.EmptyDatabase(t)
	s.pool = poolOf(t, address)
	var log lockedBuffer
	cfg := s.config()
	cfg.Source, cfg.Log = relay.Poll, zerolog.New(&log)
	s.start(cfg)
	testkit.Wait(t, "the line about the tables", func() (bool, error) { return strings.Contains(log.String(), "the database is not migrated"), nil })
	require.NoError(t, migrations.Up(t.Context(), address))
	s.insert(s.topic, "a", "1")
	require.Equal(t, []string{"1"}, values(s.gather(1, s.topic)))
}
