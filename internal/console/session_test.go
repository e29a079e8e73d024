package console

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/testkit"
)

// browse returns a page as the browser with that cookie gets it.
func (d *desk) browse(address string, cookie *http.Cookie, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, address, nil)
	r.Header.Set("Accept", "text/html")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	if cookie != nil {
		r.AddCookie(cookie)
	}
	return d.serve(r)
}

// submit sends a form as a browser does.
func (d *desk) submit(address string, values url.Values, cookie *http.Cookie) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, address, strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if cookie != nil {
		r.AddCookie(cookie)
	}
	return d.serve(r)
}

var formField = regexp.MustCompile(`name="form" value="([^"]+)"`)

func private(c *Config) { c.Private = true }

func TestAStolenCookieHasNoUseAfterTheSignOut(t *testing.T) {
	t.Parallel()
	d := newDesk(t, private)
	id := d.letters()[0]
	cookie, other := d.signIn(t, token), d.signIn(t, token)
	address := at("/dead-letter", "db", "order", "id", id)
	field := formField.FindStringSubmatch(d.browse(address, cookie).Body.String())[1]
	w := d.submit("/sign-out", nil, cookie)
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Negative(t, w.Result().Cookies()[0].MaxAge)

	require.Equal(t, http.StatusSeeOther, d.browse(address, cookie).Code, "it leads to the sign-in page")
	discard := form("db", "order", "id", id, "do", "discard", "reason", "ticket 1", "form", field)
	require.Equal(t, http.StatusUnauthorized, d.submit("/dead-letter", discard, cookie).Code)
	require.Equal(t, http.StatusOK, d.browse(address, other).Code, "the other session continues")
	require.Equal(t, repair.Open, facts[letterFacts](d.as(token), address).Letter.Status)
}

// as returns the desk as a program with that token uses it.
func (d *desk) as(token string) *desk {
	other := *d
	other.token = token
	return &other
}

func TestASessionEndsAfterTwelveHoursAndWithItsProcess(t *testing.T) {
	t.Parallel()
	d := newDesk(t, private)
	cookie := d.signIn(t, token)
	again, err := New(t.Context(), d.cfg)
	require.NoError(t, err)
	t.Cleanup(again.Close)
	first := d.c
	d.c = again
	require.Equal(t, http.StatusSeeOther, d.browse("/held", cookie).Code)
	d.c = first
	now := time.Now()
	d.c.sessions.now = func() time.Time { return now.Add(sessionLast - time.Minute) }
	require.Equal(t, http.StatusOK, d.browse("/held", cookie).Code)
	d.c.sessions.now = func() time.Time { return now.Add(sessionLast + time.Minute) }
	require.Equal(t, http.StatusSeeOther, d.browse("/held", cookie).Code)
	d.signIn(t, token)
	require.Len(t, d.c.sessions.all, 1, "sessions that have ended are forgotten")
}

func TestTheOldestSessionEndsWhereThereAreTooMany(t *testing.T) {
	t.Parallel()
	d := newDesk(t, private)
	at := time.Now()
	d.c.sessions.now = func() time.Time { at = at.Add(time.Millisecond); return at }
	first, second := d.signIn(t, token), d.signIn(t, token)
	for range mostSessions - 1 {
		d.c.sessions.begin(user{name: "ann"}, token)
	}
	require.Equal(t, http.StatusSeeOther, d.browse("/held", first).Code)
	require.Equal(t, http.StatusOK, d.browse("/held", second).Code)
	require.Len(t, d.c.sessions.all, mostSessions)
}

// A user with any role signs in more often than there are sessions.
func TestAUserEndsNoSessionOfAnother(t *testing.T) {
	t.Parallel()
	d := newDesk(t, twice(t), withUsers)
	at := time.Now()
	d.c.sessions.now = func() time.Time { at = at.Add(time.Millisecond); return at }
	signIn := func(name string) *http.Cookie {
		u, is := d.c.accounts.Load().ofToken(tokenOf(name))
		require.True(t, is)
		return &http.Cookie{Name: cookieName, Value: d.c.sessions.begin(u, tokenOf(name))}
	}
	first, second := signIn("admin"), signIn("viewer")
	for range mostSessions {
		signIn("viewer")
	}
	require.Equal(t, http.StatusOK, d.browse("/held", first).Code)
	require.Equal(t, http.StatusSeeOther, d.browse("/held", second).Code)
	require.Len(t, d.c.sessions.all, mostSessions)
}

