//go:build unix

package sidecar

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A provider is the token endpoint of an identity provider. It gives numbered tokens to the client that has its secret.
type provider struct {
	*httptest.Server
	secret atomic.Value
	given  atomic.Int64
	lasts  int // seconds; 0: the answer does not say
	// answer replaces the endpoint's own answer; nil: it does not.
	answer func(w http.ResponseWriter, r *http.Request)
}

func newProvider(t *testing.T) *provider {
	p := &provider{lasts: 3600}
	p.secret.Store("s3cr3t-first")
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.answer != nil {
			p.answer(w, r)
			return
		}
		id, secret, basic := r.BasicAuth()
		w.Header().Set("Content-Type", "application/json")
		if !basic || id != "relay" || secret != p.secret.Load() || r.FormValue("grant_type") != "client_credentials" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprintf(w, `{"error": "invalid_client", "error_description": "no client has %s"}`, secret)
			return
		}
		_, _ = fmt.Fprintf(w, `{"access_token": "token-%d-%s-%s", "token_type": "Bearer", "expires_in": %d}`,
			p.given.Add(1), r.FormValue("scope"), r.FormValue("audience"), p.lasts)
	}))
	t.Cleanup(p.Close)
	return p
}

// settings returns the settings of a relay that gets its tokens here, and its file of the secret.
func (p *provider) settings(t *testing.T, more ...string) (settings []string, secret string) {
	t.Helper()
	dir := t.TempDir()
	ca := writeFile(t, filepath.Join(dir, "ca.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})))
	secret = writeFile(t, filepath.Join(dir, "secret"), p.secret.Load().(string)+"\n")
	return append([]string{
		"OUTBOX_RELAY_KAFKA_SASL=oauthbearer", "OUTBOX_RELAY_KAFKA_TOKEN_URL=" + p.URL + "/token", "OUTBOX_RELAY_KAFKA_TOKEN_TLS_CA=" + ca,
		"OUTBOX_RELAY_KAFKA_CLIENT_ID=relay", "OUTBOX_RELAY_KAFKA_CLIENT_SECRET_FILE=" + secret,
	}, more...), secret
}

func TestTokensOfAProviderAreSharedKeptAndFetchedAgain(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	settings, _ := p.settings(t, "OUTBOX_RELAY_KAFKA_SCOPE=kafka,write", "OUTBOX_RELAY_KAFKA_AUDIENCE=broker",
		"OUTBOX_RELAY_KAFKA_SASL_EXTENSIONS=logicalCluster=lkc-1,identityPoolId=pool-1")
	m, err := mechanismOf(t, settings...)
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, sent, err := m.Authenticate(context.Background(), "broker:9092")
			if err != nil || string(sent) != "n,,\x01auth=Bearer token-1-kafka write-broker\x01identityPoolId=pool-1\x01logicalCluster=lkc-1\x01\x01" {
				t.Errorf("%q: %v", sent, err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, p.given.Load(), "one request for all connections, also for later ones")

	p.lasts = 0 // a token without a lifetime is not kept
	settings, _ = p.settings(t)
	m, err = mechanismOf(t, settings...)
	require.NoError(t, err)
	for n := range 3 {
		sent, err := first(t, m, "broker:9092")
		require.NoError(t, err)
		require.Contains(t, sent, fmt.Sprintf("token-%d-", n+2))
	}
}

func TestTheClientSecretIsReadForEachRequest(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.lasts = 0
	settings, file := p.settings(t)
	m, err := mechanismOf(t, settings...)
	require.NoError(t, err)
	_, err = first(t, m, "broker:9092")
	require.NoError(t, err)
	p.secret.Store("s3cr3t-second")
	_, err = first(t, m, "broker:9092")
	require.EqualError(t, err, "token endpoint "+p.URL+"/token: status 401 Unauthorized: invalid_client: no client has … "+
		"(the client id or its secret is wrong, or the secret has expired)")
	writeFile(t, file, "s3cr3t-second")
	_, err = first(t, m, "broker:9092")
	require.NoError(t, err)
}

func TestAProviderThatAnswersOddlyHasAClearErrorWithoutTheSecret(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the secret was sent to another address: %s", r.URL)
	}))
	t.Cleanup(elsewhere.Close)
	text := func(text string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, text)
		}
	}
	settings, _ := p.settings(t)
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		want   string
	}{
		"another address": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, "it redirects to another address, to which the secret is not sent"},
		"a large answer": {text(`{"access_token": "` + strings.Repeat("s3cr3t", 100_000) + `"}`), "more than 65536 bytes"},
		"a page":         {text("<html>s3cr3t-first"), "its answer is not a token response"},
		"no token":       {text(`{"token": "s3cr3t-first"}`), "its answer is not a token response"},
		"an error of its own": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "s3cr3t-first is broken", http.StatusBadGateway)
		}, "status 502 Bad Gateway"},
		"a refused scope": {text(`{"error": "invalid_scope", "error_description": "none\u001b[31m of s3cr3t-first"}`), "invalid_scope: none·[31m of …"},
		"the request": {text(`{"error": "invalid_request", "error_description": "Basic ` + base64.StdEncoding.EncodeToString([]byte("relay:s3cr3t-first")) +
			`, client_secret=s3cr3t-first"}`), "invalid_request: Basic …, client_secret=…"},
	} {
		p.answer = c.answer
		m, err := mechanismOf(t, settings...)
		require.NoError(t, err)
		_, err = first(t, m, "broker:9092")
		require.ErrorContains(t, err, c.want, name)
		require.ErrorContains(t, err, "token endpoint "+p.URL, name)
		require.NotContains(t, err.Error(), "s3cr3t", name)
	}
	p.Close()
	m, err := mechanismOf(t, settings...)
	require.NoError(t, err)
	_, err = first(t, m, "broker:9092")
	require.ErrorContains(t, err, "connection refused")
}

