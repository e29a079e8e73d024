//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/testkit"
)

// pooled returns a database URL that reaches a pooler: on every connection it greets as process 1, and is process 2.
func pooled(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go pool(conn)
		}
	}()
	return "postgres://shop:s3cr3t@" + listener.Addr().String() + "/shop?sslmode=disable"
}

func pool(conn net.Conn) {
	defer conn.Close()
	b := pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	b.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	b.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for b.Flush() == nil {
		message, err := b.Receive()
		query, ok := message.(*pgproto3.Query)
		if err != nil || !ok {
			return
		}
		if strings.Contains(query.String, "pg_backend_pid") {
			b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("pg_backend_pid"), DataTypeOID: 23, DataTypeSize: 4}}})
			b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte("2")}})
		}
		b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	}
}

func TestARelayBehindAPoolerIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	environ := []string{"DATABASE_URL=" + pooled(t), "KAFKA_BROKERS=127.0.0.1:1", "OUTBOX_RELAY_ADMIN=127.0.0.1:0"}
	r := run(t, environ, "run")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "the connection goes through a pooler in transaction mode")
	require.Contains(t, r.stderr, "connect to the server itself")
	require.NotContains(t, r.stderr, "s3cr3t")

	f, code := check(t, environ[:2])
	require.Equal(t, 1, code)
	require.Equal(t, "failure", f.level("pooler"))
}

func variable(environ []string, name string) string {
	for _, line := range environ {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return value
		}
	}
	return ""
}

func TestOneProcessServesSeveralOutboxes(t *testing.T) {
	t.Parallel()
	environ, shop, shopTopic := site(t)
	others, bank, bankTopic := site(t)
	path := configFile(t, fmt.Sprintf(`
brokers: %q
outboxes:
  - name: broken
    database-url: %q
  - name: shop
    database-url: %q
  - name: bank
    service: bank-of-it
`, variable(environ, "KAFKA_BROKERS"), pooled(t), variable(environ, "DATABASE_URL")))
	p := start(t, []string{"OUTBOX_RELAY_BANK__DATABASE_URL=" + variable(others, "DATABASE_URL")}, "--config", path)
	insert(t, shop, shopTopic, "s-1")
	insert(t, bank, bankTopic, "b-1")
	for topic, source := range map[string]string{shopTopic: shop.Config().Database, bankTopic: "bank-of-it"} {
		m, err := kafka.Message(testkit.Consume(t, testkit.Kafka(t), topic).WaitN(1)[0])
		require.NoError(t, err)
		require.Equal(t, source, m.Source)
	}

	var h struct {
		OK       bool
		Reason   string
		Outboxes []struct {
			Outbox string
			OK     bool
			Reason string
		}
	}
	testkit.Wait(t, "one not ready", func() (bool, error) {
		code, body, err := p.get("/readyz")
		if err != nil || code != http.StatusServiceUnavailable {
			return false, err
		}
		require.NoError(t, json.Unmarshal([]byte(body), &h))
		return strings.Contains(h.Reason, "transaction mode") && h.Outboxes[1].OK && h.Outboxes[2].OK, nil
	})
	require.Regexp(t, "^broken: the connection goes through a pooler", h.Reason, "it says which one")
	require.False(t, h.Outboxes[0].OK)
	for name, want := range map[string]int{"broken": 503, "shop": 200, "bank": 200, "none": 404} {
		code, _, err := p.get("/readyz?outbox=" + name)
		require.NoError(t, err)
		require.Equal(t, want, code, name)
	}
	testkit.Wait(t, "the metrics", func() (bool, error) { // a row is counted after it is visible on its topic
		_, metrics, err := p.get("/metrics")
		for _, line := range []string{
			`outbox_relay_ready{outbox="broken"} 0`, `outbox_relay_ready{outbox="shop"} 1`,
			`outbox_relay_rows_published_total{outbox="shop"} 1`, `outbox_relay_rows_published_total{outbox="bank"} 1`,
			`outbox_relay_publish_seconds_count{outbox="bank"} 1`,
		} {
			if err == nil && !strings.Contains(metrics, line) {
				err = &missing{line, metrics}
			}
		}
		return err == nil, err
	})

	r := run(t, environ[1:], "status", "--config", path)
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "say which with --outbox: broken, shop, bank")
	r = run(t, nil, "status", "--config", path, "--outbox", "shop")
	require.Equal(t, 0, r.code, r.stderr)
	require.Contains(t, r.stdout, shop.Config().Database)
	require.Equal(t, 0, p.terminate())
	require.NotContains(t, p.logs(), "s3cr3t")
}

