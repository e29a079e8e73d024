package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/address"
)

// Preamble makes the settings that a session of Troupe's own relies on, whatever the role, the database or the server sets. Run
// it first in each session in which no user code runs; SessionPool and Prepare do.
//
//	time-outs            0: a statement may wait for a lock or read a large table, and a connection may be idle; Go
//	                     contexts bound the statements that must not take long
//	client_encoding      UTF8, which pgx and pgoutput's values need
//	search_path          address.OwnPath: the schemas of others have no effect
//	row_security         off: a policy of a table that Troupe does not own makes a statement fail, and runs no code of the owner
//	                     and hides no rows
//	isolation            read committed: a statement sees all that committed before it
//	synchronous_commit   local instead of a level that waits for a standby: the relay may be that standby for
//	                     synchronous_standby_names = '*', and would wait for itself. Off stays off.
//
// Settings that the server does not have are left out: transaction_timeout exists in Postgres 17 and newer.
const Preamble = `
SELECT pg_catalog.set_config(s.name, s.value, false)
FROM (VALUES
  ('search_path', '` + address.OwnPath + `'),
  ('client_encoding', 'UTF8'),
  ('standard_conforming_strings', 'on'),
  ('statement_timeout', '0'),
  ('lock_timeout', '0'),
  ('transaction_timeout', '0'),
  ('idle_in_transaction_session_timeout', '0'),
  ('idle_session_timeout', '0'),
  ('row_security', 'off'),
  ('default_transaction_isolation', 'read committed'),
  ('synchronous_commit', CASE pg_catalog.current_setting('synchronous_commit') WHEN 'off' THEN 'off' ELSE 'local' END)
) AS s (name, value)
WHERE pg_catalog.current_setting(s.name, true) IS NOT NULL`

// Prepare runs the Preamble.
func Prepare(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, Preamble, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("prepare the session: %w", err)
	}
	return nil
}

// SessionPool makes a pool with the address and limits of another, whose connections begin with the Preamble and then call each
// of more. They use prepared statements, whatever mode the other pool has: in the simple and exec modes pgx reads values as text.
// It opens no connection before one is needed. A connection fails soon if the server's host acknowledges nothing that is sent, see silence.
func SessionPool(of *pgxpool.Pool, more ...func(context.Context, *pgx.Conn) error) (*pgxpool.Pool, error) {
	config := of.Config()
	config.MinConns, config.MinIdleConns = 0, 0
	c := config.ConnConfig
	c.DefaultQueryExecMode, c.StatementCacheCapacity, c.DescriptionCacheCapacity = pgx.QueryExecModeCacheStatement, statementCacheSize, statementCacheSize
	c.DialFunc = limitSilence(c.DialFunc)
	before := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		if err := Prepare(ctx, conn); err != nil {
			return err
		}
		for _, one := range more {
			if err := one(ctx, conn); err != nil {
				return err
			}
		}
		return nil
	}
	return pgxpool.NewWithConfig(context.Background(), config) // the context is only for connections that it opens at once: none
}

const statementCacheSize = 512 // statements that a connection keeps, as pgx by default

// ConnConfig returns the configuration for a connection outside of the pool: a copy of config.ConnConfig to which
// config.BeforeConnect was applied. BeforeConnect may set a password that was not known, or not valid, when the pool was made. The connection
// fails soon if the server's host acknowledges nothing that is sent, see silence.
func ConnConfig(ctx context.Context, config *pgxpool.Config) (*pgx.ConnConfig, error) {
	c := config.ConnConfig.Copy()
	c.DialFunc = limitSilence(c.DialFunc)
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Connect opens a connection outside of the pool, with the result of ConnConfig.
func Connect(ctx context.Context, config *pgxpool.Config) (*pgx.Conn, error) {
	now, err := ConnConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, now)
}

// ServerSQL selects the identity of a session's server process. Another host, the same server after a restart, and a standby
// after its promotion have another identity. A promotion ends recovery, so the timeline follows from the identity.
const ServerSQL = `
SELECT pg_catalog.concat(extract(epoch FROM pg_catalog.pg_postmaster_start_time()),
                         CASE WHEN pg_catalog.pg_is_in_recovery() THEN ' standby' ELSE '' END)`

// Server runs ServerSQL.
func Server(ctx context.Context, conn *pgx.Conn) (id string, err error) {
	if err = conn.QueryRow(ctx, ServerSQL).Scan(&id); err != nil {
		return "", fmt.Errorf("identify the server: %w", err)
	}
	return id, nil
}
