package console

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/door"
)

const proxySecret = "the secret of the proxy"

// proxied returns a desk behind a proxy at 192.0.2.10, which names users and groups.
func proxied(t testing.TB, change ...func(*Proxy)) *desk {
	p := &Proxy{From: []netip.Prefix{netip.MustParsePrefix("192.0.2.8/29")}, Secret: proxySecret, User: "X-Forwarded-User", Groups: "X-Forwarded-Groups"}
	for _, c := range change {
		c(p)
	}
	return newDesk(t, func(c *Config) {
		c.Token = ""
		c.Access = &Access{
			Proxy: p, Groups: map[string]Roles{"support": {AllDatabases: Viewer}, "sre": {"order": Admin}},
			Users: []User{{Name: "bob", Roles: Roles{"order": Operator}}, {Name: "ci", Token: tokenOf("ci"), Roles: Roles{"order": Viewer}}},
		}
	})
}

// through returns a request as the proxy sends it.
func through(method, address, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, address, strings.NewReader(body))
	r.RemoteAddr = "192.0.2.10:4711"
	r.Header.Set(door.ProxySecret, proxySecret)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func TestTheProxyNamesTheUserAndTheGroups(t *testing.T) {
	t.Parallel()
	d := proxied(t)
	id := d.letters()[0]
	letter := at("/dead-letter", "db", "order", "id", id)
	for _, one := range []struct {
		headers []string
		relay   int // status of a page for viewers
		letter  int // status of a page for operators
	}{
		{nil, 401, 401},
		{[]string{"X-Forwarded-User", ""}, 401, 401},
		{[]string{"X-Forwarded-User", "bob"}, 200, 200},
		{[]string{"X-Forwarded-User", "eve"}, 403, 403},
		{[]string{"X-Forwarded-User", "eve", "X-Forwarded-Groups", "support"}, 200, 403},
		{[]string{"X-Forwarded-User", "eve", "X-Forwarded-Groups", "staff, sre"}, 200, 200},
		{[]string{"X-Forwarded-User", "eve", "X-Forwarded-Groups", "support", "X-Forwarded-Groups", "sre"}, 401, 401},
		{[]string{"X-Forwarded-User", "eve", "X-Forwarded-User", "bob"}, 401, 401},
		{[]string{"X-Forwarded-User", "bo\tb"}, 401, 401},
		{[]string{"X-Forwarded-User", "bob", "Authorization", "Bearer an id token of the proxy"}, 200, 200},
		{[]string{"Authorization", "Bearer " + tokenOf("ci")}, 200, 403},
	} {
		require.Equal(t, one.relay, d.serveJSON(through(http.MethodGet, "/relay", "", one.headers...)).Code, "%q", one.headers)
		require.Equal(t, one.letter, d.serveJSON(through(http.MethodGet, letter, "", one.headers...)).Code, "%q", one.headers)
	}
	ann := []string{"X-Forwarded-User", "ann", "X-Forwarded-Groups", "sre"}
	page := d.serve(through(http.MethodGet, letter, "", append(ann, "Accept", "text/html")...)).Body.String()
	require.Contains(t, page, "ann")
	require.NotContains(t, page, "Sign out")
	send := func(form, name string, headers ...string) int {
		body := "db=order&id=" + id + "&do=discard&reason=ticket&form=" + form
		return d.serve(through(http.MethodPost, "/dead-letter", body, append([]string{"X-Forwarded-User", name, "X-Forwarded-Groups", "sre"}, headers...)...)).Code
	}
	field := formField.FindStringSubmatch(page)[1]
	require.Equal(t, http.StatusForbidden, send("", "ann"), "another site cannot know the form's value")
	require.Equal(t, http.StatusForbidden, send(field, "bob"), "it is ann's form")
	require.Equal(t, http.StatusForbidden, send(field, "ann", "Sec-Fetch-Site", "cross-site"))
	require.Equal(t, http.StatusSeeOther, send(field, "ann", "Sec-Fetch-Site", "same-origin"))
	var actor string
	require.NoError(t, d.Pool.QueryRow(t.Context(), "SELECT actor FROM troupe.repairs").Scan(&actor))
	require.Equal(t, "ann", actor)
}

