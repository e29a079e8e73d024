// Package door decides which HTTP requests an endpoint answers: by the token that a request brings, by how many wrong ones
// came from its address, and by the host name that it asks for.
package door

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
)

// A Verdict on a request.
type Verdict int

const (
	NoToken Verdict = iota // the endpoint has no token, so the request needs none
	Right                  // the request brings the token
	Missing                // it brings none
	Wrong                  // it brings another
	TooMany                // its address brought too many wrong ones: the token was not compared
)

// A Token guards endpoints. Its zero value has none: Set gives it one. It may be used concurrently.
type Token struct {
	Attempts Attempts

	sum atomic.Pointer[[sha256.Size]byte] // a hash, so that a comparison takes the same time for every length; nil: no token
}

// Set changes the token for the next request; "" takes it away.
func (t *Token) Set(token string) {
	if token == "" {
		t.sum.Store(nil)
		return
	}
	sum := sha256.Sum256([]byte(token))
	t.sum.Store(&sum)
}

// Check reads the header Authorization, which holds "Bearer" and the token.
func (t *Token) Check(r *http.Request) Verdict {
	want := t.sum.Load()
	if want == nil {
		return NoToken
	}
	given, ok := Bearer(r)
	if !ok {
		return Missing
	}
	right, limited := t.Attempts.Try(r, func() bool {
		sum := sha256.Sum256([]byte(given))
		return subtle.ConstantTimeCompare(sum[:], want[:]) == 1
	})
	switch {
	case limited:
		return TooMany
	case right:
		return Right
	}
	return Wrong
}

// Bearer returns the token of the header Authorization; ok is false where the header has none, or another scheme. The
// scheme's letters may be large or small (RFC 9110, section 11.1).
func Bearer(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, ok && strings.EqualFold(scheme, "Bearer")
}

// Called reports whether the host of a request, with or without port, is an address of this machine alone or one of names.
// An endpoint without a token refuses every other host: a web page can lead a name of its own to 127.0.0.1, and then reads
// what the endpoint answers (DNS rebinding).
func Called(host string, names ...string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.Trim(name, "[]")
	ip := net.ParseIP(name)
	return ip != nil && ip.IsLoopback() || slices.ContainsFunc(names, func(own string) bool { return strings.EqualFold(own, name) })
}

// Localhost is the name by which an endpoint without a token may be called.
const Localhost = "localhost"
