package pg_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/testkit"
)

func TestAServerIsDirect(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(testkit.EmptyDatabase(t))
	require.NoError(t, err)
	found, err := pg.FindPooler(t.Context(), config)
	require.NoError(t, err)
	require.Equal(t, pg.Direct, found)
}

// The test plays a pooler's side of the protocol, so that it runs without a pooler installed.
func TestAPoolerIsRecognised(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pool *pool
		want pg.Pooler
	}{
		"transactions, the session used last first":  {&pool{}, pg.PoolsStatement},
		"transactions, the session used first first": {&pool{oldest: true, sessions: 3}, pg.PoolsStatement},
		"sessions": {&pool{keeps: true}, pg.PoolsSessions},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := pg.FindPooler(t.Context(), c.pool.start(t))
			require.NoError(t, err)
			require.Equal(t, c.want, found)
		})
	}
}

func TestAPoolerThatRefusesAParameterIsNamed(t *testing.T) {
	t.Parallel()
	p := pool{refuses: "unsupported startup parameter: search_path"}
	_, err := pg.FindPooler(t.Context(), p.start(t))
	require.ErrorContains(t, err, "the connection goes through a pooler")
	require.ErrorContains(t, err, "search_path")
}

// OwnNames changes the sessions of a server, and no session that a pooler gives to another client later.
func TestNamesOfOtherSchemasHaveNoEffectAndAPoolersSessionIsNotChanged(t *testing.T) {
	t.Parallel()
	server, err := pgx.ParseConfig(testkit.EmptyDatabase(t))
	require.NoError(t, err)
	server.RuntimeParams["search_path"] = "theirs"
	pooled := (&pool{keeps: true}).start(t)
	pooled.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	for want, config := range map[string]*pgx.ConnConfig{"pg_catalog, pg_temp": server, `"$user", public`: pooled} {
		address.OwnNames(&config.Config)
		conn, err := pgx.ConnectConfig(t.Context(), config)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		var path string
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting('search_path')").Scan(&path))
		require.Equal(t, want, path)
	}
}

// The same with a real pgbouncer, if it is installed.
func TestPgbouncerIsRecognised(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Log("pgbouncer is not installed: TestAPoolerIsRecognised plays it")
		return
	}
	for mode, want := range map[string]pg.Pooler{
		"session": pg.PoolsSessions, "transaction": pg.PoolsStatement, "statement": pg.PoolsStatement,
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			found, err := pg.FindPooler(t.Context(), pgbouncer(t, program, mode))
			if mode == "statement" && err != nil {
				require.ErrorContains(t, err, "transaction blocks not allowed")
				return
			}
			require.NoError(t, err)
			require.Equal(t, want, found)
		})
	}
}

func pgbouncer(t *testing.T, program, mode string) *pgx.ConnConfig {
	t.Helper()
	server, err := pgx.ParseConfig(testkit.EmptyDatabase(t))
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())
	dir, err := os.MkdirTemp("", "pgbouncer") // another user must be able to read it
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	users := filepath.Join(dir, "users")
	require.NoError(t, os.WriteFile(users, []byte(fmt.Sprintf("%q %q\n", server.User, server.Password)), 0o644))
	ini := filepath.Join(dir, "pgbouncer.ini")
	require.NoError(t, os.WriteFile(ini, []byte(fmt.Sprintf(`[databases]
* = host=%s port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = plain
auth_file = %s
pool_mode = %s
`, server.Host, server.Port, port, users, mode)), 0o644))
	args := []string{ini}
	if os.Getuid() == 0 {
		args = []string{"-u", "nobody", ini}
	}
	cmd := exec.Command(program, args...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	config, err := pgx.ParseConfig(fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", server.User, server.Password, port, server.Database))
	require.NoError(t, err)
	testkit.Wait(t, "pgbouncer", func() (bool, error) {
		conn, err := pgx.ConnectConfig(context.Background(), config)
		if err != nil {
			return false, err
		}
		return true, conn.Close(context.Background())
	})
	return config
}

// A pool speaks the protocol like a pooler: it sends its own greeting, and lends a session of the server to a client, for one
// transaction or for as long as the client stays connected.
type pool struct {
	keeps    bool   // for as long as the client stays connected
	oldest   bool   // lends the session that was used longest ago
	sessions int    // opened in advance
	refuses  string // the error that every client gets

	config *pgx.ConnConfig
	mu     sync.Mutex
	free   []*pgconn.HijackedConn
}

func (p *pool) start(t *testing.T) *pgx.ConnConfig {
	t.Helper()
	server, err := pgx.ParseConfig(testkit.EmptyDatabase(t))
	require.NoError(t, err)
	p.config = server
	for range p.sessions {
		p.free = append(p.free, p.connect(t))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			clients.Go(func() {
				defer conn.Close()
				p.serve(t, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		clients.Wait()
		for _, s := range p.free {
			_ = s.Conn.Close()
		}
	})
	config := server.Copy()
	config.Host, config.Port = "127.0.0.1", uint16(listener.Addr().(*net.TCPAddr).Port)
	config.TLSConfig, config.Fallbacks = nil, nil
	return config
}

func (p *pool) connect(t *testing.T) *pgconn.HijackedConn {
	conn, err := pgconn.ConnectConfig(context.Background(), &p.config.Copy().Config)
	if err != nil {
		t.Error(err)
		return nil
	}
	session, err := conn.Hijack()
	if err != nil {
		t.Error(err)
	}
	return session
}

func (p *pool) lend(t *testing.T) *pgconn.HijackedConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return p.connect(t)
	}
	at := len(p.free) - 1
	if p.oldest {
		at = 0
	}
	session := p.free[at]
	p.free = slices.Delete(p.free, at, at+1)
	return session
}

func (p *pool) back(session *pgconn.HijackedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, session)
}

func (p *pool) serve(t *testing.T, conn net.Conn) {
	client := pgproto3.NewBackend(conn, conn)
	if _, err := client.ReceiveStartupMessage(); err != nil {
		return
	}
	if p.refuses != "" {
		client.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: p.refuses})
		_ = client.Flush()
		return
	}
	client.Send(&pgproto3.AuthenticationOk{})
	client.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	client.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	client.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}}) // not a server's: 1 is init
	client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if client.Flush() != nil {
		return
	}
	var session *pgconn.HijackedConn
	defer func() {
		if session != nil {
			_ = session.Conn.Close()
		}
	}()
	for {
		message, err := client.Receive()
		query, ok := message.(*pgproto3.Query)
		if err != nil || !ok {
			return
		}
		if session == nil {
			session = p.lend(t)
		}
		session.Frontend.Send(query)
		if session.Frontend.Flush() != nil {
			return
		}
		status, err := relayAnswer(session.Frontend, client)
		if err != nil {
			return
		}
		if status == 'I' && !p.keeps {
			p.back(session)
			session = nil
		}
		if client.Flush() != nil {
			return
		}
	}
}

// relayAnswer forwards messages up to the server's ReadyForQuery.
func relayAnswer(from *pgproto3.Frontend, to *pgproto3.Backend) (status byte, err error) {
	for {
		message, err := from.Receive()
		if err != nil {
			return 0, err
		}
		to.Send(message)
		if ready, ok := message.(*pgproto3.ReadyForQuery); ok {
			return ready.TxStatus, nil
		}
	}
}
