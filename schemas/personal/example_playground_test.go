package personal_test

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/devstack"
	"github.com/troupe-go/troupe/migrations"
)

// playground is an empty database with Troupe's tables.
func playground(ctx context.Context) (pool *pgxpool.Pool, end func(), err error) {
	db, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{})
	if err != nil {
		return nil, nil, err
	}
	end = func() {
		if pool != nil {
			pool.Close()
		}
		_ = db.Close()
	}
	url, err := db.CreateDatabase(ctx, "customers", "")
	if err == nil {
		err = migrations.Up(ctx, url)
	}
	if err == nil {
		pool, err = pgxpool.New(ctx, url)
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return pool, end, nil
}