// A cookie that was put into a browser before the sign-in does not become the cookie of the session.
func TestEachSignInHasACookieOfItsOwn(t *testing.T) {
	t.Parallel()
	d := newDesk(t, private)
	planted := d.signIn(t, token)
	w := d.submit("/sign-in", form("name", "bob", "token", token), planted)
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.NotEqual(t, planted.Value, w.Result().Cookies()[0].Value)
	require.Equal(t, http.StatusSeeOther, d.browse("/held", planted).Code)
	require.Contains(t, d.browse("/held", w.Result().Cookies()[0]).Body.String(), "bob")
}

func TestTheCookieIsSecureWhereBrowsersUseHTTPS(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		declared, served, want bool
	}{
		"plain HTTP": {}, "a proxy with TLS that is declared": {declared: true, want: true}, "TLS of this process": {served: true, want: true},
	} {
		d := newDesk(t, func(c *Config) { c.HTTPS = one.declared })
		for _, path := range []string{"/sign-in", "/sign-out"} {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form("name", "ann", "token", token).Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if one.served {
				r.TLS = &tls.ConnectionState{}
			}
			cookies := d.serve(r).Result().Cookies()
			require.Len(t, cookies, 1)
			require.Equal(t, one.want, cookies[0].Secure, "%s, %s", name, path)
			require.Equal(t, http.SameSiteLaxMode, cookies[0].SameSite)
		}
	}
}

