package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/internal/address"
	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/schemas"
)

// tryLimit bounds one attempt to reach a server.
const tryLimit = 15 * time.Second

// logEvery is the interval at which a wait is logged.
const logEvery = 30 * time.Second

// minConns is the minimum size of the pool: enough for all partitions at once, and for HTTP requests.
const minConns = 10

// openDatabase waits for Postgres and creates the missing tables, Troupe's and the service's.
func openDatabase(ctx context.Context, cfg Config, schema string) (*pgxpool.Pool, error) {
	config, err := address.ParsePool(cfg.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	config.MaxConns = max(config.MaxConns, minConns)
	if cfg.Dial != nil {
		config.ConnConfig.DialFunc = cfg.Dial
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL: %w", err)
	}
	err = await(ctx, cfg.Log, "database", func(ctx context.Context) error {
		if err := migrations.Up(ctx, cfg.DatabaseURL); err != nil {
			return err
		}
		return makeTables(ctx, pool, schema)
	})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// makeTables creates the service's tables under an advisory lock: two processes that create one table at the same time would
// collide.
func makeTables(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('troupe demo tables', 0))"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, schema)
		return err
	})
}

// openCodec waits for the registry, which assigns every message type its schema id.
func openCodec(ctx context.Context, cfg Config) (*schemas.Codec, error) {
	registry, err := schemas.NewRegistry(cfg.Registry)
	if err != nil {
		return nil, fmt.Errorf("SCHEMA_REGISTRY_URL: %w", err)
	}
	var codec *schemas.Codec
	err = await(ctx, cfg.Log, "schema registry", func(ctx context.Context) (err error) {
		codec, err = schemas.New(ctx, schemas.Config{Registry: registry, Types: messages.Types()})
		return err
	})
	return codec, err
}

// await repeats try until it succeeds, ctx ends, or the error is one that a retry cannot cure (hopeless).
func await(ctx context.Context, log zerolog.Logger, what string, try func(context.Context) error) error {
	policy := retry.Policy{Initial: 100 * time.Millisecond, Cap: 5 * time.Second}
	var logged time.Time
	for failed := 1; ; failed++ {
		limited, cancel := context.WithTimeout(ctx, tryLimit)
		err := try(limited)
		cancel()
		switch {
		case err == nil:
			if failed > 1 {
				log.Info().Int("failures", failed-1).Msgf("the %s answers", what)
			}
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case hopeless(err):
			return fmt.Errorf("%s: %w", what, err)
		}
		if time.Since(logged) >= logEvery {
			log.Warn().Err(err).Int("failures", failed).Msgf("waiting for the %s", what)
			logged = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(policy.Wait(failed)):
		}
	}
}

// hopeless reports whether the server answered with an error that only an operator can cure: authentication (class 28 of the
// Postgres manual, appendix A), an unknown database (3D), or missing rights (42501).
func hopeless(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && (strings.HasPrefix(answer.Code, "28") || strings.HasPrefix(answer.Code, "3D") || answer.Code == "42501")
}
