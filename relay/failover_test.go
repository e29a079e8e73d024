package relay_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// A failover is an address that leads to server a, and later to b, which continues from an earlier state of a.
type failover struct {
	*stage
	a, b *devstack.Postgres
	onB  *pgxpool.Pool
	to   atomic.Pointer[string] // the network address of new connections
}

// newFailover creates both servers from the same data: b has the system identifier, the timeline and the slots of a.
func newFailover(t *testing.T, begun func(f *failover)) *failover {
	home, err := os.MkdirTemp("", "failover") // not t.TempDir: root runs a server as another user, and that user could not read it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(home)) })
	require.NoError(t, os.Chmod(home, 0o755))
	const password = "failover"
	start := func(name string) *devstack.Postgres {
		server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{
			Dir: filepath.Join(home, name), Password: password, Settings: map[string]string{"shared_buffers": "32MB"},
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, server.Close()) })
		return server
	}
	f := &failover{stage: &stage{t: t, brokers: testkit.Kafka(t), flow: testkit.Flow(t)}, a: start("a")}
	f.topic = f.createTopic("main", 3)
	address, err := f.a.CreateDatabase(t.Context(), "shop", "")
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), address))
	f.pool = poolOf(t, address)
	begun(f)
	require.NoError(t, f.a.Stop(t.Context()))
	require.NoError(t, exec.Command("cp", "-a", filepath.Join(home, "a"), filepath.Join(home, "b")).Run())
	require.NoError(t, f.a.Start(t.Context()))
	f.b = start("b")
	f.onB = poolOf(t, f.b.URL("shop"))
	return f
}

// relay returns a configuration whose connections lead to the current server.
func (f *failover) relay() relay.Config {
	cfg := f.wal()
	cfg.Pool = f.redirected(f.pool)
	return cfg
}

// happens leads new connections to b, and cuts the relay's other connections to a. Its stream of a stays.
func (f *failover) happens() {
	f.leadToB()
	f.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'relay' AND backend_type = 'client backend'")
}

// redirected returns a pool like another one, whose connections lead to the current server.
func (f *failover) redirected(like *pgxpool.Pool) *pgxpool.Pool {
	config := like.Config()
	config.ConnConfig.RuntimeParams["application_name"] = "relay"
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if to := f.to.Load(); to != nil {
			address = *to
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	pool, err := pgxpool.NewWithConfig(f.t.Context(), config)
	require.NoError(f.t, err)
	f.t.Cleanup(pool.Close)
	return pool
}

// leadToB leads new connections to b.
func (f *failover) leadToB() {
	config := f.onB.Config().ConnConfig
	address := net.JoinHostPort(config.Host, fmt.Sprint(config.Port))
	f.to.Store(&address)
}

// New connections lead to the new primary while the stream of the old one is still open: snapshots of the new primary must
// not be stored with LSNs of the old one, which are ahead.
func TestAFailoverLosesNothingWhileTheOldStreamIsOpen(t *testing.T) {
	t.Parallel()
	needsLog(t)
	for _, delivery := range []relay.Delivery{relay.AtLeastOnce, relay.ExactlyOnce} {
		t.Run(string(delivery), func(t *testing.T) {
			t.Parallel()
			configured := func(cfg relay.Config, flow string) relay.Config {
				cfg.Delivery, cfg.Slot = delivery, "troupe_"+strings.ToLower(strings.ReplaceAll(flow, "-", "_"))
				return cfg
			}
			f := newFailover(t, func(s *failover) {
				r := s.start(configured(s.wal(), s.flow))
				s.waitStream()
				s.insert(s.topic, "k", "before")
				s.waitProven()
				require.NoError(t, r.stop())
			})
			r := f.start(configured(f.relay(), f.flow))
			f.waitStream()
			f.exec("SELECT pg_logical_emit_message(false, 'noise', repeat('x', 8000000))") // a is ahead of b
			f.insert(f.topic, "k", "lost with the old primary")
			f.waitProven()
			f.happens()
			for n := range 5 {
				_, err := f.onB.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'k', 'Thing', $2)`,
					f.topic, fmt.Append(nil, "new ", n))
				require.NoError(t, err)
			}
			want := []string{"before", "lost with the old primary", "new 0", "new 1", "new 2", "new 3", "new 4"}
			testkit.Wait(t, "the rows of both servers", func() (bool, error) {
				if got := values(f.committed(f.topic)); !slices.Equal(want, got) {
					return false, fmt.Errorf("%q", got)
				}
				return true, nil
			})
			require.NoError(t, r.stop())
		})
	}
}
