// Command library takes part in the flow library as its hops loan, locker and pickup. The hop pickup runs a saga over the two others.
//
//	library                                 make the tables, unless MIGRATE=false, and serve until SIGTERM
//	library migrate                         only make the tables
//	library pickup LOAN READER ISBN BRANCH  start a saga to try it
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/migrations"
	"github.com/troupe-go/troupe/participant"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := zerolog.New(os.Stderr).With().Timestamp().Logger()
	if err := run(ctx, os.Args[1:], log); err != nil {
		log.Error().Err(err).Msg("ended")
		os.Exit(1)
	}
}

// run makes the tables, and then runs the command that args name.
func run(ctx context.Context, args []string, log zerolog.Logger) error {
	database, brokers := os.Getenv("DATABASE_URL"), os.Getenv("KAFKA_BROKERS")
	only := len(args) == 1 && args[0] == "migrate"
	if database == "" || brokers == "" && !only {
		return errors.New("DATABASE_URL or KAFKA_BROKERS is not set: README.md says how to start both, and what to export")
	}
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	if only || os.Getenv("MIGRATE") != "false" {
		if err := migrate(ctx, database, pool); err != nil || only {
			return err
		}
	}
	codec, err := newCodec(ctx, os.Getenv("SCHEMA_REGISTRY_URL"))
	if err != nil {
		return fmt.Errorf("SCHEMA_REGISTRY_URL: %w", err)
	}
	s, err := newService(ctx, participant.Config{Pool: pool, Brokers: strings.Split(brokers, ","), Log: log}, codec)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 0:
		log.Info().Msg("serving")
		return s.run(ctx)
	case len(args) == 5 && args[0] == "pickup":
		return s.start(ctx, args[1], args[2], args[3], args[4])
	}
	return fmt.Errorf("%q: want nothing, migrate, or pickup LOAN READER ISBN BRANCH", args)
}

// migrate makes the schema troupe, and our tables beside it.
func migrate(ctx context.Context, database string, pool *pgxpool.Pool) error {
	err := migrations.Up(ctx, database)
	if err == nil {
		_, err = pool.Exec(ctx, tables)
	}
	if err != nil {
		return fmt.Errorf("make the tables: %w; if this role may make none, run the command migrate with a role that may, "+
			"and set MIGRATE=false for this one", err)
	}
	return nil
}
