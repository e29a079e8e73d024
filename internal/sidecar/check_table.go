package sidecar

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/admin/doctor"
	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/mapping"
)

// checkTable checks that a table fits its mapping and that the publication contains it, and reports its parked rows.
func checkTable(ctx context.Context, r *doctor.Report, config *pgx.ConnConfig, of desk.Table, publication string) {
	conn, err := pgx.ConnectConfig(ctx, config.Copy())
	if err != nil {
		return // the finding "database" reports it
	}
	defer conn.Close(context.WithoutCancel(ctx))
	schema, table, _ := strings.Cut(of.Name, ".")
	rows, err := conn.Query(ctx, mapping.ColumnsSQL, pgx.Identifier{schema, table}.Sanitize())
	if err != nil {
		r.Fail("table", err.Error(), "see the server's log")
		return
	}
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[mapping.Column])
	if err != nil {
		r.Fail("table", of.Name+": "+err.Error(), "name it as schema.table, and let this role read it")
		return
	}
	if _, err := of.Mapping.Bind(columns); err != nil {
		r.Fail("table", of.Name+": "+err.Error(), "put the mapping right, or the table")
	} else {
		r.Ok("table", of.Name+" fits its mapping")
	}
	checkPublication(ctx, r, conn, of, publication)
	var parked int
	err = conn.QueryRow(ctx, "SELECT count(*) FROM troupe.mapped_failures WHERE table_name = $1 AND status = 'parked'", of.Name).Scan(&parked)
	if err == nil && parked > 0 {
		r.Warn("parked", fmt.Sprintf("%d rows wait for a person, and their keys behind them", parked),
			"outbox-relay parked list; cure the cause, then outbox-relay parked retry, or discard")
	}
}

func checkPublication(ctx context.Context, r *doctor.Report, conn *pgx.Conn, of desk.Table, publication string) {
	schema, table, _ := strings.Cut(of.Name, ".")
	if publication == "" {
		var owner bool
		err := conn.QueryRow(ctx, `SELECT pg_has_role(relowner, 'USAGE') AND has_database_privilege(current_database(), 'CREATE')
			FROM pg_class WHERE oid = $1::text::regclass`, pgx.Identifier{schema, table}.Sanitize()).Scan(&owner)
		if err == nil && !owner {
			r.Warn("publication", "this role cannot make one of "+of.Name, "let the table's owner make one, and name it in publication")
		}
		return
	}
	var there, holds bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1),
		EXISTS (SELECT FROM pg_publication_tables WHERE pubname = $1 AND schemaname = $2 AND tablename = $3)`,
		publication, schema, table).Scan(&there, &holds)
	switch {
	case err != nil:
		r.Warn("publication", err.Error(), "let this role read pg_publication_tables")
	case there && !holds:
		r.Fail("publication", publication+" does not hold "+of.Name, "ALTER PUBLICATION "+publication+" ADD TABLE "+of.Name)
	case there:
		r.Ok("publication", publication+" holds "+of.Name)
	default:
		r.Info("publication", "the relay will make "+publication)
	}
}
