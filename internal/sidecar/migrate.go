package sidecar

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/retention"
	"github.com/troupe-go/troupe/migrations"
)

func (p Program) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to the latest version",
		Long: `migrate makes Troupe's tables in the schema "troupe", or brings them to the latest version. It is
safe to run at any time, also from several places at once. The role needs CREATE on the database
the first time, and owns the tables from then on. If few positions are left in the partitions of the
outbox, it adds partitions.`,
		Example: `  DATABASE_URL=postgres://shop:…@127.0.0.1:5432/shop outbox-relay migrate`,
		Args:    noArguments,
	}
	declareOne(cmd, databaseSettings...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v, err := p.read(cmd, databaseSettings...)
		if err != nil {
			return err
		}
		config, err := v.database()
		if err != nil {
			return err
		}
		if err := migrations.UpConfig(cmd.Context(), config.ConnConfig); err != nil {
			return err
		}
		pool, err := pgxpool.NewWithConfig(cmd.Context(), config)
		if err != nil {
			return err
		}
		defer pool.Close()
		if _, err := (retention.Partitions{}).Ensure(cmd.Context(), pool); err != nil {
			return err
		}
		s, err := migrations.GetConfig(cmd.Context(), config.ConnConfig)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.Stdout, "%s is at version %d\n", config.ConnConfig.Database, s.Current)
		return err
	}
	return cmd
}
