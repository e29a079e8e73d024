// Package migrations holds every table of Troupe in one history that only goes forward. A migration is never edited once it was
// released.
//
// All tables are in the Postgres schema "troupe" of the service's own database, separate from the service's tables. The history's
// own table is troupe.migrations.
package migrations

import (
	"context"
	"database/sql" //nolint:depguard // goose takes no other
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/troupe-go/troupe/internal/address"
)

//go:embed sql/*.sql
var files embed.FS

// Status has the version of a database. Latest is the version of this program's last migration. If Current is greater, a newer
// version of Troupe has migrated the database.
type Status struct {
	Current int64
	Latest  int64
	// Unrecorded is true if another tool than Up created tables and did not record their version: Current is the version of the tables,
	// which the history does not list. Up records it.
	Unrecorded bool
}

// Pending reports whether Up would change anything.
func (s Status) Pending() bool { return s.Current < s.Latest }

// makeSchema runs first, since the history's table is in the schema. IF NOT EXISTS alone does not make two concurrent callers
// safe: the second fails on the catalogue's unique index, once the first has created the schema.
const makeSchema = `
DO $$ BEGIN
  CREATE SCHEMA IF NOT EXISTS troupe;
EXCEPTION WHEN unique_violation OR duplicate_schema THEN
  NULL;
END $$`

// Up brings the database at url to the latest version. Concurrent callers wait for each other. The role needs CREATE on the
// database, and owns the created tables. A role with fewer rights may call it if there is nothing to do, with USAGE on the schema
// troupe and SELECT on troupe.migrations. If a newer version has migrated the database, Up does nothing and returns
// nil: migrations only add, so programs of an earlier version work with the tables.
func Up(ctx context.Context, url string) error {
	config, err := address.ParseConn(url)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	return UpConfig(ctx, config)
}

// UpConfig is Up for a connection that a URL cannot express, for instance with certificates that are read at each connection.
func UpConfig(ctx context.Context, config *pgx.ConnConfig) error {
	s, err := GetConfig(ctx, config)
	if errors.Is(err, ErrPartial) {
		return err
	}
	complete := err == nil && s.Current >= s.Latest
	if complete && !s.Unrecorded {
		return nil
	}
	return with(config, func(db *sql.DB, p *goose.Provider) error {
		_, err := db.ExecContext(ctx, makeSchema)
		if err == nil && s.Unrecorded {
			err = record(ctx, db, s.Current)
		}
		if err == nil {
			_, err = p.Up(ctx)
		}
		if err != nil && complete {
			return nil // the tables are complete, and this role may not record their version
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "42501" {
			return fmt.Errorf("%w: let the role that owns the schema troupe migrate beforehand (outbox-relay migrate); "+
				"with GRANT SELECT ON troupe.migrations TO %s this role can see that there is nothing to do", err, pgx.Identifier{config.User}.Sanitize())
		}
		return err
	})
}

// Get returns the version of the database at url, and changes nothing. The version of a database without Troupe's schema is 0.
// If the tables are of a later version than the history lists, Get returns the version of the tables. If the history lists no version and
// the tables match none, Get returns ErrPartial.
func Get(ctx context.Context, url string) (Status, error) {
	config, err := address.ParseConn(url)
	if err != nil {
		return Status{}, fmt.Errorf("migrations: %w", err)
	}
	return GetConfig(ctx, config)
}

// GetConfig is Get for a connection that a URL cannot express.
func GetConfig(ctx context.Context, config *pgx.ConnConfig) (Status, error) {
	var s Status
	err := with(config, func(db *sql.DB, p *goose.Provider) error {
		sources := p.ListSources()
		s.Latest = sources[len(sources)-1].Version
		var err error
		if s.Current, err = recorded(ctx, db); err != nil {
			return err
		}
		if s.Current >= s.Latest {
			return nil
		}
		tables, odd := versionOfTables(ctx, db, sources)
		// A concurrent Up may have recorded versions since.
		if s.Current, err = recorded(ctx, db); err != nil {
			return err
		}
		switch {
		case odd == nil && tables > s.Current:
			s.Current, s.Unrecorded = tables, true
		case s.Current == 0:
			return odd
		}
		return nil
	})
	return s, err
}

// recorded returns the highest version that the history lists; 0 if there is none.
func recorded(ctx context.Context, db *sql.DB) (version int64, err error) {
	var exists bool
	err = db.QueryRowContext(ctx, "SELECT to_regclass('troupe.migrations') IS NOT NULL").Scan(&exists)
	if err != nil || !exists {
		return 0, err
	}
	err = db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM troupe.migrations").Scan(&version)
	return version, err
}

func with(config *pgx.ConnConfig, do func(*sql.DB, *goose.Provider) error) error {
	config = config.Copy()
	address.OwnNames(&config.Config)
	db := stdlib.OpenDB(*config)
	defer db.Close()
	sqlFiles, err := fs.Sub(files, "sql")
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	store, err := database.NewStore(database.DialectPostgres, "troupe.migrations")
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	p, err := goose.NewProvider("", db, sqlFiles, goose.WithStore(store), goose.WithSessionLocker(locker{}),
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if err := do(db, p); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	return nil
}
