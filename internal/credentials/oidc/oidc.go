// Package oidc gets access tokens from the token endpoint of an identity provider by the client credentials grant (RFC 6749,
// section 4.4), for Kafka's mechanism OAUTHBEARER.
package oidc

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/credentials"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/internal/secrets"
)

// Config configures a Source. URL, ClientID and Secret are required.
type Config struct {
	URL      string // of the token endpoint: https, or http to this machine
	ClientID string
	// Secret returns the client's secret. It is called for each request.
	Secret   func(context.Context) (string, error)
	Scopes   []string
	Audience string // sent as the parameter audience; "": not sent
	// TLS returns the configuration of a connection to a host. Nil: the system's authorities are trusted.
	TLS func(host string) *tls.Config
	// Now returns the time, for tests. Nil: time.Now.
	Now func() time.Time
}

const (
	limit     = 10 * time.Second // time limit of a request
	mostBytes = 64 << 10         // largest size of a response
)

// A Source returns tokens. It may be used concurrently: callers at the same time share one request. A token is used for four
// fifths of its lifetime, and until it expires if the endpoint does not answer then.
type Source struct {
	cfg    Config
	client *http.Client
	shared credentials.Shared[*oauth2.Token]

	mu sync.Mutex
	// last is the configuration of the last request. It has detected whether the endpoint takes the secret in a header or in the body.
	last *clientcredentials.Config
}

// New returns a Source, or an error if cfg is invalid. It does no I/O.
func New(cfg Config) (*Source, error) {
	if err := address.CheckURL(cfg.URL); err != nil {
		return nil, err
	}
	u, _ := url.Parse(cfg.URL)
	if ip := net.ParseIP(u.Hostname()); u.Scheme != "https" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, errors.New("the client's secret is not sent over plain http to another machine: use https")
	}
	if cfg.ClientID == "" || cfg.Secret == nil {
		return nil, errors.New("want a client id and a secret")
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: limit}).DialContext, TLSHandshakeTimeout: limit, ForceAttemptHTTP2: true,
		MaxResponseHeaderBytes: mostBytes, DisableKeepAlives: true, // requests are minutes apart, and each one reads the authorities again
	}
	if cfg.TLS != nil {
		transport.TLSClientConfig = cfg.TLS(u.Hostname())
	}
	s := &Source{cfg: cfg, client: &http.Client{
		Timeout: limit, Transport: small{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
	}}
	s.shared = credentials.Shared[*oauth2.Token]{Fetch: s.fetch, Now: cfg.Now, Lasts: s.lasts}
	return s, nil
}

var errRedirect = errors.New("it redirects to another address, to which the secret is not sent")

// Token returns a valid token.
func (s *Source) Token(ctx context.Context) (string, error) {
	t, err := s.shared.Get(ctx)
	if err != nil {
		return "", fmt.Errorf("token endpoint %s: %w", s.cfg.URL, err)
	}
	return t.AccessToken, nil
}

func (s *Source) lasts(t *oauth2.Token) (refresh, end time.Time) {
	if t.Expiry.IsZero() {
		return t.Expiry, t.Expiry
	}
	lifetime, now := time.Until(t.Expiry), s.now() // from the lifetime in the response, so that a wrong clock does not matter
	return now.Add(lifetime * 4 / 5), now.Add(lifetime)
}

func (s *Source) now() time.Time {
	if s.cfg.Now != nil {
		return s.cfg.Now()
	}
	return time.Now()
}

func (s *Source) fetch(ctx context.Context) (*oauth2.Token, error) {
	secret, err := s.cfg.Secret(ctx)
	if err != nil {
		return nil, err
	}
	t, err := s.request(secret).Token(context.WithValue(ctx, oauth2.HTTPClient, s.client))
	if err != nil {
		return nil, explain(err, s.secretForms(secret))
	}
	return t, nil
}

func (s *Source) request(secret string) *clientcredentials.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || s.last.ClientSecret != secret {
		s.last = &clientcredentials.Config{ClientID: s.cfg.ClientID, ClientSecret: secret, TokenURL: s.cfg.URL, Scopes: s.cfg.Scopes}
		if s.cfg.Audience != "" {
			s.last.EndpointParams = url.Values{"audience": {s.cfg.Audience}}
		}
	}
	return s.last
}

// secretForms returns the secret as it is encoded in the header and in the body, and unencoded.
func (s *Source) secretForms(secret string) secrets.List {
	return secrets.New(append(secrets.BasicAuth(url.QueryEscape(s.cfg.ClientID), url.QueryEscape(secret)), secret)...)
}

// explain returns an error without the body of a response, which may repeat the request with one of the forms of the secret, and without the
// URL, which Token adds. Package net/http quotes an answer that is no HTTP, which may repeat the request, too.
func explain(err error, forms secrets.List) error {
	var refused *oauth2.RetrieveError
	var transport *url.Error
	switch {
	case errors.As(err, &refused):
		text := "status " + refused.Response.Status
		for _, part := range []string{refused.ErrorCode, refused.ErrorDescription} {
			if part != "" {
				text += ": " + part
			}
		}
		if refused.ErrorCode == "invalid_client" {
			text += " (the client id or its secret is wrong, or the secret has expired)"
		}
		return errors.New(plain.Line(forms.Hide(text), 400))
	case errors.As(err, &transport):
		return forms.HideIn(transport.Err)
	}
	return errors.New("its answer is not a token response (the text is not shown, since it may contain a secret)")
}

var errTooLong = fmt.Errorf("its answer has more than %d bytes", mostBytes)

// small reads the whole bodies of responses, and refuses a body of more than mostBytes.
type small struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s small) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := s.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, mostBytes+1))
	_ = response.Body.Close()
	if err == nil && len(body) > mostBytes {
		err = errTooLong
	}
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
