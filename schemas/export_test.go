package schemas

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/troupe-go/troupe/internal/avsc"
)

// The requests that only this package and the operator's tools make.

func (r *Registry) SetClock(now func() time.Time) { r.client.SetClock(now) }

func (r *Registry) ByID(ctx context.Context, id uint32) (string, error) {
	s, err := r.client.ByID(ctx, id)
	return s.Source.Text, err
}

func (r *Registry) Latest(ctx context.Context, subject string) (uint32, string, error) {
	id, err := r.client.Latest(ctx, subject)
	if err != nil {
		return 0, "", err
	}
	text, err := r.ByID(ctx, id)
	return id, text, err
}

func (r *Registry) Lookup(ctx context.Context, subject, avsc string) (uint32, error) {
	id, _, err := r.client.Lookup(ctx, subject, sr.Schema{Schema: avsc})
	return id, err
}

func (r *Registry) Versions(ctx context.Context, subject string) ([]avsc.Version, error) {
	return r.client.Versions(ctx, subject)
}

func (r *Registry) Level(ctx context.Context, subject string) (avsc.Level, error) {
	return r.client.Level(ctx, subject)
}

func (r *Registry) Accepts(ctx context.Context, subject, avsc string) (bool, []string, error) {
	return r.client.Accepts(ctx, subject, sr.Schema{Schema: avsc})
}

func (r *Registry) DeleteSubjects(ctx context.Context, subjects ...string) error {
	return r.client.DeleteSubjects(ctx, subjects...)
}

// The limits.
const (
	MaxDepth  = maxDepth
	MaxValues = maxValues
	MaxEmpty  = maxEmpty

	MaxConverted = maxConverted
)
