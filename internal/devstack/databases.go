package devstack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// CreateDatabase makes a database, as a copy of the database template unless that is "", and returns its URL. No session may be
// connected to the template meanwhile.
func (p *Postgres) CreateDatabase(ctx context.Context, name, template string) (address string, err error) {
	conn, err := pgx.Connect(ctx, p.URL(""))
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	statement := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize()
	if template != "" {
		statement += " TEMPLATE " + pgx.Identifier{template}.Sanitize()
		// Files are copied faster than pages, which the server would also write to its log. Postgres 14 always copies files, and does not accept STRATEGY.
		if !strings.HasPrefix(conn.PgConn().ParameterStatus("server_version"), "14.") {
			statement += " STRATEGY FILE_COPY"
		}
	}
	_, err = conn.Exec(ctx, statement)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return p.URL(name), nil
}

// DropDatabase drops a database; it first ends its connections and drops its replication slots. An absent database is no error.
func (p *Postgres) DropDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, p.URL(""))
	if err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	err = dropDatabase(ctx, conn, name)
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

// dropDatabase repeats its statements: FORCE does not end a replication connection, and one that was ended holds its slot a
// moment longer.
func dropDatabase(ctx context.Context, conn *pgx.Conn, name string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := conn.Exec(ctx,
			"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = $1 AND active_pid IS NOT NULL", name)
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
		const objectInUse = "55006"
		if pgErr := (*pgconn.PgError)(nil); !errors.As(err, &pgErr) || pgErr.Code != objectInUse {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}
