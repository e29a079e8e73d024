package registry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/payload"
	"github.com/troupe-go/troupe/internal/secrets"
)

// ErrNoSchema is wrapped by errors about an id or a subject for which the registry has no usable schema: none at all, one of a format
// that is not known, Avro with references, or one above the limits.
var ErrNoSchema = errors.New("no such schema")

// ErrRefused is wrapped by errors of a registry that answers, and refuses a subject or an id: for a missing right, for example. Other
// subjects may work. It does not cover wrong credentials, a server that is no registry, and requests that the registry asks to repeat.
var ErrRefused = errors.New("the registry refuses it")

// A Client is a client of a schema registry with Confluent's REST API. It caches the schema of each id, which never
// changes, and for a short time failures. It is safe for concurrent use.
//
// Errors contain the registry's own text and its address, but no credentials.
type Client struct {
	opts []sr.ClientOpt
	at   atomic.Pointer[endpoint]

	byID     *avsc.Cache[uint32, Stored]
	latest   *avsc.Cache[string, latest]
	failures failures
}

// An endpoint is where a Client sends its requests.
type endpoint struct {
	client  *sr.Client
	address string       // without credentials
	secrets secrets.List // of this address and the replaced ones, as a response could repeat them
}

// New creates a client for the registry at address, an http or https URL, whose user and password, if any, become
// basic authentication. With these, plain http is accepted only for this machine. New does not connect. A request
// takes at most 10 s, and a response has at most 4 MiB. opts are options of package sr and override what address
// sets: TLS, tokens, another http client.
func New(address string, opts ...sr.ClientOpt) (*Client, error) {
	at, err := newEndpoint(address, opts)
	if err != nil {
		return nil, err
	}
	r := &Client{
		opts: opts, byID: avsc.NewCache[uint32, Stored](), latest: avsc.NewCache[string, latest](), failures: newFailures(),
	}
	r.at.Store(at)
	return r, nil
}

// Replace makes later requests go to another address of the same registry, or with other credentials. Requests under way go on,
// and cached schemas stay. After an error nothing has changed. Call it from one goroutine at a time.
func (r *Client) Replace(address string) error {
	next, err := newEndpoint(address, r.opts)
	if err != nil {
		return err
	}
	next.secrets = next.secrets.And(r.at.Load().secrets)
	r.at.Store(next)
	return nil
}

func newEndpoint(address string, opts []sr.ClientOpt) (*endpoint, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		// The address is not quoted: it may contain a password anywhere.
		return nil, errors.New("registry: want an address such as https://registry.example:8081")
	}
	user := u.User
	u.User = nil
	var hidden secrets.List
	base := []sr.ClientOpt{
		sr.URLs(u.String()),
		sr.HTTPClient(&http.Client{Timeout: 10 * time.Second}),
		sr.UserAgent("troupe"),
	}
	if user != nil {
		if u.Scheme == "http" && !loopback(u.Hostname()) {
			return nil, fmt.Errorf("registry %s: a password does not go over plain http to another machine: use https", u)
		}
		password, _ := user.Password()
		base = append(base, sr.BasicAuth(user.Username(), password))
		hidden = secrets.New(secrets.BasicAuth(user.Username(), password)...)
	}
	client, err := newBoundedClient(append(base, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("registry %s: %w", u, err)
	}
	return &endpoint{client: client, address: u.String(), secrets: hidden}, nil
}

func (r *Client) client() *sr.Client { return r.at.Load().client }

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Now returns the time by the clock by which failures expire.
func (r *Client) Now() time.Time { return r.failures.now() }

// SetClock replaces that clock, for tests.
func (r *Client) SetClock(now func() time.Time) { r.failures.now = now }

// String returns the address without credentials.
func (r *Client) String() string { return r.at.Load().address }

// Register adds a schema to the versions of subject, unless it is one of them, and returns its id. The registry refuses a schema
// that is incompatible with the subject's history, by its own rules.
func (r *Client) Register(ctx context.Context, subject string, s sr.Schema) (uint32, error) {
	id, err := r.client().RegisterSchema(ctx, subject, s, -1, -1)
	if err != nil {
		return 0, fmt.Errorf("register subject %s: %w", subject, r.explain(err))
	}
	return r.remember(id, s)
}

// Lookup returns the id and the version of a schema among subject's, and changes nothing. The error wraps ErrNoSchema if it is not there.
func (r *Client) Lookup(ctx context.Context, subject string, s sr.Schema) (id uint32, version int, err error) {
	found, err := r.client().LookupSchema(ctx, subject, s)
	if isUnknown(err) {
		return 0, 0, fmt.Errorf("%w under subject %s at %s: register it first", ErrNoSchema, subject, r)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("look up subject %s: %w", subject, r.explain(err))
	}
	id, err = r.remember(found.ID, s)
	return id, found.Version, err
}

// Versions returns all versions of subject, oldest first, labelled "version 1" and so on. No versions are not an error. A
// version that is not Avro, or has references, is an error that wraps ErrNoSchema.
func (r *Client) Versions(ctx context.Context, subject string) ([]avsc.Version, error) {
	all, err := r.client().Schemas(ctx, subject)
	if isUnknown(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("versions of subject %s: %w", subject, r.explain(err))
	}
	versions := make([]avsc.Version, 0, len(all))
	for _, s := range all {
		if err := plainAvro(s.Schema); err != nil {
			return nil, fmt.Errorf("subject %s, version %d: %w", subject, s.Version, err)
		}
		versions = append(versions, avsc.Version{Label: fmt.Sprintf("version %d", s.Version), Avsc: s.Schema.Schema})
	}
	return versions, nil
}

