//go:build unix

package sidecar_test

import (
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/schemas"
	"github.com/troupe-go/troupe/testkit"
)

// TestAnAmbassadorReadsItsAddressesAgainAtSIGHUP starts it with a password that the registry refuses, and with a webhook that is
// away. Both are replaced while a command and an alert wait.
func TestAnAmbassadorReadsItsAddressesAgainAtSIGHUP(t *testing.T) {
	t.Parallel()
	fake := srfake.New()
	t.Cleanup(fake.Close)
	open, err := schemas.NewRegistry(fake.URL())
	require.NoError(t, err)
	id, err := open.Register(t.Context(), "CreatePackage", `{"type":"record","name":"CreatePackage","fields":[{"name":"package","type":"string"}]}`)
	require.NoError(t, err)
	behind, err := url.Parse(fake.URL())
	require.NoError(t, err)
	passes := httputil.NewSingleHostReverseProxy(behind)
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, given, _ := r.BasicAuth(); given != marked+"-second" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		passes.ServeHTTP(w, r)
	}))
	t.Cleanup(guarded.Close)
	at := func(password string) string {
		return strings.Replace(guarded.URL, "http://", "http://troupe:"+password+"@", 1)
	}
	told := make(chan string, 10)
	chat := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		told <- string(body)
	}))
	t.Cleanup(chat.Close)

	registryFile, webhookFile := filepath.Join(t.TempDir(), "registry"), filepath.Join(t.TempDir(), "webhook")
	replace(t, registryFile, at(marked+"-first"))
	replace(t, webhookFile, "http://127.0.0.1:1/"+marked)
	posted := make(chan string, 10)
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posted <- string(body)
		w.WriteHeader(http.StatusNoContent)
	}, "retry-attempts: 1000", "retry-initial: 1ms", "retry-cap: 50ms", "registry-file: "+registryFile, "alert-url-file: "+webhookFile)
	p := h.start()
	client, err := kafka.NewClient(h.brokers)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	send := func(key string, payload []byte) {
		require.NoError(t, client.ProduceSync(t.Context(), kafka.Record(envelope.Message{
			Topic: h.hop.Commands(), Key: []byte(key), Payload: payload, ID: envelope.NewID(), Type: "CreatePackage", ContentType: envelope.Avro, Source: "test",
		})).FirstErr())
	}
	send("p-1", append(binary.BigEndian.AppendUint32([]byte{0}, id), "\x06p-1"...))
	send("p-2", []byte{0})
	testkit.Wait(t, "a held command, and a dead letter", func() (bool, error) {
		return h.count("SELECT count(*) FROM troupe.held") == 1 && h.count("SELECT count(*) FROM troupe.dead_letters") == 1, nil
	})
	reloads := func(line string, n int) {
		t.Helper()
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
		testkit.Wait(t, line, func() (bool, error) { return strings.Count(p.logs(), line) == n, nil })
	}

	// A mistake in one of them changes neither.
	replace(t, registryFile, at(marked+"-second"))
	replace(t, webhookFile, "ftp://"+marked)
	reloads("reload: refused", 1)
	require.Empty(t, posted)
	replace(t, webhookFile, chat.URL+"/"+marked)
	reloads("reload: done", 1)
	require.Contains(t, <-posted, "p-1")
	require.Contains(t, <-told, "dead letter")

	replace(t, registryFile, "http://troupe:"+marked+"@registry.example")
	reloads("reload: refused", 2)
	require.Zero(t, p.terminate(), p.logs())
	require.NotContains(t, p.logs(), marked)
}
