package relay_test

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// A connection string may name several hosts, with target_session_attrs for the one to use. The first host may be a standby, such as the
// former primary after a failover. The relay streams from the host that its other connections lead to.
func TestARelayStreamsFromTheHostThatItsPoolAccepts(t *testing.T) {
	t.Parallel()
	needsLog(t)
	f := newFailover(t, func(*failover) {})
	f.exec("ALTER SYSTEM SET default_transaction_read_only = on") // as on a standby
	f.exec("SELECT pg_reload_conf()")
	a, err := url.Parse(f.a.URL("shop"))
	require.NoError(t, err)
	b, err := url.Parse(f.b.URL("shop"))
	require.NoError(t, err)
	a.Host += "," + b.Host
	a.RawQuery += "&target_session_attrs=read-write"
	pool, err := pgxpool.New(t.Context(), a.String())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	cfg := f.wal()
	cfg.Pool = pool
	f.pool = f.onB
	f.start(cfg)
	f.waitStream()
	f.insert(f.topic, "k", "0")
	require.Equal(t, []string{"0"}, values(f.gather(1, f.topic)))
}
