package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// Passwords that expire, such as the tokens of a cloud provider, are set by the pool's BeforeConnect. The connections of a
// relay that are not the pool's, for notifications and for replication, need them, too: at the start, and after the password
// has changed.
func TestEveryConnectionOfARelayHasThePasswordOfTheMoment(t *testing.T) {
	for _, source := range []relay.Source{relay.Poll, relay.WAL} {
		t.Run(string(source), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			role := grantstest.New(t, s.pool, grants.Relay)
			s.exec("ALTER ROLE " + role.Name + " REPLICATION")
			var password atomic.Value
			change := func(to string) {
				s.exec("ALTER ROLE " + role.Name + " PASSWORD '" + to + "'")
				password.Store(to)
			}
			change("first")
			config := role.Pool().Config()
			config.ConnConfig.Password = "expired"
			config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
				c.Password = password.Load().(string)
				return nil
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			cfg := s.config()
			cfg.Pool, cfg.Source, cfg.Delivery = pool, source, relay.AtLeastOnce
			s.start(cfg)
			works := func(key string) {
				t.Helper()
				s.insert(s.topic, key, "{}")
				testkit.Wait(t, "the row in its topic", func() (bool, error) {
					left := s.count("SELECT count(*) FROM troupe.outbox")
					if source == relay.WAL {
						left = s.count(`SELECT count(*) FROM troupe.outbox AS o
							WHERE NOT pg_visible_in_snapshot(o.xid, coalesce((SELECT published FROM troupe.relay_state), '1:1:'))`)
					}
					return left == 0, nil
				})
				s.waitSession(map[relay.Source]string{relay.Poll: "LISTEN%", relay.WAL: "START_REPLICATION%"}[source], role.Name)
			}
			works("a")
			change("second")
			s.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", role.Name)
			works("b")
		})
	}
}

// waitSession waits until a role has a session whose last statement is like query.
func (s *stage) waitSession(query, role string) {
	s.t.Helper()
	testkit.Wait(s.t, query, func() (bool, error) {
		var n int
		err := s.pool.QueryRow(s.t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND query LIKE $2", role, query).Scan(&n)
		if err == nil && n == 0 {
			err = fmt.Errorf("no session of %s", role)
		}
		return n > 0, err
	})
}
