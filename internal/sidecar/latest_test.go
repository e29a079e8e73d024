//go:build unix

package sidecar_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// Every secret that an ambassador shows to its service, or wants from a client, is replaced in its file while the ambassador runs.
func TestAnAmbassadorUsesNewTokensAndKeysWithoutARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		replace(t, path, text)
		return path
	}
	const first, second = "the-first-token-of-all", "the-second-token-of-all"
	key := func(text string) string {
		return base64.StdEncoding.EncodeToString([]byte(text + "-of-a-signature-here"))
	}
	admin, outbox, service, signing := file("admin", first), file("outbox", first), file("service", first), file("signing", key("first"))
	type request struct {
		http.Header
		body []byte
	}
	var seen atomic.Pointer[request]
	h := newHouse(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen.Store(&request{r.Header.Clone(), body})
	}, "admin-token-file: "+admin, "outbox: "+anyPort, "outbox-token-file: "+outbox, "service-token-file: "+service,
		"signature: github", "signing-secret-file: "+signing)
	p := h.start()
	ask := func(method, url, token string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		return response.StatusCode
	}
	metrics, posted := "http://"+p.admin+"/metrics", "http://"+p.address("outbox")+"/outbox"
	require.Equal(t, http.StatusOK, ask(http.MethodGet, metrics, first))
	require.NotEqual(t, http.StatusUnauthorized, ask(http.MethodPost, posted, first))
	n := 0
	sent := func() request {
		t.Helper()
		seen.Store(nil)
		n++
		h.send(fmt.Sprintf("p-%d", n))
		testkit.Wait(t, "the request", func() (bool, error) { return seen.Load() != nil, nil })
		return *seen.Load()
	}
	require.Equal(t, "Bearer "+first, sent().Get("Authorization"))

	isSigned := func(r request, secret string) bool {
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = mac.Write(r.body)
		return r.Get("X-Hub-Signature-256") == "sha256="+hex.EncodeToString(mac.Sum(nil))
	}
	require.True(t, isSigned(sent(), key("first")))
	file("signing", key("second"))
	testkit.Wait(t, "the new signature", func() (bool, error) { return isSigned(sent(), key("second")), nil })
	file("service", second)
	testkit.Wait(t, "the new token at the service", func() (bool, error) { return sent().Get("Authorization") == "Bearer "+second, nil })
	file("admin", "short") // is not taken
	file("outbox", second)
	testkit.Wait(t, "the new token at POST /outbox", func() (bool, error) {
		return ask(http.MethodPost, posted, second) != http.StatusUnauthorized, nil
	})
	require.Equal(t, http.StatusUnauthorized, ask(http.MethodPost, posted, first))
	require.Equal(t, http.StatusOK, ask(http.MethodGet, metrics, first))
	file("admin", second)
	testkit.Wait(t, "the old token to be refused", func() (bool, error) { return ask(http.MethodGet, metrics, first) != http.StatusOK, nil })
	require.Equal(t, 0, p.terminate())
}
