package sidecar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/admin/doctor"
	"github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/mapping"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/plain"
)

// checkTable checks that a table fits its mapping, that the role may read it, and that the publication contains it, and reports its
// parked rows. It returns whether the role may read the table.
func checkTable(ctx context.Context, r *doctor.Report, config *pgxpool.Config, of desk.Table, publication string) (readable bool) {
	conn, err := pg.Connect(ctx, config)
	if err != nil {
		return false // the finding "database" reports it
	}
	defer conn.Close(context.WithoutCancel(ctx))
	schema, table, _ := strings.Cut(of.Name, ".")
	rows, err := conn.Query(ctx, mapping.ColumnsSQL, pgx.Identifier{schema, table}.Sanitize())
	if err != nil {
		r.Fail("table", err.Error(), "see the server's log")
		return false
	}
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[mapping.Column])
	if err != nil {
		r.Fail("table", of.Name+": "+err.Error(), "name it as schema.table, and let this role read it")
		return false
	}
	if _, err := of.Mapping.Bind(columns); err != nil {
		r.Fail("table", of.Name+": "+err.Error(), "put the mapping right, or the table")
	} else {
		r.Ok("table", of.Name+" fits its mapping")
	}
	readable = mayRead(ctx, r, conn, of)
	var inherits bool
	if err := conn.QueryRow(ctx, mapping.InheritsSQL, pgx.Identifier{schema, table}.Sanitize()).Scan(&inherits); err == nil && inherits {
		r.Fail("table", of.Name+": other tables inherit from it, and the log has their rows under their own names",
			"partition the table instead, or end the inheritance: ALTER TABLE … NO INHERIT …")
	}
	checkPublication(ctx, r, conn, of, publication)
	checkRelay(ctx, r, conn, of)
	var all, retrying, parked int
	err = conn.QueryRow(ctx, `
		SELECT count(*), count(*) FILTER (WHERE status = 'retrying'), count(*) FILTER (WHERE status = 'parked')
		FROM troupe.mapped_failures
		WHERE table_name = $1`, of.Name).Scan(&all, &retrying, &parked)
	if err == nil && all > 0 {
		r.Warn("failed rows", fmt.Sprintf("%d retrying, %d parked, %d of the same keys behind them: the slot has passed them, and a connector that takes "+
			"the slot over does not get them", retrying, parked, all-retrying-parked),
			"outbox-relay parked list; remove the cause, then outbox-relay parked retry, or discard")
	}
	return readable
}

// checkRelay warns if no relay publishes the table any more, and if an operator has paused all its relays. If no relay has published the
// table yet, it reports that without a warning: check also runs before the first start.
func checkRelay(ctx context.Context, r *doctor.Report, conn *pgx.Conn, of desk.Table) {
	var holder, pausedBy, pausedWhy string
	var active bool
	var ended *time.Time // nil if no relay has held the lease
	var paused *time.Time
	err := conn.QueryRow(ctx, `
		SELECT l.holder, l.expires_at > clock_timestamp(), CASE WHEN l.term > 0 THEN l.expires_at END,
		       l.paused_at, coalesce(left(l.paused_by, 200), ''), coalesce(left(l.paused_why, 2000), '')
		FROM troupe.mapped_tables AS t
		JOIN troupe.relay_leases AS l USING (shard)
		WHERE t.name = $1`, of.Name).Scan(&holder, &active, &ended, &paused, &pausedBy, &pausedWhy)
	const start = "start outbox-relay run with this configuration; outbox-relay status shows its state"
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		r.Warn("publishing", err.Error(), "grant the missing rights, see privileges")
	case paused != nil:
		r.Warn("publishing", fmt.Sprintf("%s paused all relays of %s at %s: %s", plain.Line(pausedBy, 100), of.Name, paused.UTC().Format(time.RFC3339), plain.Line(pausedWhy, 300)),
			"run outbox-relay resume when the reason of the pause is gone")
	case active:
		r.Ok("publishing", "by "+holder)
	case ended == nil:
		r.Info("publishing", "no relay has published "+of.Name+" yet")
	default:
		r.Warn("publishing", fmt.Sprintf("no relay runs for %s; %s was active until %s", of.Name, holder, ended.UTC().Format(time.RFC3339)), start)
	}
}

// mayRead reports a role that may not read the table. The log needs no right on it, but without the right the role may not change the
// relay's records of the table either.
func mayRead(ctx context.Context, r *doctor.Report, conn *pgx.Conn, of desk.Table) (readable bool) {
	schema, table, _ := strings.Cut(of.Name, ".")
	name := pgx.Identifier{schema, table}.Sanitize()
	var grant string
	err := conn.QueryRow(ctx, `SELECT has_table_privilege($1::text::regclass, 'SELECT'), format('GRANT SELECT ON %I.%I TO %I;', $2::text, $3::text, current_user)`,
		name, schema, table).Scan(&readable, &grant)
	if err != nil {
		r.Warn("table", of.Name+": "+err.Error(), "see the server's log")
	} else if !readable {
		r.Fail("table", of.Name+": this role may not read it: the relay reads the table at its first start without a slot, and after the slot was lost",
			grant)
	}
	return readable
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

// sampledRows is the number of a table's newest rows whose topics are looked at.
const sampledRows = 10_000

// mappedTopics returns the topics of rows that are in the table and of its failed rows, as far as they can be read: a fault of the
// database is reported by the examination.
func mappedTopics(ctx context.Context, config *pgxpool.Config, of desk.Table) (topics []string) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	conn, err := pg.Connect(ctx, config)
	if err != nil {
		return nil
	}
	defer conn.Close(context.WithoutCancel(ctx))
	schema, table, _ := strings.Cut(of.Name, ".")
	read := func(sql string, args ...any) (values []string) {
		rows, err := conn.Query(ctx, sql, args...)
		if err == nil {
			values, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			return nil
		}
		return values
	}
	newest := fmt.Sprintf("SELECT %s::text AS value FROM %s ORDER BY ctid DESC LIMIT %d", pgx.Identifier{of.Mapping.Config().RouteBy}.Sanitize(),
		pgx.Identifier{schema, table}.Sanitize(), sampledRows)
	for _, value := range read("SELECT DISTINCT value FROM (" + newest + ") AS newest WHERE value <> '' LIMIT 100") {
		topics = append(topics, of.Mapping.Topic(value))
	}
	topics = append(topics, read("SELECT DISTINCT topic FROM troupe.mapped_failures WHERE table_name = $1 AND topic <> '' LIMIT 100", of.Name)...)
	slices.Sort(topics)
	return slices.Compact(topics)
}
