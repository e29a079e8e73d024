package sidecar

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/migrations"
)

const (
	lowHeadroom = 1_000_000 // positions; below it something has kept partitions from being made
	manyRows    = 100_000   // of which the topics are looked at
)

// checkDatabase returns the topics of the rows that wait.
func (r *report) checkDatabase(ctx context.Context, config *pgxpool.Config, of tableOf, publication string) (topics []string) {
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig.Copy())
	if err != nil {
		r.fail("database", err.Error(), "check DATABASE_URL, and that the server is up and lets this role in")
		return nil
	}
	defer conn.Close(context.WithoutCancel(ctx))
	r.ok("database", fmt.Sprintf("%s as %s", config.ConnConfig.Database, config.ConnConfig.User))
	r.checkPooler(ctx, config)
	r.checkServer(ctx, conn)
	if !r.checkMigrations(ctx, config) {
		return nil
	}
	if of.mapping != nil {
		r.checkPrivileges(ctx, conn, mappedPrivileges)
		r.checkStream(ctx, conn, of)
		r.checkTable(ctx, conn, of, publication)
		return nil
	}
	r.checkPrivileges(ctx, conn, privileges)
	r.checkOwner(ctx, conn)
	r.checkStream(ctx, conn, of)
	r.checkOutbox(ctx, conn)
	return r.waitingTopics(ctx, conn)
}

func (r *report) checkPooler(ctx context.Context, config *pgxpool.Config) {
	switch found, err := pg.FindPooler(ctx, config.ConnConfig); {
	case err != nil:
		r.warn("pooler", err.Error(), "let this role connect twice")
	case found == pg.PoolsStatement:
		r.fail("pooler", pg.ErrPooled.Error(), "the server's own address in database-url")
	case found == pg.PoolsSessions:
		r.warn("pooler", "something stands before the database; each connection seems to keep its session, which is needed",
			"better the server's own address in database-url")
	}
}

func (r *report) checkServer(ctx context.Context, conn *pgx.Conn) {
	var number int
	var text string
	var standby bool
	err := conn.QueryRow(ctx, `
		SELECT current_setting('server_version_num')::int, current_setting('server_version'), pg_is_in_recovery()`).Scan(&number, &text, &standby)
	switch {
	case err != nil:
		r.fail("server", err.Error(), "see the server's log")
		return
	case number < 140000:
		r.fail("server", "Postgres "+text, "Postgres 14 or newer")
	case standby:
		r.fail("server", "Postgres "+text+", a standby: it takes no writes", "connect to the primary")
	default:
		r.ok("server", "Postgres "+text)
	}
}

func (r *report) checkMigrations(ctx context.Context, config *pgxpool.Config) (usable bool) {
	s, err := migrations.GetConfig(ctx, config.ConnConfig)
	switch {
	case errors.Is(err, migrations.ErrNewer):
		r.fail("migrations", err.Error(), "a newer outbox-relay")
	case err != nil:
		r.fail("migrations", err.Error(), "outbox-relay migrate, as a role that owns the schema troupe")
	case s.Pending():
		r.fail("migrations", fmt.Sprintf("version %d of %d", s.Current, s.Latest), "outbox-relay migrate")
		return s.Current > 0
	default:
		r.ok("migrations", fmt.Sprintf("version %d", s.Current))
		return true
	}
	return false
}

type privilege struct {
	object, privilege, why string
	needed                 bool
}

// privileges are what the relay uses. A missing one that is needed stops it.
var privileges = []privilege{
	{"troupe.outbox", "SELECT", "to claim rows", true},
	{"troupe.outbox", "DELETE", "to remove them", true},
	{"troupe.relay_leases", "SELECT", "to lead", true},
	{"troupe.relay_leases", "INSERT", "to lead", true},
	{"troupe.relay_leases", "UPDATE", "to lead", true},
	{"troupe.relay_state", "SELECT", "to know what a stream has published", true},
	{"troupe.relay_state", "INSERT", "to stream", false},
	{"troupe.relay_state", "UPDATE", "to stream", false},
	{"troupe.outbox_trouble", "SELECT", "to know what waits", true},
	{"troupe.outbox_trouble", "INSERT", "to put rows off and to park them", true},
	{"troupe.outbox_trouble", "UPDATE", "to put rows off and to park them", true},
	{"troupe.outbox_trouble", "DELETE", "to take up retried rows", true},
	{"troupe.outbox_partitions", "SELECT", "to see how many positions are left", false},
	{"troupe.outbox_position_seq", "SELECT", "to keep claims fast behind many dead rows", false},
}

