package ambassador

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/schemas"
)

const (
	connectLimit   = 5 * time.Second // for dialling, and again for the TLS handshake
	defaultMaxBody = 256 << 10
	mostMaxBody    = 900_000 // a message has at most 1,000,000
)

// Config configures an Ambassador. BaseURL is required.
type Config struct {
	// BaseURL is the service's address: http or https, host and optionally a path, to which a call's path is appended. Put
	// credentials into Header.
	BaseURL string
	// Header is added to each request, for example a token. Its values are in no log and no error. It does not replace the
	// headers that the ambassador sets: Content-Type, Accept, User-Agent, Idempotency-Key, X-Saga-…, ce-…, signatures and
	// trace context.
	Header http.Header
	// MaxBody is the maximum size of a response's body in bytes. Default 262,144; at most 900,000.
	MaxBody int
	// Transport makes the requests; set it for TLS, a proxy or a limit of connections. It must not follow redirects; no
	// http.Transport does. Default: a transport with its own connections, without a proxy, 5 s to dial and 5 s for TLS.
	Transport http.RoundTripper
	// Mode is the form of the requests of Post. Default CloudEvents.
	Mode Mode
	// Retry400 treats 400 as Again: for services that answer 200 when they are done and 400 when they want the
	// request again. Such a service must answer another 4xx for a permanent refusal.
	Retry400 bool
	// Sign signs the requests of Post and of Calls. Default: they are not signed.
	Sign Signer
	// Schemas converts payloads of Post's commands that have a schema of the registry to JSON, and the service's responses back. Default:
	// such a command becomes a dead letter.
	Schemas *schemas.Codec
	// Trace returns the handler's trace context, as in outbox.Config. Default: a request continues its command's trace.
	Trace func(context.Context) (traceparent, tracestate string)
}

// An Ambassador makes requests to one service. It may be used concurrently, also by several participants.
type Ambassador struct {
	cfg  Config
	base *url.URL
}

// New checks the configuration and sets the defaults. It does no I/O.
func New(cfg Config) (*Ambassador, error) {
	base, err := baseURL(cfg.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("ambassador: %w", err)
	}
	if cfg.MaxBody < 0 || cfg.MaxBody > mostMaxBody {
		return nil, fmt.Errorf("ambassador: max body %d: want 0 to %d", cfg.MaxBody, mostMaxBody)
	}
	for name, values := range cfg.Header {
		if err := checkHeader(name, values); err != nil {
			return nil, fmt.Errorf("ambassador: %w", err)
		}
	}
	if cfg.Mode == "" {
		cfg.Mode = CloudEvents
	}
	if cfg.Mode != CloudEvents && cfg.Mode != Plain {
		return nil, fmt.Errorf("ambassador: mode %q: want %s or %s", cfg.Mode, CloudEvents, Plain)
	}
	cfg.Header = cfg.Header.Clone()
	if cfg.MaxBody == 0 {
		cfg.MaxBody = defaultMaxBody
	}
	if cfg.Transport == nil {
		cfg.Transport = newTransport()
	}
	return &Ambassador{cfg: cfg, base: base}, nil
}

// NewTransport returns the default of Config.Transport with a TLS configuration, and with enough connections for a number of
// concurrent requests.
func NewTransport(encryption *tls.Config, requests int) *http.Transport {
	t := newTransport()
	t.TLSClientConfig, t.MaxIdleConnsPerHost, t.MaxConnsPerHost = encryption, requests, 2*requests
	return t
}

func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: connectLimit}).DialContext,
		TLSHandshakeTimeout:    connectLimit,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // no decompression: a body is as large as on the wire
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        time.Minute,
	}
}

// baseURL parses and checks a base URL. Its errors do not contain the text, which may have a password.
func baseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return nil, errors.New("config without a base URL, such as http://127.0.0.1:8080")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New("the base URL cannot be read: want http or https and a host, such as http://127.0.0.1:8080/v1")
	case u.User != nil:
		return nil, errors.New("the base URL has credentials: put them into Config.Header, as Authorization")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("the base URL has a query or a fragment: want neither")
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	if u.Path != "" {
		if err := checkPath(u.EscapedPath()); err != nil {
			return nil, fmt.Errorf("the base URL: %w", err)
		}
	}
	return u, nil
}

// Handle registers a as the handler of Call on p's hop, never in a batch. Call it before p.Run, which returns configuration
// errors.
func (a *Ambassador) Handle(p *participant.Participant) {
	participant.Handle(p, a.call, participant.Alone())
}

// call makes the request of a command. It writes nothing itself; it only returns the outcome.
func (a *Ambassador) call(ctx context.Context, _ pgx.Tx, c participant.Command[Call]) (participant.Outcome, error) {
	r := request{method: c.Body.Method, path: c.Body.Path, sign: a.cfg.Sign}
	if body := c.Body.Body; string(body) != "null" {
		r.body, r.contentType = body, envelope.JSON
	}
	got, err := a.ask(ctx, r, c.Message)
	if err != nil {
		return participant.Outcome{}, err
	}
	switch a.meaning(got.status) {
	case Done:
		if got.cut {
			return participant.Outcome{}, a.tooLarge(r, got)
		}
		return participant.Succeed(CallDone{Status: got.status, Body: got.asJSON()}), nil
	case Refused:
		refused := CallRefused{Status: got.status, Reason: got.reason()}
		if !got.cut {
			refused.Body = got.asJSON()
		}
		return participant.Refuse(refused), nil
	}
	return participant.Outcome{}, a.noOutcome(r, got)
}

func (a *Ambassador) tooLarge(r request, got answer) error {
	return retry.Permanent(fmt.Errorf("%s: %s with more than %d bytes: the service has executed the request; raise max-answer-kb and redrive, or let it answer less",
		r, got.text(), a.cfg.MaxBody))
}

// noOutcome returns the error for a response that is no outcome. It does not contain the response's text, which may be secret.
func (a *Ambassador) noOutcome(r request, got answer) error {
	switch {
	case a.meaning(got.status) == Again:
		return retry.After(fmt.Errorf("%s: %s", r, got.text()), got.wait(time.Now()))
	case got.status >= 300 && got.status <= 399:
		return retry.Permanent(fmt.Errorf("%s: %s, to %s: redirects are not followed; set service-url, or the path of the endpoint, to that address",
			r, got.text(), got.elsewhere(a.url(r.path))))
	}
	return retry.Permanent(fmt.Errorf("%s: status %s is no answer to a call", r, got.text()))
}
