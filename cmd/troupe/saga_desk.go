package main

import (
	"context"

	"github.com/troupe-go/troupe/saga/coordinator"
)

// sagaFlags holds the flags for the database, as deskFlags does.
type sagaFlags struct{ deskFlags }

func (f *sagaFlags) openSagas(ctx context.Context) (desk *coordinator.Desk, end func(), err error) {
	pool, codec, err := f.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	cfg := coordinator.DeskConfig{Pool: pool}
	if codec != nil {
		cfg.Schemas = codec
	}
	if desk, err = coordinator.NewDesk(cfg); err != nil {
		pool.Close()
		return nil, nil, failed(err)
	}
	return desk, pool.Close, nil
}
