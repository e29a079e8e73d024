package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/door"
)

const (
	cookieName   = "troupe_console"
	sessionLast  = 12 * time.Hour
	mostSessions = 1000
	mostSignIn   = 64 << 10 // bytes of the form, which needs no user
)

// user is the user of a request. Without a name the request is not signed in.
type user struct {
	name    string
	roles   Roles
	form    string // the value that the user's forms must have; "": the request is a program's, with a token
	shared  bool   // the request has the token that all share, so that it also gives the actor's name
	proxied bool   // the proxy named the user
}

// sessions has the sessions of signed-in browsers, in the memory of this process: a restart ends all of them, and another
// console does not know them. At most mostSessions exist; a further one ends the oldest session of the token that has the most sessions, so that a user who signs
// in again and again ends no session of another.
type sessions struct {
	now func() time.Time

	mu  sync.Mutex
	all map[[sha256.Size]byte]session // by the hash of the cookie's value, so that the time of a search depends on no part of a value
}

type session struct {
	user  user
	token [sha256.Size]byte // the hash of the token that began it
	until time.Time
}

func newSessions() *sessions {
	return &sessions{now: time.Now, all: make(map[[sha256.Size]byte]session)}
}

// begin starts a session of the token's user, and returns the value of its cookie.
func (s *sessions) begin(u user, token string) (value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for at, one := range s.all {
		if !now.Before(one.until) {
			delete(s.all, at)
		}
	}
	if len(s.all) >= mostSessions {
		delete(s.all, s.oldestOfMost())
	}
	value, u.form = rand.Text(), rand.Text()
	s.all[sha256.Sum256([]byte(value))] = session{u, sha256.Sum256([]byte(token)), now.Add(sessionLast)}
	return value
}

// oldestOfMost returns the oldest session of the token that has the most sessions.
func (s *sessions) oldestOfMost() (oldest [sha256.Size]byte) {
	of := make(map[[sha256.Size]byte]int)
	var most [sha256.Size]byte
	for _, one := range s.all {
		if of[one.token]++; of[one.token] > of[most] {
			most = one.token
		}
	}
	for at, one := range s.all {
		if first, is := s.all[oldest]; one.token == most && (!is || one.until.Before(first.until)) {
			oldest = at
		}
	}
	return oldest
}

// of returns the user of a request's cookie.
func (s *sessions) of(r *http.Request) user {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return user{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one, is := s.all[sha256.Sum256([]byte(c.Value))]
	if !is || !s.now().Before(one.until) {
		return user{}
	}
	return one.user
}

// keep ends the sessions whose token is no user's any more, and gives the others the roles that the user of their token has now.
func (s *sessions) keep(a *accounts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, one := range s.all {
		if u, is := a.tokens[one.token]; !is || !u.shared && u.name != one.user.name {
			delete(s.all, at)
		} else {
			one.user.roles = u.roles
			s.all[at] = one
		}
	}
}

// end ends the session of a request's cookie.
func (s *sessions) end(r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, sha256.Sum256([]byte(c.Value)))
	}
}

// cookie returns the cookie of a session. It is Lax, so that a link in a chat leads a signed-in user to its page: a browser sends
// it with a link of another site, and not with a form of one.
func (c *Console) cookie(r *http.Request, value string, last time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: value, Path: c.cfg.Path + "/", MaxAge: int(last.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: c.cfg.HTTPS || r.TLS != nil,
	}
}

// userOf returns the user of a request: the one that the proxy names, the one of its token, or the one of its cookie. Without a
// user, a console that is not private shows everything.
func (c *Console) userOf(r *http.Request) user {
	if u, is := c.accounts.Load().proxied(r); is {
		return u
	}
	if bearer, is := door.Bearer(r); is {
		if u, is := c.accounts.Load().ofToken(bearer); is {
			return u
		}
	} else if u := c.sessions.of(r); u.name != "" {
		return u
	}
	if c.cfg.Private {
		return user{}
	}
	return user{roles: Roles{AllDatabases: Operator}}
}

// acts reports whether users can sign in and act.
func (c *Console) acts() bool { return c.cfg.Token != "" || c.cfg.Access != nil }

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// signInFacts are the facts of the sign-in page.
type signInFacts struct {
	To    string `json:"-"`
	Wrong bool   `json:"-"`
	Named bool   `json:"-"` // the token names the user
	Name  string `json:"-"`
}

// cannotSignIn returns an error if the console has no token at all.
func (c *Console) cannotSignIn() error {
	switch {
	case !c.acts():
		return refuse(http.StatusForbidden, "this console was started without a token: it only shows")
	case len(c.accounts.Load().tokens) == 0:
		return refuse(http.StatusForbidden, "the proxy signs users in: reach the console through it")
	}
	return nil
}

