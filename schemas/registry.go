package schemas

import (
	"context"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/registry"
)

var (
	// ErrNoSchema is wrapped by errors about an id or a subject for which the registry has no usable schema: none at all, one of a
	// format that the Codec does not have, Avro with references, or one above the limits.
	ErrNoSchema = registry.ErrNoSchema
	// ErrRefused is wrapped by errors of a registry that answers, and refuses a subject or an id: for a missing right, for example.
	// Other subjects may work. It does not cover wrong credentials, a server that is no registry, and requests that the registry
	// asks to repeat.
	ErrRefused = registry.ErrRefused
)

// A Registry is a client of a schema registry with Confluent's REST API. It caches the schema of each id, which never
// changes, and for a short time failures. It is safe for concurrent use.
//
// Errors contain the registry's own text and its address, but no credentials.
type Registry struct{ client *registry.Client }

// NewRegistry creates a client for the registry at address, an http or https URL, whose user and password, if any, become
// basic authentication. With these, plain http is accepted only for this machine. NewRegistry does not connect. A request
// takes at most 10 s, and a response has at most 4 MiB. opts are options of package sr and override what address
// sets: TLS, tokens, another http client.
func NewRegistry(address string, opts ...sr.ClientOpt) (*Registry, error) {
	client, err := registry.New(address, opts...)
	if err != nil {
		return nil, err
	}
	return &Registry{client}, nil
}

// String returns the address without credentials.
func (r *Registry) String() string { return r.client.String() }

// Replace makes later requests go to another address of the same registry, or with other credentials. Requests under way go on, and
// cached schemas stay. After an error nothing has changed. Call it from one goroutine at a time; the registry may be in use meanwhile.
func (r *Registry) Replace(address string) error { return r.client.Replace(address) }

// Register adds avsc to the versions of subject, unless it is one of them, and returns its id. The registry refuses a schema
// that is incompatible with the subject's history, by its own rules. New registers the types of a Codec; Register is for the
// subjects of a JSONEncoder, as the command `troupe schema register` is.
func (r *Registry) Register(ctx context.Context, subject, avsc string) (uint32, error) {
	return r.client.Register(ctx, subject, sr.Schema{Schema: avsc})
}

// A tree is a parsed schema, with the conversion of values.
type tree struct{ avsc.Tree }