func TestAReloadChangesWhatCanChangeAndNamesWhatCannot(t *testing.T) {
	t.Parallel()
	environ, shop, shopTopic := site(t)
	others, bank, bankTopic := site(t)
	path := configFile(t, "")
	write := func(text string) {
		if !strings.HasPrefix(text, "admin") {
			text = "admin: " + anyPort + "\n" + text
		}
		require.NoError(t, os.WriteFile(path, []byte("brokers: "+variable(environ, "KAFKA_BROKERS")+"\n"+text), 0o600))
	}
	entry := func(name string, environ []string, more string) string {
		return fmt.Sprintf("  - {name: %s, database-url: %q%s}\n", name, variable(environ, "DATABASE_URL"), more)
	}
	write("outboxes:\n" + entry("shop", environ, ""))
	p := launch(t, nil, "run", "--config", path)
	p.waitReady(http.StatusOK)
	insert(t, shop, shopTopic, "s-1")
	consumer := testkit.Consume(t, testkit.Kafka(t), shopTopic, bankTopic)
	consumer.WaitN(1)
	reload := func(log ...string) {
		t.Helper()
		before := len(p.logs())
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
		testkit.Wait(t, "the reload", func() (bool, error) {
			said := p.logs()[before:]
			for _, want := range log {
				if !strings.Contains(said, want) {
					return false, &missing{want, said}
				}
			}
			return true, nil
		})
	}

	write("admin: 127.0.0.1:1\nlog-level: debug\noutboxes:\n" + entry("shop", environ, ", batch: 7") + entry("bank", others, ""))
	reload(`"changed":["batch"]`, `"setting":"admin"`, "cannot change while running", `"outboxes":2`, `"log_level":"debug"`, "reload: done")
	insert(t, shop, shopTopic, "s-2")
	insert(t, bank, bankTopic, "b-1")
	consumer.WaitN(3)
	testkit.Wait(t, "the counts go on", func() (bool, error) {
		_, body, err := p.get("/metrics")
		return strings.Contains(body, `outbox_relay_rows_published_total{outbox="shop"} 2`), err
	})

	term := func() string {
		_, body, err := p.get("/metrics")
		require.NoError(t, err)
		for line := range strings.SplitSeq(body, "\n") {
			if strings.HasPrefix(line, `outbox_relay_lease_term{outbox="shop"}`) {
				return line
			}
		}
		return ""
	}
	before := term()
	for text, reason := range map[string]string{
		"outboxes:\n" + entry("shop", environ, ", batch: 0"):    "batch",
		"outboxes:\n" + entry("shop", environ, ", lease: 10ms"): "lease 10ms",
		"outboxes: [": "config " + path,
		"outboxes:\n" + entry("shop", environ, "") + "  - {name: bank}":                                    "database-url is not set for outbox bank",
		"outboxes:\n" + entry("shop", environ, ", database-password: 's3cr3t', database-password-file: a"): "set one of them",
	} {
		write(text)
		reload("reload: refused; everything stays as it was", reason)
	}
	require.Equal(t, before, term(), "no relay was touched")

	write("outboxes:\n" + entry("shop", environ, ", batch: 7"))
	reload("reload: done", `"outboxes":1`)
	code, _, err := p.get("/readyz?outbox=bank")
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, code)
	require.Equal(t, before, term(), "what did not change was not touched")
	insert(t, shop, shopTopic, "s-3")
	consumer.WaitN(4)
	require.Equal(t, 0, p.terminate())
	require.NotContains(t, p.logs(), "s3cr3t")
	require.NotContains(t, p.logs(), shop.Config().Password)
}

