package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// echo starts a server that sends a greeting, then echoes its input.
func echo(t *testing.T) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, "hello\n")
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

func startProxy(t *testing.T) *proxy {
	p, err := newProxy()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return p
}

func dial(t *testing.T, p *proxy, child, address string) (net.Conn, error) {
	d, err := dialThrough(p.credentials(), child)
	require.NoError(t, err)
	conn, err := d(t.Context(), "tcp", address)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

func requireEcho(t *testing.T, conn net.Conn, in *bufio.Reader) {
	t.Helper()
	_, err := io.WriteString(conn, "again\n")
	require.NoError(t, err)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "again\n", line)
}

func TestConnectionsPassTheProxyBothWays(t *testing.T) {
	p := startProxy(t)
	conn, err := dial(t, p, "order", echo(t))
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	greeting, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", greeting)
	requireEcho(t, conn, in)
	big := strings.Repeat("x", 1<<20) + "\n"
	go func() { _, _ = io.WriteString(conn, big) }()
	got, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, big, got)
}

func TestAQueryThatIsGivenUpIsCancelledThroughTheProxy(t *testing.T) {
	p, pool := startProxy(t), testkit.Database(t)
	config, err := pgx.ParseConfig(testkit.DatabaseURL(t, pool))
	require.NoError(t, err)
	d, err := dialThrough(p.credentials(), "order")
	require.NoError(t, err)
	config.DialFunc = pgconn.DialFunc(d)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	require.Equal(t, net.JoinHostPort(config.Host, fmt.Sprint(config.Port)), conn.PgConn().Conn().RemoteAddr().String())
	running := func(n int) func() (bool, error) {
		return func() (is bool, err error) {
			const sql = "SELECT count(*) = $1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE 'SELECT pg_sleep%'"
			err = pool.QueryRow(t.Context(), sql, n).Scan(&is)
			return is, err
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "SELECT pg_sleep(600)")
		ended <- err
	}()
	testkit.Wait(t, "the query", running(1))
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	<-conn.PgConn().CleanupDone()
	// Without the cancel request it sleeps on: the server does not notice the end of the connection meanwhile.
	testkit.Wait(t, "the cancel request to arrive", running(0))
}

func TestCutResetsTheConnectionsOfOneChildOnly(t *testing.T) {
	p, server := startProxy(t), echo(t)
	var cut []net.Conn
	for range 3 {
		conn, err := dial(t, p, "order", server)
		require.NoError(t, err)
		cut = append(cut, conn)
	}
	other, err := dial(t, p, "order-relay", server)
	require.NoError(t, err)
	in := bufio.NewReader(other)
	_, err = in.ReadString('\n')
	require.NoError(t, err)

	testkit.Wait(t, "links", func() (bool, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.links) == 4, nil
	})
	require.Equal(t, 3, p.cut("order"))
	for _, conn := range cut {
		_, err := io.Copy(io.Discard, conn)
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
	requireEcho(t, other, in)
	testkit.Wait(t, "cut links forgotten", func() (bool, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.links) == 1, nil
	})
	again, err := dial(t, p, "order", server)
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestAServersEndReachesTheChild(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	conn, err := dial(t, startProxy(t), "order", l.Addr().String())
	require.NoError(t, err)
	server, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, server.Close())
	_, err = io.Copy(io.Discard, conn)
	require.NoError(t, err)
}

func TestAnAddressThatCannotBeReachedIsSaid(t *testing.T) {
	p := startProxy(t)
	_, err := dial(t, p, "order", "127.0.0.1:1")
	require.ErrorContains(t, err, "connection refused")
	require.ErrorContains(t, err, "127.0.0.1:1 through the proxy")
	var network net.Error
	require.True(t, errors.As(err, &network), "as a failed dial is")

	d, err := dialThrough(p.credentials(), "order")
	require.NoError(t, err)
	_, err = d(t.Context(), "unix", "/run/postgresql/.s.PGSQL.5432")
	require.ErrorContains(t, err, "tcp only")
	_, err = dialThrough("nonsense", "order")
	require.Error(t, err)
}

func TestStrangersDoNotPass(t *testing.T) {
	p, server := startProxy(t), echo(t)
	for _, token := range []string{"", "wrong", p.token + "x"} {
		d, err := dialThrough(token+"@"+p.listener.Addr().String(), "order")
		require.NoError(t, err)
		_, err = d(t.Context(), "tcp", server)
		require.ErrorContains(t, err, "not one of ours")
	}
	response, err := http.Get("http://order:" + p.token + "@" + p.listener.Addr().String() + "/")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusForbidden, response.StatusCode)
}

func TestADialEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never answers
	require.NoError(t, err)
	defer l.Close()
	d, err := dialThrough("token@"+l.Addr().String(), "order")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := d(ctx, "tcp", "127.0.0.1:1")
		ended <- err
	}()
	conn, err := l.Accept()
	require.NoError(t, err)
	defer conn.Close()
	cancel()
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(helloLimit):
		t.Fatal("still dialling")
	}
}

func TestManyAtOncePassAndAreCut(t *testing.T) {
	p, server := startProxy(t), echo(t)
	var all sync.WaitGroup
	for n := range 40 {
		all.Go(func() {
			conn, err := dial(t, p, fmt.Sprint("child-", n%4), server)
			if err != nil {
				return // cut while it sent its first line
			}
			_, _ = io.Copy(io.Discard, conn)
		})
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	testkit.Wait(t, "all cut", func() (bool, error) {
		for n := range 4 {
			p.cut(fmt.Sprint("child-", n))
		}
		select {
		case <-done:
			return true, nil
		default:
			return false, nil
		}
	})
}
