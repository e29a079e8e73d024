package payload

import (
	"context"

	"github.com/twmb/franz-go/pkg/sr"
)

// A Registry registers schemas and finds them.
type Registry interface {
	Register(ctx context.Context, subject string, s sr.Schema) (uint32, error)
	Lookup(ctx context.Context, subject string, s sr.Schema) (id uint32, version int, err error)
}

// Refer returns the schema of the last file, with references to the files that it imports. It registers these under their names, unless
// readOnly is set; then one that is missing is an error.
func Refer(ctx context.Context, r Registry, format sr.SchemaType, files []File, readOnly bool) (sr.Schema, error) {
	known := make(map[string]sr.SchemaReference, len(files))
	var s sr.Schema
	for i, f := range files {
		s = sr.Schema{Schema: f.Text, Type: format}
		for _, name := range f.Imports {
			s.References = append(s.References, known[name])
		}
		if i == len(files)-1 {
			break
		}
		if !readOnly {
			if _, err := r.Register(ctx, f.Name, s); err != nil {
				return s, err
			}
		}
		_, version, err := r.Lookup(ctx, f.Name, s)
		if err != nil {
			return s, err
		}
		known[f.Name] = sr.SchemaReference{Name: f.Name, Subject: f.Name, Version: version}
	}
	return s, nil
}
