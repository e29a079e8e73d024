package sidecar

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/retention"
)

func (p Program) retainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retain",
		Short: "Remove closed records that are older than their retention",
		Long: `retain removes ended sagas with their logs, closed dead letters and the log of operators' actions once
they are older than the table troupe.retention says. A relay whose role owns Troupe's tables does that once a
minute. Where no relay's role does, run retain as the owner, such as once a day. It works in small
transactions; one that was interrupted goes on when it runs again.`,
		Example: `  DATABASE_URL=postgres://shop_owner:…@127.0.0.1:5432/shop outbox-relay retain`,
		Args:    noArguments,
	}
	declareOne(cmd, databaseSettings...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		_, config, err := p.readDatabase(cmd, databaseSettings...)
		if err != nil {
			return err
		}
		given, err := pgxpool.NewWithConfig(cmd.Context(), config)
		if err != nil {
			return err
		}
		defer given.Close()
		pool, err := pg.SessionPool(given)
		if err != nil {
			return err
		}
		defer pool.Close()
		records, removed := retention.NewRecords(pool), retention.Removed{}
		for range 10 { // after a batch that took too long, the next pass removes half as many records at once
			var once retention.Removed
			once, err = records.Remove(cmd.Context())
			for kind, n := range once {
				removed[kind] += n
			}
			if !errors.Is(err, context.DeadlineExceeded) || cmd.Context().Err() != nil {
				break
			}
		}
		for _, kind := range []string{retention.Sagas, retention.DeadLetters, retention.Repairs} {
			if n, passed := removed[kind]; passed {
				if _, err := fmt.Fprintf(p.Stdout, "%s: %d removed\n", kind, n); err != nil {
					return err
				}
			}
		}
		return err
	}
	return cmd
}