func TestAProviderNeedsTLSAndAllOfItsSettings(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	good, _ := p.settings(t)
	without := func(name string, more ...string) (settings []string) {
		for _, line := range good {
			if !strings.HasPrefix(line, "OUTBOX_RELAY_KAFKA_"+name) {
				settings = append(settings, line)
			}
		}
		return append(settings, more...)
	}
	for want, settings := range map[string][]string{
		"plain http to another machine":                        without("TOKEN_URL", "OUTBOX_RELAY_KAFKA_TOKEN_URL=http://login.example/token"),
		"kafka-token-url (from OUTBOX_RELAY_KAFKA_TOKEN_URL)":  without("TOKEN_URL", "OUTBOX_RELAY_KAFKA_TOKEN_URL=https://u:s3cr3t@login.example"),
		"kafka-client-id is not set":                           without("CLIENT_ID"),
		"kafka-client-secret is not set":                       without("CLIENT_SECRET"),
		"kafka-token-url (from OUTBOX_RELAY_KAFKA_TOKEN_URL):": without("X", "OUTBOX_RELAY_KAFKA_TOKEN=s3cr3t"),
		"kafka-sasl-extensions":                                without("X", "OUTBOX_RELAY_KAFKA_SASL_EXTENSIONS=auth=x"),
		"kafka-token is not set":                               {"OUTBOX_RELAY_KAFKA_SASL=oauthbearer"},
	} {
		_, err := mechanismOf(t, settings...)
		if strings.HasSuffix(want, ":") {
			want = "set one of them"
		}
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "s3cr3t")
	}
	// A certificate of another authority is refused.
	m, err := mechanismOf(t, without("TOKEN_TLS_CA")...)
	require.NoError(t, err)
	_, err = first(t, m, "broker:9092")
	require.ErrorContains(t, err, "certificate")
	// This machine may be reached without TLS.
	_, err = mechanismOf(t, without("TOKEN_URL", "OUTBOX_RELAY_KAFKA_TOKEN_URL=http://127.0.0.1:8080/token")...)
	require.NoError(t, err)
}

// A server that speaks no HTTP may send back the request, and package net/http quotes an answer that it cannot read.
func TestAnErrorOfATokenEndpointThatSpeaksNoHTTPDoesNotRepeatTheSecret(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.answer = func(w http.ResponseWriter, r *http.Request) {
		said := r.Header.Get("Authorization") + r.FormValue("client_secret")
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\n\r\n", said)
	}
	settings, _ := p.settings(t)
	m, err := mechanismOf(t, settings...)
	require.NoError(t, err)
	_, _, err = m.Authenticate(t.Context(), "broker:9092")
	require.ErrorContains(t, err, "malformed HTTP")
	require.NotContains(t, err.Error(), base64.StdEncoding.EncodeToString([]byte("relay:s3cr3t-first")))
	require.NotContains(t, err.Error(), "s3cr3t")
}
