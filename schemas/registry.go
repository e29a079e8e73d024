package schemas

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
)

// ErrNoSchema is wrapped by errors about an id or a subject for which the registry has no schema that can be used
// here: none at all, one that is not Avro, or one with references.
var ErrNoSchema = errors.New("no such Avro schema")

// A Registry is a client of a schema registry that speaks Confluent's REST API. It remembers which schema an id stands
// for (that never changes) and, briefly, what went wrong. It may be used concurrently.
//
// Errors carry the registry's own words, its address and no credentials.
type Registry struct {
	client  *sr.Client
	address string

	byID    *cache[uint32, string]
	latest  *cache[string, latest]
	trouble trouble
}

// NewRegistry makes a client for the registry at address, an http or https URL, whose user and password, if it has
// them, become basic authentication. With them, plain http is accepted to this machine only. It does not connect.
// A request takes at most 10 s, and an answer has at most MaxAnswer bytes. opts are sr's own and win over what address says: TLS, tokens, another http client.
func NewRegistry(address string, opts ...sr.ClientOpt) (*Registry, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		// What was given is not repeated: it may hold a password at any place.
		return nil, errors.New("registry: the address is no URL like https://registry.example:8081")
	}
	user := u.User
	u.User = nil
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
	}
	client, err := newBoundedClient(append(base, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("registry %s: %w", u, err)
	}
	return &Registry{
		client:  client,
		address: u.String(),
		byID:    newCache[uint32, string](),
		latest:  newCache[string, latest](),
		trouble: newTrouble(),
	}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// String is the address without credentials.
func (r *Registry) String() string { return r.address }

// Register makes sure that subject has avsc among its versions and gives its id. A schema that is there already gets no
// new version. The registry refuses one that is incompatible with the subject's history, by its own rules.
func (r *Registry) Register(ctx context.Context, subject, avsc string) (uint32, error) {
	id, err := r.client.RegisterSchema(ctx, subject, sr.Schema{Schema: avsc}, -1, -1)
	if err != nil {
		return 0, fmt.Errorf("register subject %s: %w", subject, r.explain(err))
	}
	return r.remember(id, avsc)
}

// Lookup gives the id of avsc among subject's versions and changes nothing. An error wraps ErrNoSchema if it is not
// there.
func (r *Registry) Lookup(ctx context.Context, subject, avsc string) (uint32, error) {
	found, err := r.client.LookupSchema(ctx, subject, sr.Schema{Schema: avsc})
	if isUnknown(err) {
		return 0, fmt.Errorf("%w under subject %s at %s: register it first", ErrNoSchema, subject, r)
	}
	if err != nil {
		return 0, fmt.Errorf("look up subject %s: %w", subject, r.explain(err))
	}
	return r.remember(found.ID, avsc)
}

// Versions are all versions of subject, oldest first, labelled "version 1" and so on. None are no error. One that is not
// Avro, or has references, is an error that wraps ErrNoSchema.
func (r *Registry) Versions(ctx context.Context, subject string) ([]Version, error) {
	all, err := r.client.Schemas(ctx, subject)
	if isUnknown(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("versions of subject %s: %w", subject, r.explain(err))
	}
	versions := make([]Version, 0, len(all))
	for _, s := range all {
		if err := usable(s.Schema); err != nil {
			return nil, fmt.Errorf("subject %s, version %d: %w", subject, s.Version, err)
		}
		versions = append(versions, Version{fmt.Sprintf("version %d", s.Version), s.Schema.Schema})
	}
	return versions, nil
}

// Level is the compatibility level that the registry holds subject to: its own, else the registry's.
func (r *Registry) Level(ctx context.Context, subject string) (Level, error) {
	answer := r.client.Compatibility(sr.WithParams(ctx, sr.DefaultToGlobal), subject)[0]
	if isUnknown(answer.Err) { // not all registries know the parameter
		answer = r.client.Compatibility(ctx)[0]
	}
	if answer.Err != nil {
		return "", fmt.Errorf("compatibility level of subject %s: %w", subject, r.explain(answer.Err))
	}
	level, err := ParseLevel(answer.Level.String())
	if err != nil {
		return "", fmt.Errorf("registry %s: subject %s: %w", r, subject, err)
	}
	return level, nil
}

// Accepts asks whether the registry would register avsc under subject, by its own rules and level. If not, reasons are
// its words, which may be none.
func (r *Registry) Accepts(ctx context.Context, subject, avsc string) (ok bool, reasons []string, err error) {
	answer, err := r.client.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), subject, -2, sr.Schema{Schema: avsc})
	if isUnknown(err) {
		return true, nil, nil // nothing to be incompatible with
	}
	if err != nil {
		return false, nil, fmt.Errorf("compatibility with subject %s: %w", subject, r.explain(err))
	}
	return answer.Is, answer.Messages, nil
}

func (r *Registry) remember(id int, avsc string) (uint32, error) {
	if id <= 0 || id > math.MaxInt32 {
		return 0, fmt.Errorf("registry %s: its answer has schema id %d, want 1 to %d", r, id, math.MaxInt32)
	}
	r.byID.put(uint32(id), avsc)
	return uint32(id), nil
}

// DeleteSubjects removes subjects with all their versions, first softly, then for good. One that is not there is no
// error. It goes on after a failure and returns them all, joined. Ids already handed out are not forgotten by codecs.
func (r *Registry) DeleteSubjects(ctx context.Context, subjects ...string) error {
	var failed []error
	for _, s := range subjects {
		for _, how := range []sr.DeleteHow{sr.SoftDelete, sr.HardDelete} {
			if _, err := r.client.DeleteSubject(ctx, s, how); err != nil && !isUnknown(err) {
				failed = append(failed, fmt.Errorf("delete subject %s: %w", s, r.explain(err)))
				break
			}
		}
	}
	return errors.Join(failed...)
}

// isUnknown says whether the registry itself says that it does not have it. A 404 without one of its codes comes from
// something else at that address.
func isUnknown(err error) bool {
	var answer *sr.ResponseError
	return errors.As(err, &answer) && sr.IsNotFoundError(answer.ErrorCode)
}

// explain adds who spoke and which status it was, and cuts what can be a whole page of HTML.
func (r *Registry) explain(err error) error {
	var answer *sr.ResponseError
	if !errors.As(err, &answer) {
		return fmt.Errorf("registry %s: %w", r, err)
	}
	text := strings.ToValidUTF8(answer.Error(), "")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	return &refusal{fmt.Sprintf("registry %s: status %d: %s", r, answer.StatusCode, text), err}
}

// A refusal is the registry's answer in fewer words; the whole one is behind it.
type refusal struct {
	text   string
	answer error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.answer }
