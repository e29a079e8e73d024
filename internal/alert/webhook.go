package alert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-go/troupe/internal/secrets"
)

// errRefused is wrapped by errors that a retry cannot cure.
var errRefused = errors.New("refused")

// answerLimit is the number of bytes of an answer that are read.
const answerLimit = 4 << 10

// patience is the longest Retry-After that is honoured.
const patience = 5 * time.Minute

func (n *Notifier) newClient() {
	transport := n.cfg.Transport
	n.close = func() {}
	if transport == nil {
		own := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 2, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
		if standard, ok := http.DefaultTransport.(*http.Transport); ok {
			own = standard.Clone()
		}
		transport, n.close = own, own.CloseIdleConnections
	}
	n.client = &http.Client{
		Transport: transport, Timeout: n.cfg.Timeout,
		// A redirect would send the alert to the host that it names, as GET and without a body.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A target is a webhook.
type target struct {
	url     *url.URL     // nil: only log
	secrets secrets.List // of this URL, the replaced ones and the headers
}

func newTarget(u *url.URL, header http.Header) *target {
	if u == nil {
		return &target{}
	}
	return &target{url: u, secrets: secretsOf(u, header)}
}

// Replace makes later requests go to another webhook, also with alerts that wait. After an error nothing has changed. Call it from one
// goroutine at a time. Its errors do not repeat the URL.
func (n *Notifier) Replace(address string) error {
	u, err := parseURL(address)
	old := n.to.Load()
	switch {
	case err != nil:
		return fmt.Errorf("alert: %w", err)
	case u == nil && old.url != nil:
		return errors.New("alert: the URL of the webhook cannot be removed without a restart")
	case u != nil && old.url == nil:
		return errors.New("alert: the URL of a webhook cannot be added without a restart")
	}
	next := newTarget(u, n.cfg.Header)
	next.secrets = next.secrets.And(old.secrets)
	n.to.Store(next)
	return nil
}

// secretsOf returns the secret parts of a request, which a receiver could repeat.
func secretsOf(u *url.URL, header http.Header) secrets.List {
	parts := []string{u.String(), u.RequestURI(), u.RawQuery, u.EscapedPath(), u.Path}
	for _, values := range u.Query() {
		parts = append(parts, values...)
	}
	parts = append(parts, strings.Split(u.Path, "/")...)
	parts = slices.DeleteFunc(parts, func(part string) bool { return len(part) < 6 }) // such as "hooks"
	password, _ := u.User.Password()
	parts = append(parts, secrets.BasicAuth(u.User.Username(), password)...) // package net/http makes a header of them
	for _, values := range header {
		parts = append(parts, secrets.InHeader(values...)...)
	}
	return secrets.New(parts...)
}

// deliver logs the alert and posts it, with retries by the policy. Its errors contain no secrets.
func (n *Notifier) deliver(a Alert) error {
	n.cfg.Log.Warn().Str("kind", a.Kind).Str("class", a.Class).Str("where", a.Where).Str("subject", a.Subject).Str("key", a.Key).
		Str("id", a.ID).Str("error", a.Text).Int("count", a.Count).Time("since", a.Since).Int("dropped", a.Dropped).Msg("alert")
	if n.to.Load().url == nil {
		return nil
	}
	body, err := n.cfg.render(a)
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	for failed := 1; ; failed++ {
		wait, err := n.Post(n.ctx, body)
		if err == nil {
			return nil
		}
		n.mu.Lock()
		n.stats.Attempts++
		n.mu.Unlock()
		if errors.Is(err, errRefused) || n.cfg.Retry.Exhausted(failed) || n.ctx.Err() != nil {
			return err
		}
		timer := time.NewTimer(max(wait, n.cfg.Retry.Wait(failed)))
		select {
		case <-timer.C:
		case <-n.ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// Post sends one request with the caller's body. It is for callers that store, repeat and count their alerts themselves. wait
// is the receiver's Retry-After. The error contains no secret.
func (n *Notifier) Post(ctx context.Context, body []byte) (wait time.Duration, err error) {
	to := n.to.Load()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url.String(), bytes.NewReader(body))
	if err != nil {
		return 0, to.withoutSecrets(err)
	}
	for name, values := range n.cfg.Header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	request.Header.Set("Content-Type", n.cfg.ContentType)
	request.Header.Set("User-Agent", "troupe")
	response, err := n.client.Do(request)
	if err != nil {
		return 0, to.withoutSecrets(err)
	}
	defer response.Body.Close()
	said, err := io.ReadAll(io.LimitReader(response.Body, answerLimit)) // to its end, so that the connection is used again
	status := response.StatusCode
	switch {
	case status >= 200 && status < 300:
		return 0, nil
	case status >= 300 && status < 400:
		return 0, fmt.Errorf("%s: %w: it redirects, with status %d: set the URL to where the webhook is now", to.url.Host, errRefused, status)
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		wait = min(time.Duration(max(0, min(seconds, 1e6)))*time.Second, patience)
		return wait, to.refusal(status, said)
	case err != nil:
		return 0, to.withoutSecrets(err)
	}
	return 0, fmt.Errorf("%w: %w", to.refusal(status, said), errRefused)
}

// withoutSecrets returns err without the URL, which is a secret. From http's own errors, which begin with the URL, it takes the cause.
func (t *target) withoutSecrets(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return fmt.Errorf("%s: %s", t.url.Host, t.secrets.Hide(err.Error()))
}

// refusal returns the error for a response, with the beginning of its text. Secrets are replaced before the text is cut: a part of one would not be
// recognised.
func (t *target) refusal(status int, said []byte) error {
	hide := t.secrets.Hide
	if len(said) == answerLimit { // the end was cut off
		hide = t.secrets.HideCut
	}
	return fmt.Errorf("%s: status %d: %s", t.url.Host, status, cut(line(hide(string(said))), 200))
}
