package relay_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/testkit"
)

// TestARelayStreamsFromADatabaseThatItsAddressDoesNotName: without a name Postgres connects to the database with the name of the user.
func TestARelayStreamsFromADatabaseThatItsAddressDoesNotName(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	needsLog(t)
	config := s.pool.Config()
	name := config.ConnConfig.Database
	s.exec("CREATE ROLE " + pgx.Identifier{name}.Sanitize() + " LOGIN SUPERUSER PASSWORD '" + config.ConnConfig.Password + "'")
	t.Cleanup(func() { s.exec("DROP ROLE " + pgx.Identifier{name}.Sanitize()) })
	config.ConnConfig.User, config.ConnConfig.Database = name, ""
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	cfg := s.wal()
	cfg.Pool, cfg.Slot = pool, ""
	for n, payload := range []string{"1", "2"} {
		r := s.start(cfg)
		s.insert(s.topic, "k", payload)
		require.Equal(t, payload, string(s.gather(n+1, s.topic)[n].Value))
		testkit.Wait(t, "the slot", func() (bool, error) {
			return s.count("SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND active", wal.DefaultSlot(name, "")) == 1, nil
		})
		require.NoError(t, r.stop())
	}
}
