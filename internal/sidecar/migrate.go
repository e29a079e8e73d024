package sidecar

import (
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/troupe-go/troupe/internal/pg"
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
outbox, it adds partitions.

With --print it prints the statements and connects to nothing, for a migration tool of your own. The
statements record the versions in troupe.migrations, so that migrate, check and the services' libraries know
of them. --after leaves out versions that the database has: outbox-relay status names its version.`,
		Example: `  DATABASE_URL=postgres://shop:…@127.0.0.1:5432/shop outbox-relay migrate
  outbox-relay migrate --print > V7__troupe.sql
  outbox-relay migrate --print --after 11 > V8__troupe.sql`,
		Args: noArguments,
	}
	declareOne(cmd, databaseSettings...)
	print := cmd.Flags().Bool("print", false, "print the statements, and run none")
	after := cmd.Flags().Int64("after", 0, "with --print, leave out the versions up to `n`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *print {
			statements, err := migrations.SQL(*after)
			if err == nil && statements == "" {
				statements = fmt.Sprintf("-- There is no version after %d.\n", *after)
			}
			if err == nil {
				_, err = io.WriteString(p.Stdout, statements)
			}
			return err
		}
		if cmd.Flag("after").Changed {
			return usagef("after: want --print as well")
		}
		_, config, err := p.readDatabase(cmd, databaseSettings...)
		if err != nil {
			return err
		}
		now, err := pg.ConnConfig(cmd.Context(), config)
		if err != nil {
			return err
		}
		if err := migrations.UpConfig(cmd.Context(), now); err != nil {
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
		s, err := migrations.GetConfig(cmd.Context(), now)
		if err != nil {
			return err
		}
		newer := ""
		if s.Current > s.Latest {
			newer = fmt.Sprintf(", which is newer than this program's %d: nothing was changed", s.Latest)
		}
		_, err = fmt.Fprintf(p.Stdout, "%s is at version %d%s\n", config.ConnConfig.Database, s.Current, newer)
		return err
	}
	return cmd
}