// Newest returns the newest version of subject, of any format, with its label. Without one the label is empty.
func (r *Client) Newest(ctx context.Context, subject string) (label string, s Stored, err error) {
	newest, err := r.client().SchemaByVersion(ctx, subject, -1)
	if isUnknown(err) {
		return "", s, nil
	}
	if err != nil {
		return "", s, fmt.Errorf("newest version of subject %s: %w", subject, r.explain(err))
	}
	if s, err = r.complete(ctx, newest.Schema); err != nil {
		return "", s, fmt.Errorf("subject %s, version %d: %w", subject, newest.Version, err)
	}
	return fmt.Sprintf("version %d", newest.Version), s, nil
}

// Level returns the compatibility level that the registry applies to subject: the subject's own, else the registry's.
func (r *Client) Level(ctx context.Context, subject string) (avsc.Level, error) {
	answer := r.client().Compatibility(sr.WithParams(ctx, sr.DefaultToGlobal), subject)[0]
	if isUnknown(answer.Err) { // some registries do not know the parameter
		answer = r.client().Compatibility(ctx)[0]
	}
	if answer.Err != nil {
		return "", fmt.Errorf("compatibility level of subject %s: %w", subject, r.explain(answer.Err))
	}
	level, err := avsc.ParseLevel(answer.Level.String())
	if err != nil {
		return "", fmt.Errorf("registry %s: subject %s: %w", r, subject, err)
	}
	return level, nil
}

// Accepts reports whether the registry would register a schema under subject, by its own rules and level. If not, reasons holds
// its texts, possibly none.
func (r *Client) Accepts(ctx context.Context, subject string, s sr.Schema) (ok bool, reasons []string, err error) {
	answer, err := r.client().CheckCompatibility(sr.WithParams(ctx, sr.Verbose), subject, -2, s)
	if isUnknown(err) {
		return true, nil, nil // there are no versions to be incompatible with
	}
	if err != nil {
		return false, nil, fmt.Errorf("compatibility with subject %s: %w", subject, r.explain(err))
	}
	return answer.Is, answer.Messages, nil
}

// remember stores a schema without references under its id.
func (r *Client) remember(id int, s sr.Schema) (uint32, error) {
	checked, err := r.checkID(id)
	if err == nil && len(s.References) == 0 {
		r.Keep(checked, Stored{s.Type, payload.Source{Text: s.Schema}})
	}
	return checked, err
}

func (r *Client) checkID(id int) (uint32, error) {
	if id <= 0 || id > math.MaxInt32 {
		return 0, fmt.Errorf("registry %s: its response has schema id %d, want 1 to %d", r, id, math.MaxInt32)
	}
	return uint32(id), nil
}

// DeleteSubjects deletes subjects with all their versions, first softly, then permanently. A missing subject is not an error.
// It continues after a failure and returns all failures, joined. Codecs keep the ids that they have cached.
func (r *Client) DeleteSubjects(ctx context.Context, subjects ...string) error {
	var failed []error
	for _, s := range subjects {
		for _, how := range []sr.DeleteHow{sr.SoftDelete, sr.HardDelete} {
			if _, err := r.client().DeleteSubject(ctx, s, how); err != nil && !isUnknown(err) {
				failed = append(failed, fmt.Errorf("delete subject %s: %w", s, r.explain(err)))
				break
			}
		}
	}
	return errors.Join(failed...)
}

// isUnknown reports whether the registry itself returned that it does not have the schema or subject. A 404 without one of
// its codes comes from another server at that address.
func isUnknown(err error) bool {
	var answer *sr.ResponseError
	return errors.As(err, &answer) && sr.IsNotFoundError(answer.ErrorCode)
}

// explain adds the registry's address and the status, and shortens the text, which can be a whole page of HTML. A server in front of
// the registry may repeat the request, so the password is removed.
func (r *Client) explain(err error) error {
	var answer *sr.ResponseError
	if !errors.As(err, &answer) {
		// Package net/http quotes an answer that is no HTTP, which may repeat the request.
		return fmt.Errorf("registry %s: %w", r, r.at.Load().secrets.HideIn(err))
	}
	text := r.at.Load().secrets.Hide(strings.ToValidUTF8(answer.Error(), ""))
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	cut := *answer
	cut.Raw, cut.Message = nil, text // errors are kept for a while
	return &refusal{fmt.Sprintf("registry %s: status %d: %s", r, answer.StatusCode, text), &cut}
}

// A refusal is a shortened error response of the registry; it wraps a *sr.ResponseError with the shortened text.
type refusal struct {
	text   string
	answer error
}

func (r *refusal) Error() string { return r.text }

// Is makes a refusal an ErrRefused if the status blames the request.
func (r *refusal) Is(target error) bool {
	var answer *sr.ResponseError
	if target != ErrRefused || !errors.As(r.answer, &answer) {
		return false
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return answer.StatusCode >= 400 && answer.StatusCode < 500
}

func (r *refusal) Unwrap() error { return r.answer }
