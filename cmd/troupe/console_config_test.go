package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

func TestAConsoleReadsItsFileAndTheSecretsThatItNames(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	url := testkit.DatabaseURL(t, testkit.Database(t))
	secret := write("order", url+"\n")
	token := write("token", "a token of some length\n")
	file := write("console.yaml", "databases:\n  order: {file: "+secret+"}\n  payment: {env: PAYMENT_URL}\nlisten: 127.0.0.1:0\ntoken: {file: "+token+"}\n")
	c := serve(t, []string{"PAYMENT_URL=" + url}, "console", "--config", file)
	status, body := fetch(t, c.address+"relay", http.Header{"Accept": {"application/json"}})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, `"payment"`)
	_, page := fetch(t, c.address+"relay", http.Header{"Accept": {"text/html"}})
	require.Contains(t, page, "Sign in to act", "the token is the file's")
	code, _ := c.end()
	require.Zero(t, code)

	for text, want := range map[string]string{
		"database: {}": "unknown key",
		"databases: {order: {file: /nowhere/at/all}}":    "/nowhere/at/all",
		"databases: {order: {env: TROUPE_TEST_NOT_SET}}": "TROUPE_TEST_NOT_SET is not set",
		"databases: {order: {url: s3cr3t}}":              "want text, {file: PATH} or {env: NAME}",
		"databases: [s3cr3t]":                            "not shown",
		"databases: {order: s3cr3t}\n\t: }":              "not shown",
	} {
		o := finish(t, command(t, nil, "console", "--config", write("bad.yaml", text)))
		require.Equal(t, 2, o.status, "%s: %s", text, o.stderr)
		require.Contains(t, o.stderr, want, text)
		require.NotContains(t, o.stderr, "s3cr3t")
	}
}
