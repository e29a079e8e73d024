// Package door decides which HTTP requests an endpoint answers: by the request's token, by the number of wrong tokens from its
// address, by its Host, and by the proxy that it came through.
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

// A Verdict is the result of checking a request's token.
type Verdict int

const (
	NoToken Verdict = iota // the endpoint has no token, so the request needs none
	Right                  // the request has the token
	Missing                // the request has no token
	Wrong                  // the request has another token
	TooMany                // its address sent too many wrong tokens: the token was not compared
)

// A Token guards endpoints. Its zero value has no token: Set sets one. It may be used concurrently.
type Token struct {
	Attempts Attempts

	sum atomic.Pointer[[sha256.Size]byte] // a hash, so that a comparison takes the same time for every length; nil: no token
}

// Set changes the token, from the next request on; "" removes it.
func (t *Token) Set(token string) {
	if token == "" {
		t.sum.Store(nil)
		return
	}
	sum := sha256.Sum256([]byte(token))
	t.sum.Store(&sum)
}

// Check checks the token in the header Authorization, after the scheme Bearer.
func (t *Token) Check(r *http.Request) Verdict {
	if t.sum.Load() == nil {
		return NoToken
	}
	given, ok := Bearer(r)
	if !ok {
		return Missing
	}
	right, limited := t.Attempts.Try(r, func() bool { return t.is(given) })
	switch {
	case limited:
		return TooMany
	case right:
		return Right
	}
	return Wrong
}

// is reports whether given is the token. It takes the same time for every text of a length.
func (t *Token) is(given string) bool {
	want, sum := t.sum.Load(), sha256.Sum256([]byte(given))
	return want != nil && subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}

// Bearer returns the token of the header Authorization; ok is false if the header is missing or has another scheme. The scheme's
// case does not matter (RFC 9110, section 11.1).
func Bearer(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, ok && strings.EqualFold(scheme, "Bearer")
}

// Called reports whether the host of a request, with or without port, is a loopback address or one of names. An endpoint without
// a token refuses every other host: a web page can resolve a name of its own to 127.0.0.1, and then read the endpoint's responses
// (DNS rebinding).
func Called(host string, names ...string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.Trim(name, "[]")
	ip := net.ParseIP(name)
	return ip != nil && ip.IsLoopback() || slices.ContainsFunc(names, func(own string) bool { return strings.EqualFold(own, name) })
}

// OnLoopback reports whether an endpoint listens on a loopback address, so that only programs of this machine reach it.
func OnLoopback(listens net.Addr) bool {
	tcp, ok := listens.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Here returns a handler that passes requests on to next. If the endpoint listens on a loopback address, it passes only those for
// localhost or a loopback address, and answers others with status 421.
func Here(listens net.Addr, next http.Handler) http.Handler {
	if !OnLoopback(listens) {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Called(r.Host, Localhost) {
			http.Error(w, "on a loopback address only requests for "+Localhost+" or such an address are answered", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Localhost is the host name that an endpoint without a token accepts.
const Localhost = "localhost"
