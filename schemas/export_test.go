package schemas

import (
	"context"
	"time"

	"github.com/troupe-go/troupe/internal/avsc"
)

// The requests that only this package and the operator's tools make.

func (r *Registry) SetClock(now func() time.Time) { r.client.SetClock(now) }

func (r *Registry) ByID(ctx context.Context, id uint32) (string, error) {
	return r.client.ByID(ctx, id)
}

func (r *Registry) Latest(ctx context.Context, subject string) (uint32, string, error) {
	return r.client.Latest(ctx, subject)
}

func (r *Registry) Lookup(ctx context.Context, subject, avsc string) (uint32, error) {
	return r.client.Lookup(ctx, subject, avsc)
}

func (r *Registry) Versions(ctx context.Context, subject string) ([]avsc.Version, error) {
	return r.client.Versions(ctx, subject)
}

func (r *Registry) Level(ctx context.Context, subject string) (avsc.Level, error) {
	return r.client.Level(ctx, subject)
}

func (r *Registry) Accepts(ctx context.Context, subject, avsc string) (bool, []string, error) {
	return r.client.Accepts(ctx, subject, avsc)
}

func (r *Registry) DeleteSubjects(ctx context.Context, subjects ...string) error {
	return r.client.DeleteSubjects(ctx, subjects...)
}

// The limits.
const (
	MaxDepth  = maxDepth
	MaxValues = maxValues
	MaxEmpty  = maxEmpty
)