// Under another name the outbox is the same table: a reload that renames it neither ends its pause nor begins its counts again.
func TestARenamedOutboxStaysPaused(t *testing.T) {
	t.Parallel()
	environ, conn, topic := site(t)
	write := func(path, name string) {
		require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "brokers: %s\noutboxes:\n  - {name: %s, database-url: %q}\n",
			variable(environ, "KAFKA_BROKERS"), name, variable(environ, "DATABASE_URL")), 0o600))
	}
	path := configFile(t, "")
	write(path, "shop")
	p := start(t, nil, "--admin-token-file", tokenFile(t), "--config", path)
	p.waitReady(http.StatusOK)
	insert(t, conn, topic, "k")
	consumer := testkit.Consume(t, testkit.Kafka(t), topic)
	consumer.WaitN(1)
	code, _ := p.ask("POST", "/pause", token, "")
	require.Equal(t, http.StatusOK, code)

	write(path, "store")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	testkit.Wait(t, "the reload", func() (bool, error) { return strings.Contains(p.logs(), "reload: done"), nil })
	testkit.Wait(t, "the new relay's lease", func() (bool, error) {
		_, metrics := p.ask("GET", "/metrics", token, "")
		return strings.Contains(metrics, `outbox_relay_lease_term{outbox="store"} 2`), nil
	})
	_, text := p.ask("GET", "/status", token, "")
	require.Contains(t, text, "paused_since")
	code, _ = p.ask("POST", "/resume?outbox=store", token, "")
	require.Equal(t, http.StatusOK, code)
	insert(t, conn, topic, "k")
	consumer.WaitN(2)
	p.waitReady(http.StatusOK)
}

// A reload gives a table another name, and its former name to another table. The pause stays with the table. It is the same when two tables
// swap their names.
func TestAPauseStaysWithItsTableWhenNamesMove(t *testing.T) {
	t.Parallel()
	first, _, _ := site(t)
	second, _, _ := site(t)
	path := configFile(t, "")
	write := func(entries ...string) {
		require.NoError(t, os.WriteFile(path, []byte("brokers: "+variable(first, "KAFKA_BROKERS")+"\noutboxes:\n"+strings.Join(entries, "")), 0o600))
	}
	entry := func(name string, environ []string) string {
		return fmt.Sprintf("  - {name: %s, database-url: %q}\n", name, variable(environ, "DATABASE_URL"))
	}
	write(entry("a", first))
	p := start(t, nil, "--admin-token-file", tokenFile(t), "--config", path)
	p.waitReady(http.StatusOK)
	code, _ := p.ask("POST", "/pause", token, "")
	require.Equal(t, http.StatusOK, code)
	reload := func(times int, entries ...string) {
		t.Helper()
		write(entries...)
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
		testkit.Wait(t, "the reload", func() (bool, error) { return strings.Count(p.logs(), "reload: done") == times, nil })
	}
	paused := func(name string) bool {
		t.Helper()
		code, text := p.ask("GET", "/status?outbox="+name, token, "")
		require.Equal(t, http.StatusOK, code, text)
		return strings.Contains(text, "paused_since")
	}
	reload(1, entry("c", first), entry("a", second))
	require.True(t, paused("c"), "the table keeps its pause")
	require.False(t, paused("a"), "the other table was never paused")
	reload(2, entry("c", second), entry("a", first))
	require.True(t, paused("a"), "the table keeps its pause")
	require.False(t, paused("c"), "the other table was never paused")
}