// A browser sends a Lax cookie with a link of another site, and not with a form of one. The form would be refused with it, too.
func TestALinkOfAnotherSiteShowsItsPageToASignedInUser(t *testing.T) {
	t.Parallel()
	d := newDesk(t, private)
	id := d.letters()[0]
	cookie := d.signIn(t, token)
	address := at("/dead-letter", "db", "order", "id", id)
	w := d.browse(address, cookie, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate")
	require.Equal(t, http.StatusOK, w.Code)
	field := formField.FindStringSubmatch(w.Body.String())[1]
	for _, foreign := range [][2]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://chat.example"}} {
		discard := form("db", "order", "id", id, "do", "discard", "reason", "ticket 1", "form", field)
		r := httptest.NewRequest(http.MethodPost, "/dead-letter", strings.NewReader(discard.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set(foreign[0], foreign[1])
		r.AddCookie(cookie)
		require.Equal(t, http.StatusForbidden, d.serve(r).Code, foreign)
	}
}

// A page of another site that embeds pages of a console, on this machine for example, cannot read them, and keeps nothing busy.
func TestAnotherSiteEmbedsNoPage(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, address := range []string{"/", "/messages?key=o-1", "/live?page=/held", "/dead-letter/payload", "/static/console.css"} {
		for name, header := range map[string][]string{
			"image":           {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"},
			"fetch":           {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"},
			"frame":           {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"},
			"another service": {"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"},
		} {
			require.Equal(t, http.StatusForbidden, d.browse(address, nil, header...).Code, "%s %s", name, address)
		}
	}
	for name, header := range map[string][]string{
		"link":      {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"},
		"bookmark":  {"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"},
		"own fetch": {"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"},
		"program":   nil,
	} {
		require.Equal(t, http.StatusOK, d.browse("/held", nil, header...).Code, name)
	}
}

func TestALivePageEndsWithTheSession(t *testing.T) {
	t.Parallel()
	d := newDesk(t, private)
	cookie := d.signIn(t, token)
	server := httptest.NewServer(d.c)
	t.Cleanup(server.Close)
	t.Cleanup(d.c.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/live?page=/held", nil)
	require.NoError(t, err)
	r.AddCookie(cookie)
	live, err := server.Client().Do(r)
	require.NoError(t, err)
	defer live.Body.Close()
	require.Equal(t, "text/event-stream", live.Header.Get("Content-Type"))
	d.submit("/sign-out", nil, cookie)
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, live.Body)
		ended <- err
	}()
	testkit.Wait(t, "the live page to end", func() (bool, error) {
		select {
		case err := <-ended:
			return true, err
		default:
			return false, nil
		}
	})
}

// A sign-in leads to the page that asked for it, also in a console below a path, and nowhere else.
func TestAReturnBelowAPathLeadsToItsPage(t *testing.T) {
	t.Parallel()
	d := newDesk(t, private, func(c *Config) { c.Path = "/console" })
	for to, want := range map[string]string{
		"/console/held?db=order": "/console/held?db=order", "/console/": "/console/", "/held": "/console/", "/console//evil.example": "/console/",
		"/console/%2fevil.example": "/console/", "//evil.example/console/held": "/console/", "https://evil.example/console/held": "/console/",
		"https://x@evil.example/console/held": "/console/", "/console/held\r\nx: y": "/console/",
	} {
		require.Equal(t, want, d.c.back(to), to)
	}
	w := d.browse("/console/held?db=order", nil)
	require.Equal(t, http.StatusSeeOther, w.Code)
	page := d.browse(w.Header().Get("Location"), nil).Body.String()
	require.Contains(t, page, `name="to" value="/console/held?db=order"`)
	w = d.submit("/console/sign-in", form("name", "ann", "token", token, "to", "/console/held?db=order"), nil)
	require.Equal(t, "/console/held?db=order", w.Header().Get("Location"))
}

// session signs in with a token, and returns the cookie.
func (d *desk) session(token string) *http.Cookie {
	d.t.Helper()
	w := d.submit("/sign-in", form("name", "ann", "token", token, "to", "/held"), nil)
	require.Equal(d.t, http.StatusSeeOther, w.Code)
	return w.Result().Cookies()[0]
}

// TestATokenIsReplacedWhileTheConsoleServes ends the sessions of the earlier token, and keeps the earlier one if the new one cannot be used.
func TestATokenIsReplacedWhileTheConsoleServes(t *testing.T) {
	t.Parallel()
	d := newDesk(t, private)
	cookie := d.session(token)
	require.ErrorContains(t, d.c.ReplaceAccess("short", nil), "want at least 16")
	require.ErrorContains(t, d.c.ReplaceAccess("", &Access{}), "without a restart")
	require.NoError(t, d.c.ReplaceAccess(token, nil))
	require.Equal(t, http.StatusOK, d.browse("/held", cookie).Code, "nothing has changed")
	const next = "another token of the console"
	require.NoError(t, d.c.ReplaceAccess(next, nil))
	require.Equal(t, http.StatusSeeOther, d.browse("/held", cookie).Code)
	require.Equal(t, http.StatusUnauthorized, d.as(token).get("/held").Code)
	require.Equal(t, http.StatusOK, d.as(next).get("/held").Code)
	require.Equal(t, http.StatusOK, d.browse("/held", d.session(next)).Code)
}

// TestUsersAreReplacedWhileTheConsoleServes takes a role from one user, and the token from another.
func TestUsersAreReplacedWhileTheConsoleServes(t *testing.T) {
	t.Parallel()
	d := newDesk(t, twice(t), withUsers)
	d.letters()
	operator, admin := d.session(tokenOf("operator")), d.session(tokenOf("admin"))
	require.Equal(t, http.StatusOK, d.browse("/messages?q=o-1", operator).Code)
	require.NoError(t, d.c.ReplaceAccess("", &Access{Users: []User{
		{Name: "operator", Token: tokenOf("operator"), Roles: Roles{AllDatabases: Viewer}},
		{Name: "ben", Token: tokenOf("admin"), Roles: Roles{AllDatabases: Admin}},
	}}))
	require.Equal(t, http.StatusForbidden, d.browse("/messages?q=o-1", operator).Code, "a viewer sees no payloads")
	require.Equal(t, http.StatusOK, d.browse("/held", operator).Code)
	require.Equal(t, http.StatusSeeOther, d.browse("/held", admin).Code, "the token is another user's now")
	require.Equal(t, http.StatusUnauthorized, d.as(tokenOf("viewer")).get("/held").Code)
}
