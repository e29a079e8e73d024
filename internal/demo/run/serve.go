package run

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/internal/demo"
)

// Services returns the names of the demo's services, each of which needs a database of that name in a World.
func Services() []string { return slices.Clone(services) }

// Serve runs the demo's services in this process, on the servers of w, until ctx ends. Each serves HTTP on its default
// address. It posts no orders and checks nothing.
func Serve(ctx context.Context, w World, style demo.Style, log zerolog.Logger) error {
	group, running := errgroup.WithContext(ctx)
	for _, name := range services {
		group.Go(func() error {
			return runs[name](running, demo.Config{
				DatabaseURL: w.Databases[name], Brokers: w.Brokers, Registry: w.Registry, Style: style, Flow: w.Flow,
				Log: log.With().Str("service", name).Logger(),
			})
		})
	}
	if err := group.Wait(); err != nil && !(ctx.Err() != nil && errors.Is(err, ctx.Err())) {
		return err
	}
	return nil
}
