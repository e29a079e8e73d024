//go:build unix

package sidecar

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/testkit"
)

// A buffer can be written and read concurrently.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// program runs one command to its end.
func program(t *testing.T, environ []string, args ...string) (code int, out string) {
	t.Helper()
	var b buffer
	code = Program{Args: args, Stdout: &b, Stderr: &b, Environ: environ}.Main(t.Context())
	return code, b.String()
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	require.NoError(t, err)
	writeFile(t, to, string(b))
}

// encryptedPostgres accepts only clients with a certificate of the authority.
func encryptedPostgres(t *testing.T, ca *authority) (url string) {
	t.Helper()
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{Log: testkit.Logger(t)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	conn, err := pgx.Connect(t.Context(), server.SocketURL(""))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var data, hba string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting('data_directory'), current_setting('hba_file')").Scan(&data, &hba))
	owner, err := os.Stat(data)
	require.NoError(t, err)
	uid := int(owner.Sys().(*syscall.Stat_t).Uid)
	own := func(path string) { require.NoError(t, os.Chown(path, uid, -1)) }
	own(ca.write(t, data))
	cert, key := ca.issue(t, data, "server", "db.test")
	own(cert)
	own(key)
	before, err := os.ReadFile(hba)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(hba, append([]byte("hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\nhost all all 127.0.0.1/32 reject\n"), before...), 0o600))
	for name, value := range map[string]string{"ssl_ca_file": "ca.pem", "ssl_cert_file": "server.pem", "ssl_key_file": "server.key", "ssl": "on"} {
		_, err := conn.Exec(t.Context(), fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", name, value))
		require.NoError(t, err)
	}
	_, err = conn.Exec(t.Context(), "SELECT pg_reload_conf()")
	require.NoError(t, err)
	testkit.Wait(t, "ssl", func() (on bool, err error) {
		err = conn.QueryRow(t.Context(), "SELECT current_setting('ssl')::bool").Scan(&on)
		return on, err
	})
	return server.URL("")
}

// encryptedKafka starts a broker with TLS and users.
func encryptedKafka(t *testing.T, ca *authority, more ...kfake.Opt) (cluster *kfake.Cluster, address string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(ca.issue(t, t.TempDir(), "broker", "127.0.0.1"))
	require.NoError(t, err)
	cluster, err = kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(1), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}), kfake.SeedTopics(1, "a.b.commands"),
	}, more...)...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster, strings.Join(cluster.ListenAddrs(), ",")
}

var users = []kfake.Opt{
	kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", "s3cr3t-plain"),
	kfake.Superuser("SCRAM-SHA-256", "relay", "s3cr3t-256"), kfake.Superuser("SCRAM-SHA-512", "relay", "s3cr3t-512"),
}

// The relay starts with a client certificate that the database does not accept and a password that the broker does not accept.
// Both are corrected on disk while it runs.
func TestTLSToBothSidesWithFilesThatChange(t *testing.T) {
	t.Parallel()
	ca, foreign := newAuthority(t), newAuthority(t)
	url := encryptedPostgres(t, ca)
	_, brokers := encryptedKafka(t, ca, users...)
	dir, good, bad := t.TempDir(), t.TempDir(), t.TempDir()
	ca.write(t, dir)
	foreign.issue(t, bad, "client", "relay")
	ca.issue(t, good, "client", "relay")
	use := func(from string) {
		for _, name := range []string{"client.pem", "client.key"} {
			copyFile(t, filepath.Join(from, name), filepath.Join(dir, name))
		}
	}
	use(good)
	path := writeFile(t, filepath.Join(dir, "relay.yaml"), fmt.Sprintf(`
admin: 127.0.0.1:0
brokers: %s
service: shop
database-url: %q
database-tls-ca: %[3]s/ca.pem
database-tls-cert: %[3]s/client.pem
database-tls-key: %[3]s/client.key
database-tls-server-name: db.test
kafka-tls-ca: %[3]s/ca.pem
kafka-sasl: scram-sha-512
kafka-user: relay
kafka-password-file: %[3]s/password
interval: 50ms
`, brokers, url, dir))
	writeFile(t, filepath.Join(dir, "password"), "s3cr3t-512\n")
	environ := []string{configVar(relayProgram) + "=" + path}
	code, out := program(t, environ, "migrate")
	require.Equal(t, 0, code, out)
	code, out = program(t, environ, "check")
	require.Equal(t, 0, code, out)
	code, out = program(t, environ, "parked", "list")
	require.Equal(t, 0, code, out)

	code, out = program(t, environ, "status", "--database-tls-server-name", "another.test")
	require.Equal(t, 1, code)
	require.Contains(t, out, "certificate is valid for db.test, not another.test")
	other := foreign.write(t, bad)
	code, out = program(t, environ, "status", "--database-tls-ca", other)
	require.Equal(t, 1, code)
	require.Contains(t, out, "certificate signed by unknown authority")
	code, out = program(t, environ, "check", "--kafka-tls-ca", other)
	require.Equal(t, 1, code)
	require.Contains(t, out, "certificate signed by unknown authority")

	use(bad)
	writeFile(t, filepath.Join(dir, "password"), "s3cr3t-wrong\n")
	var logs buffer
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- Program{Args: []string{"run"}, Stdout: &logs, Stderr: &logs, Environ: environ}.Main(ctx)
	}()
	defer func() {
		stop()
		require.Equal(t, 0, <-ended, logs.String())
		require.NotContains(t, logs.String(), "s3cr3t")
		if t.Failed() {
			t.Log(logs.String())
		}
	}()
	logged := func(what string) {
		t.Helper()
		testkit.Wait(t, what, func() (bool, error) { return strings.Contains(logs.String(), what), nil })
	}
	logged(`"message":"database: failed`) // the server's reason, or only a closed connection: its alert may come after our write
	use(good)
	logged("database: works again")
	logged(`"message":"active"`)

	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	plan, err := planned(t, mustRead(t, path))
	require.NoError(t, err)
	config.TLSConfig, config.Fallbacks = plan.outboxes[0].database.ConnConfig.TLSConfig, nil
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ('a.b.commands', 'k', 'T', '{}')")
	require.NoError(t, err)
	logged("publish: failed, trying on")
	writeFile(t, filepath.Join(dir, "password"), "s3cr3t-512\n")
	testkit.Wait(t, "an empty outbox", func() (empty bool, err error) {
		err = conn.QueryRow(t.Context(), "SELECT NOT EXISTS (SELECT FROM troupe.outbox)").Scan(&empty)
		return empty, err
	})
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// client makes a client with the options that the environment gives.
func client(t *testing.T, environ ...string) *kadm.Client {
	t.Helper()
	p, err := planned(t, "database-url: postgres://h/d\n", environ...)
	require.NoError(t, err)
	return clientOf(t, p)
}

