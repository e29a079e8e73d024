package sidecar_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/grants"
	"github.com/troupe-go/troupe/internal/grants/grantstest"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

const parcels = `{"saga":"parcel","version":1,"key":"parcel","data":{"parcel":"string","grams":"int","label":"string"},
"steps":[{"name":"pack","command":{"hop":"package","type":"CreatePackage","input":{"grams":"data.grams"}},
"success":[{"event":"CreatePackageDone","set":{"label":"event.label"}}],
"failure":[{"event":"CreatePackageRefused","reason":"event.reason"}],"timeout":"1h","irreversible":"the box is used again"}]}`

// TestAServiceStartsASagaOverHTTPAndWaitsForItsEnd has a service that speaks only HTTP: it starts sagas, waits for their end, and does
// their step. The ambassador's role has the rights of its parts, and no more.
func TestAServiceStartsASagaOverHTTPAndWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	file := filepath.Join(t.TempDir(), "parcel.saga.json")
	require.NoError(t, os.WriteFile(file, []byte(parcels), 0o600))
	h := newHouse(t, func(w http.ResponseWriter, r *http.Request) {
		var order struct{ Grams int }
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &order)
		if order.Grams > 1000 {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"reason": "too heavy"}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"label": "%d g"}`, order.Grams)
	}, "outbox: "+anyPort, "outbox-token: '"+token+"'", "sagas: ["+file+"]")
	text, err := os.ReadFile(h.file)
	require.NoError(t, err)
	role := grantstest.New(t, h.pool, grants.Ambassador, grants.Sagas).URL()
	require.NoError(t, os.WriteFile(h.file, []byte(strings.Replace(string(text), h.url, role, 1)), 0o600))

	ctx, stop := context.WithCancel(context.Background())
	published, err := relay.New(relay.Config{Source: relay.Poll, Pool: h.pool, Brokers: h.brokers, Service: "package", Log: testkit.Logger(t)})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- published.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-done) })

	p := h.start()
	address := p.address("outbox")
	ask := func(method, path, body, token string) (status int, got map[string]any) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + token}, "Prefer": {"wait=30"}}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Do(r)
		require.NoError(t, err)
		defer func() { require.NoError(t, response.Body.Close()) }()
		require.NoError(t, json.NewDecoder(response.Body).Decode(&got))
		return response.StatusCode, got
	}
	status, _ := ask("POST", "/sagas/parcel/p-1", `{"grams": 200}`, "another-token-of-16")
	require.Equal(t, http.StatusUnauthorized, status)
	ended := func(key, body string) (got map[string]any) {
		testkit.Wait(t, key+" to end", func() (bool, error) { // a wait may end before the saga does, on a slow machine
			status, got = ask("POST", "/sagas/parcel/"+key, body, token)
			return status == http.StatusOK, nil
		})
		return got
	}
	got := ended("p-1", `{"grams": 200}`)
	require.Equal(t, "completed", got["status"])
	require.Equal(t, "200 g", got["data"].(map[string]any)["label"])
	got = ended("p-2", `{"grams": 2000}`)
	require.Equal(t, "compensated", got["status"])
	require.Equal(t, "too heavy", got["reason"])
	status, got = ask("POST", "/sagas/parcel/p-2", `{"grams": 1}`, token)
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, true, got["existed"])
	status, got = ask("GET", "/sagas/parcel/p-1", "", token)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "completed", got["status"])
	code, page, err := p.get("/metrics")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, page, "troupe_saga_")
	require.Zero(t, p.terminate(), p.logs())
}