// A header is not believed unless the proxy sent it, whatever else is right.
func TestHeadersOfAnotherClientNameNoUser(t *testing.T) {
	t.Parallel()
	d := proxied(t)
	ask := func(change func(*http.Request)) int {
		r := through(http.MethodGet, "/relay", "", "X-Forwarded-User", "bob")
		change(r)
		return d.serveJSON(r).Code
	}
	require.Equal(t, http.StatusOK, ask(func(*http.Request) {}))
	require.Equal(t, http.StatusUnauthorized, ask(func(r *http.Request) { r.RemoteAddr = "192.0.2.16:4711" }), "another address")
	require.Equal(t, http.StatusUnauthorized, ask(func(r *http.Request) {
		r.RemoteAddr = "192.0.2.16:4711"
		r.Header.Set("X-Forwarded-For", "192.0.2.10")
	}), "an address is the connection's")
	require.Equal(t, http.StatusUnauthorized, ask(func(r *http.Request) { r.Header.Del(door.ProxySecret) }))
	require.Equal(t, http.StatusUnauthorized, ask(func(r *http.Request) { r.Header.Set(door.ProxySecret, "another secret of a proxy") }))
	require.Equal(t, http.StatusUnauthorized, ask(func(r *http.Request) { r.Header.Add(door.ProxySecret, proxySecret) }), "twice")

	alone := proxied(t, func(p *Proxy) { p.From = nil })
	r := through(http.MethodGet, "/relay", "", "X-Forwarded-User", "bob")
	r.RemoteAddr = "198.51.100.1:1"
	require.Equal(t, http.StatusOK, alone.serveJSON(r).Code, "the secret alone is enough if no address is declared")
	for range door.AttemptsAtOnce { // and cannot be guessed
		r := through(http.MethodGet, "/relay", "", "X-Forwarded-User", "bob")
		r.Header.Set(door.ProxySecret, "a guess of the secret")
		require.Equal(t, http.StatusUnauthorized, alone.serveJSON(r).Code)
	}
	require.Equal(t, http.StatusTooManyRequests, alone.serveJSON(through(http.MethodGet, "/relay", "", "X-Forwarded-User", "bob")).Code)
}

// A user of the proxy, or anyone who reaches the sign-in page through it, sends wrong tokens.
func TestWrongTokensDoNotLockOutTheUsersOfAProxy(t *testing.T) {
	t.Parallel()
	d := proxied(t)
	bob := func() int {
		return d.serveJSON(through(http.MethodGet, "/relay", "", "X-Forwarded-User", "bob")).Code
	}
	require.Equal(t, http.StatusOK, bob())
	for range 2 * door.AttemptsAtOnce {
		w := d.serve(through(http.MethodPost, "/sign-in", "token=wrong", "X-Forwarded-User", "eve"))
		require.Equal(t, http.StatusSeeOther, w.Code, "the proxy signed the user in: the token is not compared")
	}
	require.Equal(t, http.StatusOK, d.serveJSON(through(http.MethodGet, "/relay", "", "Authorization", "Bearer "+tokenOf("ci"))).Code)
	for range 2 * door.AttemptsAtOnce {
		d.serve(through(http.MethodPost, "/sign-in", "token=wrong"))
		d.serve(through(http.MethodGet, "/relay", "", "Authorization", "Bearer wrong"))
	}
	require.Equal(t, http.StatusOK, bob())
}

// The proxy adds its right secret to each request.
func TestTokensCannotBeGuessedThroughAProxy(t *testing.T) {
	t.Parallel()
	d := proxied(t)
	at := time.Now()
	d.c.attempts.Now = func() time.Time { return at }
	guess := func() int {
		return d.serveJSON(through(http.MethodGet, "/relay", "", "Authorization", "Bearer a guess")).Code
	}
	for range door.AttemptsAtOnce {
		require.Equal(t, http.StatusUnauthorized, guess())
	}
	require.Equal(t, http.StatusTooManyRequests, guess())
	require.Equal(t, http.StatusOK, d.serveJSON(through(http.MethodGet, "/relay", "", "X-Forwarded-User", "bob")).Code)
}

func TestAnIdentityTokenOfTheProxysUserIsNoWrongToken(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*Proxy){func(*Proxy) {}, func(p *Proxy) { p.Secret = "" }} {
		d := proxied(t, change)
		for range 2 * door.AttemptsAtOnce {
			r := through(http.MethodGet, "/relay", "", "X-Forwarded-User", "bob", "Authorization", "Bearer an id token of the proxy")
			require.Equal(t, http.StatusOK, d.serveJSON(r).Code)
		}
	}
}
