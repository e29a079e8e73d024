package sidecar

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-go/troupe/internal/ambassador"
	"github.com/troupe-go/troupe/internal/credentials"
	"github.com/troupe-go/troupe/internal/door"
)

// A latest returns the current secret of a setting. If the secret is in a file, get reads the file again, at most once in
// latestEvery. If the file cannot be read, or its secret is not usable, the last usable secret stays in use.
type latest struct {
	path   string // "": the secret is in no file, and does not change
	usable func(text string) bool

	mu   sync.Mutex
	text string
	read time.Time
}

const latestEvery = time.Second

// latest returns the secret of a setting; usable may be nil.
func (v values) latest(s setting, usable func(text string) bool) *latest {
	return &latest{path: v.path[s.name], text: v.text[s.name], usable: usable}
}

func (l *latest) get() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.path != "" && now.Sub(l.read) >= latestEvery {
		l.read = now
		if text, err := credentials.ReadFile(l.path); err == nil && (l.usable == nil || l.usable(text)) {
			l.text = text
		}
	}
	return l.text
}

func isToken(text string) bool { return len(text) >= leastToken }

// A followed is the token of an endpoint that is set to the text of its file before each check.
type followed struct {
	door.Token
	source atomic.Pointer[latest] // nil: the token of the last Set
}

func (f *followed) follow(token *latest) { f.source.Store(token) }

// Check sets the token to the current secret, and checks a request as door.Token does.
func (f *followed) Check(r *http.Request) door.Verdict {
	if source := f.source.Load(); source != nil {
		f.Set(source.get())
	}
	return f.Token.Check(r)
}

// A bearer adds the current token to each request.
type bearer struct {
	http.RoundTripper
	token *latest
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token.get())
	return b.RoundTripper.RoundTrip(r)
}

// signsNow returns a Signer that signs with the current secret.
func signsNow(secret *latest, sign func(secret string) (ambassador.Signer, error)) ambassador.Signer {
	return func(header http.Header, id string, at time.Time, body []byte) {
		if s, err := sign(secret.get()); err == nil { // never fails: latest returns only usable secrets
			s(header, id, at, body)
		}
	}
}

// admits wraps next, an endpoint that checks the token first. It checks the current token of the file instead, and sets the
// request's token to first, so that next accepts the request.
func (f *followed) admits(next http.Handler, first string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch f.Check(r) {
		case door.Right:
			r.Header.Set("Authorization", "Bearer "+first)
			next.ServeHTTP(w, r)
		case door.TooMany:
			tooMany(w)
		default:
			unauthorized(w)
		}
	})
}
