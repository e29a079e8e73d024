package main

import (
	"context"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
)

// sagaFlags holds the flags for the database, as deskFlags does.
type sagaFlags struct{ deskFlags }

func (f *sagaFlags) openSagas(ctx context.Context) (desk *sagadesk.Desk, end func(), err error) {
	pool, codec, err := f.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	cfg := sagadesk.Config{Pool: pool}
	if codec != nil {
		cfg.Schemas = codec
	}
	if desk, err = sagadesk.New(cfg); err != nil {
		pool.Close()
		return nil, nil, failed(err)
	}
	return desk, pool.Close, nil
}
