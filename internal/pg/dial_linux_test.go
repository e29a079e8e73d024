package pg_test

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/pg"
)

// A firewall may stop forwarding one connection. TCP would wait for a quarter of an hour for the acknowledgement of a statement.
func TestConnectionsHaveTheTimeLimitsOfTCP(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	users, err := pgxpool.New(t.Context(), "postgres://user@"+listener.Addr().String()+"/shop?sslmode=disable")
	require.NoError(t, err)
	defer users.Close()
	ours, err := pg.SessionPool(users)
	require.NoError(t, err)
	defer ours.Close()
	single, err := pg.ConnConfig(t.Context(), users.Config())
	require.NoError(t, err)
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
		"of a pool": ours.Config().ConnConfig.DialFunc, "outside of a pool": single.DialFunc,
	} {
		conn, err := dial(t.Context(), "tcp", listener.Addr().String())
		require.NoError(t, err, name)
		require.Equal(t, 30_000, option(t, conn, 18), "%s: TCP_USER_TIMEOUT, in milliseconds", name)
		require.Equal(t, 15, option(t, conn, syscall.TCP_KEEPIDLE), name)
		require.Equal(t, 5, option(t, conn, syscall.TCP_KEEPINTVL), name)
		require.Equal(t, 3, option(t, conn, syscall.TCP_KEEPCNT), name)
		require.NoError(t, conn.Close())
	}
}

// option returns an option of a TCP connection.
func option(t *testing.T, conn net.Conn, name int) (value int) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		var err error
		value, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, name)
		require.NoError(t, err)
	}))
	return value
}