func (c *Console) signInPage(w http.ResponseWriter, r *http.Request) {
	if err := c.cannotSignIn(); err != nil {
		c.fail(w, r, err)
		return
	}
	to := c.back(r.URL.Query().Get("to"))
	if u := c.userOf(r); u.name != "" { // signed in meanwhile, in another tab
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	c.draw(w, r, http.StatusOK, "sign-in", view{Title: "Sign in", Facts: signInFacts{To: to, Named: c.cfg.Access != nil}})
}

// back returns to if it is the address of a page of this console, and the address of the overview otherwise.
func (c *Console) back(to string) string {
	home := c.cfg.Path + "/"
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(to, home) || strings.HasPrefix(to, "//") ||
		strings.ContainsAny(to, "\\\r\n") {
		return home
	}
	if c.pages[strings.TrimPrefix(u.Path, c.cfg.Path)] == nil || !strings.HasPrefix(to, u.Path) { // no escapes in the path
		return home
	}
	return to
}

func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	if err := readForm(w, r, mostSignIn); err != nil {
		c.fail(w, r, err)
		return
	}
	name, to := strings.TrimSpace(r.PostForm.Get("name")), c.back(r.PostForm.Get("to"))
	if err := c.cannotSignIn(); err != nil {
		c.fail(w, r, err)
	} else if _, named := c.accounts.Load().proxied(r); named { // a session would not count
		http.Redirect(w, r, to, http.StatusSeeOther)
	} else if c.cfg.Access == nil && (admin.Actor{Name: name}).Check() != nil {
		c.fail(w, r, refuse(http.StatusBadRequest, "want a name, for the records of what you do: text of one line, of at most %d bytes", admin.MaxName))
	} else {
		c.admit(w, r, name, to)
	}
}

// admit signs in a user with the right token, unless the address has sent too many wrong ones. The session has a new cookie, and
// ends the one of the cookie in the request. The name is the one of the token, if it has one, whatever the form says.
func (c *Console) admit(w http.ResponseWriter, r *http.Request, name, to string) {
	var u user
	right, limited := c.attempts.Try(r, func() (is bool) {
		u, is = c.accounts.Load().ofToken(r.PostForm.Get("token"))
		return is
	})
	if u.shared {
		u.name, u.shared = name, false
	}
	switch {
	case limited:
		c.guesses.report(tooMany, r)
		w.Header().Set("Retry-After", "6")
		c.fail(w, r, refuse(http.StatusTooManyRequests, door.Explanation))
	case !right:
		c.guesses.report(wrongToken, r)
		facts := signInFacts{To: to, Wrong: true, Named: c.cfg.Access != nil, Name: name}
		c.draw(w, r, http.StatusUnauthorized, "sign-in", view{Title: "Sign in", Facts: facts})
	default:
		c.cfg.Log.Info().Str("name", u.name).Str("from", r.RemoteAddr).Msg("console: signed in")
		c.sessions.end(r)
		http.SetCookie(w, c.cookie(r, c.sessions.begin(u, r.PostForm.Get("token")), sessionLast))
		http.Redirect(w, r, to, http.StatusSeeOther)
	}
}

// tooOften refuses a request with a token, or with a proxy's secret, in its header if its address has sent too many wrong ones.
// Tokens and secrets are counted separately, so that wrong tokens that come through the proxy do not stop the users that it names.
func (c *Console) tooOften(w http.ResponseWriter, r *http.Request) bool {
	var right, limited bool
	if c.accounts.Load().header.Secret != "" && len(r.Header.Values(door.ProxySecret)) > 0 {
		if right, limited = c.secrets.Try(r, func() bool { return c.accounts.Load().proxy.Sent(r) }); !right && !limited {
			c.guesses.report(wrongSecret, r)
		}
	}
	if bearer, is := door.Bearer(r); is && !limited && len(c.accounts.Load().tokens) > 0 {
		if _, named := c.accounts.Load().proxied(r); !named { // the token of a named user is the proxy's, and is not compared
			if right, limited = c.attempts.Try(r, func() bool { _, is := c.accounts.Load().ofToken(bearer); return is }); !right && !limited {
				c.guesses.report(wrongToken, r)
			}
		}
	}
	if limited {
		c.guesses.report(tooMany, r)
		w.Header().Set("Retry-After", "6")
		answer(w, http.StatusTooManyRequests, map[string]string{"error": door.Explanation})
	}
	return limited
}

// signOut ends the session in this process, so that a copy of its cookie has no use.
func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	if u := c.sessions.of(r); u.name != "" {
		c.cfg.Log.Info().Str("name", u.name).Str("from", r.RemoteAddr).Msg("console: signed out")
	}
	c.sessions.end(r)
	http.SetCookie(w, c.cookie(r, "", -time.Second))
	http.Redirect(w, r, c.cfg.Path+"/", http.StatusSeeOther)
}
