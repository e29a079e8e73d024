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

func TestAConsoleReadsUsersAndTheirRolesFromItsFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	url := testkit.DatabaseURL(t, testkit.Database(t))
	users := "users:\n  ann: {token: {file: " + write("ann", "s3cr3t token of ann\n") + "}, roles: {'*': viewer, order: admin}}\n" +
		"  bob: {roles: {order: operator}}\ngroups:\n  support: {order: viewer}\n" +
		"proxy: {from: [127.0.0.1, 10.0.0.0/8], secret: {env: PROXY_SECRET}, user: X-Forwarded-User, groups: X-Forwarded-Groups}\n"
	file := write("console.yaml", "databases:\n  order: "+url+"\nlisten: 127.0.0.1:0\n"+users)
	c := serve(t, []string{"PROXY_SECRET=s3cr3t of the proxy"}, "console", "--config", file)
	get := func(want int, page string, headers ...string) {
		h := http.Header{"Accept": {"application/json"}}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		status, body := fetch(t, c.address+page, h)
		require.Equal(t, want, status, "%s %q: %s", page, headers, body)
	}
	const secret, of = "Troupe-Proxy-Secret", "s3cr3t of the proxy"
	get(http.StatusUnauthorized, "relay")
	get(http.StatusOK, "messages", "Authorization", "Bearer s3cr3t token of ann")
	get(http.StatusUnauthorized, "relay", "X-Forwarded-User", "bob")
	get(http.StatusOK, "messages", "X-Forwarded-User", "bob", secret, of)
	get(http.StatusOK, "relay", "X-Forwarded-User", "eve", "X-Forwarded-Groups", "support", secret, of)
	get(http.StatusForbidden, "messages", "X-Forwarded-User", "eve", "X-Forwarded-Groups", "support", secret, of)
	code, text := c.end()
	require.Zero(t, code)
	require.NotContains(t, text, "s3cr3t")
	require.NotContains(t, text, "read only")

	for bad, want := range map[string]string{
		users + "token: a token of some length\n":                                  "want one of both",
		"users: {ann: {token: s3cr3t, roles: {order: admin}}}":                     "at least 16",
		"users: {ann: {token: {env: TROUPE_TEST_NOT_SET}, roles: {order: admin}}}": "user ann: token: TROUPE_TEST_NOT_SET is not set",
		"users: {ann: {token: s3cr3t s3cr3t s3cr3t, roles: {order: owner}}}":       "want viewer, operator or admin",
		"users: {ann: {token: s3cr3t s3cr3t s3cr3t, roles: {payment: admin}}}":     "there is no database payment",
		"proxy: {from: [everywhere], user: X-User}":                                "want an address such as",
		"proxy: {from: [10.0.0.1], user: X-User, secrets: s3cr3t s3cr3t s3cr3t}":   "a key of a user or of the proxy is unknown",
		"proxy: {user: X-User}": "without addresses and without a secret",
	} {
		o := finish(t, command(t, []string{"PROXY_SECRET=" + of}, "console", "--config", write("bad.yaml", "databases:\n  order: "+url+"\nlisten: 127.0.0.1:0\n"+bad)))
		require.Equal(t, 2, o.status, "%s: %s", bad, o.stderr)
		require.Contains(t, o.stderr, want, bad)
		require.NotContains(t, o.stderr, "s3cr3t")
	}
}
