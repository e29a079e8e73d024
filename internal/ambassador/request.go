package ambassador

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/deadletter"
	"github.com/troupe-go/troupe/retry"
)

// request is a request to the service.
type request struct {
	method string
	path   string // escaped
	body   []byte // nil: none

	contentType string
	attributes  http.Header // of a CloudEvent
	sign        Signer      // nil: the request is not signed
}

// String returns r for errors. The path is quoted, so that dead letters that differ only in it have one cause.
func (r request) String() string { return fmt.Sprintf("%s %q", r.method, r.path) }

func (r request) check() error {
	switch r.method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return fmt.Errorf("method %q: want GET, POST, PUT, PATCH or DELETE", r.method)
	}
	if !fits(r.contentType) {
		return errors.New("content-type: the message's value has a control character, which no header may have")
	}
	return checkPath(r.path)
}

// url returns the base with a path that was checked.
func (a *Ambassador) url(path string) *url.URL {
	u := *a.base
	decoded, _ := url.PathUnescape(path) // checkPath has tried it
	u.Path, u.RawPath = a.base.Path+decoded, a.base.EscapedPath()+path
	return &u
}

// ask makes a request for m. It returns the service's response, whatever its status.
func (a *Ambassador) ask(ctx context.Context, r request, m envelope.Message) (answer, error) {
	if err := r.check(); err != nil {
		return answer{}, retry.Permanent(err)
	}
	header, err := a.header(ctx, m)
	if err != nil {
		return answer{}, retry.Permanent(fmt.Errorf("%s: %w", r, err))
	}
	for name, values := range r.attributes {
		header[name] = values
	}
	if header.Del("Content-Type"); r.body != nil && r.contentType != "" {
		header.Set("Content-Type", r.contentType)
	}
	if r.sign != nil {
		r.sign(header, header.Get("Idempotency-Key"), time.Now(), r.body)
	}
	var reach reach
	h := (&http.Request{
		Method: r.method, URL: a.url(r.path), Host: a.base.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(httptrace.WithClientTrace(ctx, reach.trace()))
	if r.body != nil {
		h.ContentLength = int64(len(r.body))
		h.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.body)), nil }
		h.Body, _ = h.GetBody()
	}
	response, err := a.cfg.Transport.RoundTrip(h) // no http.Client, which follows redirects and uses cookies
	if err != nil {
		unreached := reach.failed.Load()
		if !unreached {
			err = silenced(err)
		}
		return answer{}, a.failed(ctx, r, unreached, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, int64(a.cfg.MaxBody)+1))
	if err != nil {
		return answer{}, a.failed(ctx, r, false, fmt.Errorf("%s, and then: %w", statusText(response.StatusCode), silenced(err)))
	}
	got := answer{status: response.StatusCode, header: response.Header, body: body}
	if len(body) > a.cfg.MaxBody {
		got.body, got.cut = body[:a.cfg.MaxBody], true
	}
	return got, nil
}

// failed returns a request's error: retry.Unavailable if there was no connection, since then nothing was sent and other
// requests would fail too.
func (a *Ambassador) failed(ctx context.Context, r request, unreached bool, err error) error {
	err = fmt.Errorf("%s: %w", r, err)
	if unreached && ctx.Err() == nil {
		return retry.Unavailable("the service at "+a.base.Scheme+"://"+a.base.Host, err)
	}
	return err
}

var errNoHTTP = errors.New(
	"the connection ended without a response, or the response is no HTTP, or has headers of more than 64 KiB")

// silenced returns err, or errNoHTTP if it may quote the response, as net/http does when it cannot parse it.
func silenced(err error) error {
	var network net.Error
	for _, plain := range []error{io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, plain) {
			return err
		}
	}
	if errors.As(err, &network) {
		return err
	}
	return errNoHTTP
}

// reach records whether a request gets a connection.
type reach struct{ failed atomic.Bool }

func (c *reach) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { c.failed.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { c.failed.Store(false) },
	}
}

// header returns a request's headers.
func (a *Ambassador) header(ctx context.Context, m envelope.Message) (http.Header, error) {
	header := make(http.Header, len(a.cfg.Header)+8)
	for name, values := range a.cfg.Header {
		header[http.CanonicalHeaderKey(name)] = values
	}
	header.Set("Accept", envelope.JSON)
	header.Set("User-Agent", "troupe-ambassador")
	key := m.IdempotencyKey
	if key == "" {
		key = deadletter.RequestKey(m.Identity(), m.Extra)
	}
	for name, value := range map[string]string{
		"Idempotency-Key": key, "X-Saga-Id": m.SagaID, "X-Saga-Step": m.SagaStep, "X-Saga-Operation": m.SagaOperation,
	} {
		header.Del(name)
		if value == "" {
			continue
		}
		if !fits(value) {
			return nil, fmt.Errorf("%s: the message's value has a control character, which no header may have", name)
		}
		header.Set(name, value)
	}
	parent, state := m.TraceParent, m.TraceState
	if a.cfg.Trace != nil {
		if p, s := a.cfg.Trace(ctx); p != "" {
			parent, state = p, s
		}
	}
	for name, value := range map[string]string{"traceparent": parent, "tracestate": state} {
		header.Del(name)
		if value != "" && fits(value) { // an invalid trace must not fail the request
			header.Set(name, value)
		}
	}
	return header, nil
}

// checkHeader returns an error for a header that cannot be sent, or that net/http would not send. The error never contains a
// value.
func checkHeader(name string, values []string) error {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	switch http.CanonicalHeaderKey(name) {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Trailer":
		return fmt.Errorf("header %s is the connection's own: strike it out", name)
	}
	if name == "" || strings.Trim(name, token) != "" {
		return fmt.Errorf("header %q has no name that HTTP knows", name)
	}
	for _, v := range values {
		if !fits(v) {
			return fmt.Errorf("header %s: its value has a control character, perhaps the end of a line", name)
		}
	}
	return nil
}

// fits reports whether value can be a header's value.
func fits(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
