package address

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// OwnPath is the search_path of sessions in which no code of a user runs. Statements qualify all names of Troupe.
const OwnPath = "pg_catalog, pg_temp"

// OwnNames sets OwnPath in the sessions of config, whatever search_path the role, the database or the address sets. Else a role that
// may create objects in a schema of the path, such as public in Postgres 14, could define array_agg(text), which fits a call better
// than pg_catalog's array_agg(anynonarray), and so run code with the rights of each role that runs one of our statements.
//
// A trigger that a user has put on a table of Troupe has to qualify its names then, or to set a search_path. Behind a pooler OwnNames
// changes nothing, since the setting would stay for the pooler's next client.
func OwnNames(config *pgconn.Config) {
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		// A pooler sends another process id than the server.
		sql := fmt.Sprintf("SELECT pg_catalog.set_config('search_path', '%s', false) WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) %d",
			OwnPath, conn.PID())
		if _, err := conn.Exec(ctx, sql).ReadAll(); err != nil {
			return fmt.Errorf("set search_path: %w", err)
		}
		return nil
	}
}