func clientOf(t *testing.T, p plan) *kadm.Client {
	t.Helper()
	c, err := kgo.NewClient(append(p.outboxes[0].relay.Kafka, kgo.SeedBrokers(p.outboxes[0].relay.Brokers...))...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return kadm.NewClient(c)
}

func TestEachMechanismSaysWhoWeAre(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	_, brokers := encryptedKafka(t, ca, users...)
	environ := []string{"KAFKA_BROKERS=" + brokers, "OUTBOX_RELAY_KAFKA_TLS_CA=" + ca.write(t, t.TempDir()), "OUTBOX_RELAY_KAFKA_USER=relay"}
	for mechanism, password := range map[string]string{
		"plain": "s3cr3t-plain", "scram-sha-256": "s3cr3t-256", "scram-sha-512": "s3cr3t-512",
	} {
		with := append([]string{"OUTBOX_RELAY_KAFKA_SASL=" + mechanism}, environ...)
		_, err := client(t, append(with, "OUTBOX_RELAY_KAFKA_PASSWORD="+password)...).ListTopics(t.Context())
		require.NoError(t, err, mechanism)
		_, err = client(t, append(with, "OUTBOX_RELAY_KAFKA_PASSWORD=s3cr3t-none")...).ListTopics(t.Context())
		require.Error(t, err, mechanism) // Kafka answers SASL_AUTHENTICATION_FAILED, this broker closes the connection
		require.NotContains(t, err.Error(), "s3cr3t")
	}
}

// The broker of these tests does not support OAUTHBEARER, so the test examines the bytes that the client sends.
func TestATokenIsReadForEachConnection(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cluster, brokers := encryptedKafka(t, ca)
	sent := make(chan string, 10)
	cluster.ControlKey(17, func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		sent <- r.(*kmsg.SASLHandshakeRequest).Mechanism
		return r.ResponseKind(), nil, true
	})
	cluster.ControlKey(36, func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		sent <- string(r.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes)
		return r.ResponseKind(), nil, true
	})
	dir := t.TempDir()
	token := writeFile(t, filepath.Join(dir, "token"), "one")
	p, err := planned(t, "database-url: postgres://h/d\n", "KAFKA_BROKERS="+brokers, "OUTBOX_RELAY_KAFKA_TLS_CA="+ca.write(t, dir),
		"OUTBOX_RELAY_KAFKA_SASL=oauthbearer", "OUTBOX_RELAY_KAFKA_TOKEN_FILE="+token)
	require.NoError(t, err)
	_, err = clientOf(t, p).ListTopics(t.Context())
	require.NoError(t, err)
	require.Equal(t, "OAUTHBEARER", <-sent)
	require.Contains(t, <-sent, "auth=Bearer one\x01")

	writeFile(t, token, "two")
	for len(sent) > 0 {
		<-sent
	}
	_, err = clientOf(t, p).ListTopics(t.Context())
	require.NoError(t, err)
	require.Equal(t, "OAUTHBEARER", <-sent)
	require.Contains(t, <-sent, "auth=Bearer two\x01")
}
