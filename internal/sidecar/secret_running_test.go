//go:build unix

package sidecar_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// echo answers every request with the status, and with everything that the request has.
func echo(t *testing.T, status int, requests *atomic.Int64) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(status)
		_, _ = fmt.Fprintln(w, r.URL, user, password, r.Header, string(body))
		requests.Add(1)
	}))
	t.Cleanup(s.Close)
	return s
}

// reads requests paths of an address without a token, with a wrong one and with the right one, and returns all answers.
func reads(t *testing.T, address string, right string, paths ...string) (all string) {
	for _, path := range paths {
		for _, header := range []string{"", "Bearer a wrong token of a test", "Bearer " + right} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(`{"topic":"x"}`))
				require.NoError(t, err)
				r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {header}}
				client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
				response, err := client.Do(r)
				require.NoError(t, err)
				text, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				all += fmt.Sprintln(path, response.StatusCode, response.Header, string(text))
			}
		}
	}
	return all
}

// crash ends the process as a crash does, with the stacks of all goroutines, and returns its log.
func (p *process) crash() string {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGQUIT))
	<-p.ended
	require.Contains(p.t, p.logs(), "goroutine ")
	return p.logs()
}

// TestNoSecretOfARunningAmbassadorIsShown gives an ambassador every secret, with servers that refuse each request and repeat it, and
// searches for the secrets in its log, its answers, its dead letter and its crash.
func TestNoSecretOfARunningAmbassadorIsShown(t *testing.T) {
	t.Parallel()
	const secret = marked + "-0123456789abcdef"
	const signing = "czNjcjN0LWEgc2VjcmV0IG9mIGEgc2lnbmF0dXJl" // base64 of s3cr3t-a secret of a signature
	var alerts, registered, served atomic.Int64
	service, chat, registry := echo(t, http.StatusBadRequest, &served), echo(t, http.StatusInternalServerError, &alerts), echo(t, http.StatusUnauthorized, &registered)
	h := newHouse(t, func(http.ResponseWriter, *http.Request) {},
		"retry-400: true", "retry-attempts: 2", "retry-initial: 1ms", "retry-cap: 2ms", "log-level: debug",
		"alert-url: "+chat.URL+"/hooks/"+secret+"?token="+secret, "registry: "+strings.Replace(registry.URL, "://", "://u:"+secret+"@", 1),
		"service-token: "+secret, "signature: standard-webhooks", "signing-secret: "+signing, "outbox: "+anyPort, "outbox-token: "+secret, "admin-token: "+secret)
	p := h.start("--service-url", service.URL)
	h.send("p-1")
	testkit.Wait(t, "the dead letter and the alert", func() (bool, error) {
		return h.count("SELECT count(*) FROM troupe.dead_letters") == 1 && alerts.Load() > 0 && served.Load() > 1, nil
	})
	all := reads(t, p.admin, secret, "/readyz", "/metrics", "/livez", "/nothing") + reads(t, p.address("outbox"), secret, "/outbox", "/nothing")
	var stored string
	require.NoError(t, h.pool.QueryRow(t.Context(), `SELECT string_agg(l::text, E'\n') || (SELECT string_agg(o::text, E'\n') FROM troupe.outbox AS o)
		FROM troupe.dead_letters AS l`).Scan(&stored))
	all += stored + p.crash()
	for _, text := range []string{marked, signing, "of-a-test"} {
		require.NotContains(t, all, text)
	}
}

// TestNoSecretOfARunningRelayIsShown gives a relay every secret, with a webhook and a registry that refuse each request and repeat it,
// and searches for the secrets in its log, the answers of its admin port, its failed rows and its crash.
func TestNoSecretOfARunningRelayIsShown(t *testing.T) {
	t.Parallel()
	const secret = marked + "-0123456789abcdef"
	var alerts, registered atomic.Int64
	chat, registry := echo(t, http.StatusInternalServerError, &alerts), echo(t, http.StatusUnauthorized, &registered)
	environ, conn, topic := site(t)
	insert(t, conn, topic, "k")
	refused, waits, _ := site(t) // by the broker
	insert(t, waits, topic, "k")
	parks, parked, _ := site(t)
	insert(t, parked, topic+"-none", "k")
	file := configFile(t, fmt.Sprintf(`
log-level: debug
admin: %s
admin-token: %s
alert-url: %s/hooks/%s?token=%s
outboxes:
  - {name: shop, database-url: %q, brokers: %s, registry: %q, avro-topics: ["*.commands"]}
  - {name: parks, database-url: %q, brokers: %s, unknown-topic: 1ms}
  - {name: scram, database-url: %q, brokers: %s, kafka-sasl: scram-sha-512, kafka-user: relay, kafka-password: %s}
`, anyPort, secret, chat.URL, secret, secret, variable(environ, "DATABASE_URL"), variable(environ, "KAFKA_BROKERS"),
		strings.Replace(registry.URL, "://", "://u:"+secret+"@", 1), variable(parks, "DATABASE_URL"), variable(environ, "KAFKA_BROKERS"),
		variable(refused, "DATABASE_URL"), variable(environ, "KAFKA_BROKERS"), secret))
	p := launch(t, nil, "run", "--config", file)
	testkit.Wait(t, "the alert, and a request to the registry", func() (bool, error) {
		return alerts.Load() > 0 && registered.Load() > 0 && strings.Contains(p.logs(), "publish: failed"), nil
	})
	all := reads(t, p.admin, secret, "/readyz", "/livez", "/metrics", "/status", "/parked", "/parked?outbox=shop", "/pause?outbox=nothing", "/nothing")
	var stored string
	require.NoError(t, parked.QueryRow(t.Context(), "SELECT string_agg(f::text, E'\\n') FROM troupe.outbox_failures AS f").Scan(&stored))
	all += stored + p.crash()
	for _, text := range []string{marked, "of-a-test"} {
		require.NotContains(t, all, text)
	}
}