// mappedPrivileges are what it uses for a table with a mapping, beside reading that.
var mappedPrivileges = []privilege{
	{"troupe.relay_leases", "SELECT", "to lead", true},
	{"troupe.relay_leases", "INSERT", "to lead", true},
	{"troupe.relay_leases", "UPDATE", "to lead", true},
	{"troupe.mapped_tables", "SELECT", "to know what was streamed", true},
	{"troupe.mapped_tables", "INSERT", "to stream", true},
	{"troupe.mapped_tables", "UPDATE", "to stream", true},
	{"troupe.mapped_trouble", "SELECT", "to know what waits", true},
	{"troupe.mapped_trouble", "INSERT", "to put rows off and to park them", true},
	{"troupe.mapped_trouble", "UPDATE", "to put rows off and to park them", true},
	{"troupe.mapped_trouble", "DELETE", "to take up retried rows", true},
}

func (r *report) checkPrivileges(ctx context.Context, conn *pgx.Conn, list []privilege) {
	var missing, missed []string
	for _, p := range list {
		test := "has_table_privilege"
		if strings.HasSuffix(p.object, "_seq") {
			test = "has_sequence_privilege"
		}
		var has bool
		err := conn.QueryRow(ctx, "SELECT "+test+"($1, $2)", p.object, p.privilege).Scan(&has)
		switch grant := p.privilege + " on " + p.object; {
		case err != nil:
			r.fail("privileges", err.Error(), "GRANT USAGE ON SCHEMA troupe TO "+conn.Config().User)
			return
		case !has && p.needed:
			missing = append(missing, grant+" ("+p.why+")")
		case !has:
			missed = append(missed, grant+" ("+p.why+")")
		}
	}
	if len(missing) > 0 {
		r.fail("privileges", "missing: "+strings.Join(missing, ", "), "grant them to "+conn.Config().User)
	} else {
		r.ok("privileges", "all that publishing needs")
	}
	if len(missed) > 0 {
		r.warn("privileges", "missing: "+strings.Join(missed, ", "), "grant them to "+conn.Config().User)
	}
}

func (r *report) checkOwner(ctx context.Context, conn *pgx.Conn) {
	var owner bool
	err := conn.QueryRow(ctx, `
		SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'troupe.outbox'::regclass`).Scan(&owner)
	if err == nil && !owner {
		r.warn("partitions", conn.Config().User+" does not own troupe.outbox, so the relay cannot make partitions",
			"run the relay as the role that ran migrate, or make partitions by other means before they run out")
	}
}

func (r *report) checkOutbox(ctx context.Context, conn *pgx.Conn) {
	var headroom, cache int64
	var parked int
	err := conn.QueryRow(ctx, `
		SELECT (SELECT coalesce(max(hi), 0) FROM troupe.outbox_partitions WHERE state = 'attached')
		         - (SELECT last_value FROM troupe.outbox_position_seq),
		       (SELECT seqcache FROM pg_sequence WHERE seqrelid = 'troupe.outbox_position_seq'::regclass),
		       (SELECT count(*) FROM troupe.outbox_trouble WHERE status = 'parked')`).Scan(&headroom, &cache, &parked)
	if err != nil {
		r.warn("outbox", err.Error(), "grant what is missing, see privileges")
		return
	}
	if headroom < lowHeadroom {
		r.warn("headroom", fmt.Sprintf("%d positions left; inserts fail at 0", headroom),
			"run a relay as the table's owner: it makes partitions at its start and each minute")
	} else {
		r.ok("headroom", fmt.Sprintf("%d positions", headroom))
	}
	if cache != 1 {
		r.fail("sequence", fmt.Sprintf("CACHE %d: positions are given out of order, and rows can be missed", cache),
			"ALTER SEQUENCE troupe.outbox_position_seq CACHE 1")
	}
	if parked > 0 {
		r.warn("parked", fmt.Sprintf("%d rows wait for a person, and their keys behind them", parked),
			"outbox-relay parked list; cure the cause, then outbox-relay parked retry, or discard")
	}
}

func (r *report) waitingTopics(ctx context.Context, conn *pgx.Conn) []string {
	rows, err := conn.Query(ctx, `
		SELECT DISTINCT topic FROM (SELECT topic FROM troupe.outbox ORDER BY position LIMIT $1) AS waiting ORDER BY topic`, manyRows)
	if err != nil {
		return nil // told under privileges
	}
	topics, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil
	}
	return topics
}
