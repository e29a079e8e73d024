package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/internal/avsc"
	"github.com/troupe-go/troupe/internal/payload"
)

// maxReferences is the number of schemas that one schema may refer to, also indirectly.
const maxReferences = 100

// Stored is a schema of the registry, with all schemas that it refers to.
type Stored struct {
	Format sr.SchemaType
	Source payload.Source
}

// Keep stores a schema that the registry has under id.
func (r *Client) Keep(id uint32, s Stored) { r.byID.Put(id, s, s.Source.Size()) }

// plainAvro returns an error for a schema that is not Avro, has references, or is too large.
func plainAvro(s sr.Schema) error {
	var err error
	switch {
	case s.Schema == "":
		return errors.New("the response of the registry has no schema")
	case s.Type != sr.TypeAvro:
		err = fmt.Errorf("it is %s", s.Type)
	case len(s.References) > 0:
		err = errors.New("it has references to other subjects")
	default:
		err = avsc.CheckSize(s.Schema)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoSchema, err)
	}
	return nil
}

// complete gets the schemas that s refers to. Avro schemas with references are not supported.
func (r *Client) complete(ctx context.Context, s sr.Schema) (Stored, error) {
	whole := Stored{Format: s.Type, Source: payload.Source{Text: s.Schema}}
	if s.Type == sr.TypeAvro || s.Schema == "" {
		return whole, plainAvro(s)
	}
	if len(s.Schema) > avsc.MaxSchema {
		return whole, fmt.Errorf("%w: the schema has %d bytes, more than %d", ErrNoSchema, len(s.Schema), avsc.MaxSchema)
	}
	more := fmt.Errorf("%w: it refers to more than %d schemas", ErrNoSchema, maxReferences)
	if len(s.References) > maxReferences {
		return whole, more
	}
	for queue := s.References; len(queue) > 0; queue = queue[1:] {
		ref := queue[0]
		if _, known := whole.Source.Imports[ref.Name]; known {
			continue
		}
		if len(whole.Source.Imports) == maxReferences {
			return whole, more
		}
		next, err := r.client().SchemaByVersion(ctx, ref.Subject, ref.Version)
		if isUnknown(err) {
			return whole, fmt.Errorf("%w: it refers to subject %s, version %d, which the registry does not have", ErrNoSchema, ref.Subject, ref.Version)
		}
		if err != nil {
			return whole, err
		}
		if len(next.References) > maxReferences { // a response may have a hundred thousand
			return whole, more
		}
		if next.Type != s.Type {
			return whole, fmt.Errorf("%w: it refers to subject %s, which is %s", ErrNoSchema, ref.Subject, next.Type)
		}
		if whole.Source.Imports == nil {
			whole.Source.Imports = make(map[string]string)
		}
		whole.Source.Imports[ref.Name] = next.Schema.Schema
		if size := whole.Source.Size(); size > avsc.MaxSchema {
			return whole, fmt.Errorf("%w: the schema and those it refers to have more than %d bytes", ErrNoSchema, avsc.MaxSchema)
		}
		queue = append(queue, next.References...)
	}
	return whole, nil
}
