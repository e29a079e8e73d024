package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/door"
	"github.com/troupe-go/troupe/internal/plain"
)

const (
	cookieName  = "troupe_console"
	sessionLast = 12 * time.Hour
	mostName    = 200
)

// sessions verifies the token and the cookies. A cookie's content is signed with a key made of the token, so no session is
// stored, and a new token ends all sessions.
type sessions struct {
	key   []byte // nil: there is no token
	token [sha256.Size]byte
	path  string
}

func newSessions(token, path string) sessions {
	if token == "" {
		return sessions{}
	}
	key := sha256.Sum256([]byte("troupe console: sessions: " + token))
	return sessions{key[:], sha256.Sum256([]byte(token)), path + "/"}
}

// is reports whether given is the token, in a time that depends on neither the token nor its length.
func (s sessions) is(given string) bool {
	sum := sha256.Sum256([]byte(given))
	return s.key != nil && subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1
}

func (s sessions) sign(what, text string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(what + "\x00" + text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (s sessions) cookie(name string, r *http.Request, now time.Time) *http.Cookie {
	text := base64.RawURLEncoding.EncodeToString([]byte(name)) + "." + strconv.FormatInt(now.Add(sessionLast).Unix(), 10)
	return &http.Cookie{
		Name: cookieName, Value: text + "." + s.sign("cookie", text), Path: s.path, MaxAge: int(sessionLast.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	}
}

// of returns the name of the user that a request is signed in as, and the value that the user's forms must have. name is ""
// if the request is not signed in.
func (s sessions) of(r *http.Request) (name, form string) {
	if s.key == nil {
		return "", ""
	}
	if bearer, is := door.Bearer(r); is {
		if s.is(bearer) {
			return "somebody with the token", ""
		}
		return "", ""
	}
	c, err := r.Cookie(cookieName)
	if err != nil {
		return "", ""
	}
	at := strings.LastIndexByte(c.Value, '.')
	if at < 0 || !same(c.Value[at+1:], s.sign("cookie", c.Value[:at])) {
		return "", ""
	}
	encoded, until, _ := strings.Cut(c.Value[:at], ".")
	seconds, err := strconv.ParseInt(until, 10, 64)
	if err != nil || time.Now().Unix() >= seconds {
		return "", ""
	}
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(text) == 0 {
		return "", ""
	}
	return string(text), s.sign("form", c.Value)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// signInFacts are the facts of the sign-in page.
type signInFacts struct {
	To    string `json:"-"`
	Wrong bool   `json:"-"`
	Name  string `json:"-"`
}

func (c *Console) signInPage(w http.ResponseWriter, r *http.Request) {
	if c.cfg.Token == "" {
		c.fail(w, r, refuse(http.StatusForbidden, "this console was started without a token: it only shows"))
		return
	}
	c.draw(w, r, http.StatusOK, "sign-in", view{Title: "Sign in", Facts: signInFacts{To: c.back(r.URL.Query().Get("to"))}})
}

// back returns to if it is a page of this console, and "/" otherwise.
func (c *Console) back(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(to, "//") ||
		strings.ContainsAny(to, "\\\r\n") || c.pages[u.Path] == nil {
		return "/"
	}
	return to
}

func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		c.fail(w, r, refuse(http.StatusBadRequest, "the form cannot be read: %s", err))
		return
	}
	name, to := strings.TrimSpace(r.PostForm.Get("name")), c.back(r.PostForm.Get("to"))
	switch {
	case c.cfg.Token == "":
		c.fail(w, r, refuse(http.StatusForbidden, "this console was started without a token: it only shows"))
	case name == "" || len(name) > mostName || plain.CheckName(name) != nil:
		c.fail(w, r, refuse(http.StatusBadRequest, "want a name, for the records of what you do: text of one line, of at most %d bytes", mostName))
	default:
		c.admit(w, r, name, to)
	}
}

// admit signs in a user with the right token, unless the address has sent too many wrong ones.
func (c *Console) admit(w http.ResponseWriter, r *http.Request, name, to string) {
	right, limited := c.attempts.Try(r, func() bool { return c.sessions.is(r.PostForm.Get("token")) })
	switch {
	case limited:
		c.cfg.Log.Warn().Str("from", r.RemoteAddr).Msg("console: too many sign-ins with a wrong token")
		w.Header().Set("Retry-After", "6")
		c.fail(w, r, refuse(http.StatusTooManyRequests, door.Explanation))
	case !right:
		c.cfg.Log.Warn().Str("name", name).Str("from", r.RemoteAddr).Msg("console: sign-in with a wrong token")
		c.draw(w, r, http.StatusUnauthorized, "sign-in", view{Title: "Sign in", Facts: signInFacts{To: to, Wrong: true, Name: name}})
	default:
		c.cfg.Log.Info().Str("name", name).Str("from", r.RemoteAddr).Msg("console: signed in")
		http.SetCookie(w, c.sessions.cookie(name, r, time.Now()))
		http.Redirect(w, r, c.cfg.Path+to, http.StatusSeeOther)
	}
}

// tooOften refuses a request with a token in its header if its address has sent too many wrong ones.
func (c *Console) tooOften(w http.ResponseWriter, r *http.Request) bool {
	bearer, is := door.Bearer(r)
	if !is || c.cfg.Token == "" {
		return false
	}
	_, limited := c.attempts.Try(r, func() bool { return c.sessions.is(bearer) })
	if limited {
		w.Header().Set("Retry-After", "6")
		answer(w, http.StatusTooManyRequests, map[string]string{"error": door.Explanation})
	}
	return limited
}

func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: cookieName, Path: c.sessions.path, MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, c.cfg.Path+"/", http.StatusSeeOther)
}
