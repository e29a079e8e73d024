package doctor

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/plain"
	"github.com/troupe-go/troupe/internal/wal"
)

const (
	muchRetained = 1 << 30   // bytes of the log that one slot retains
	lowHeadroom  = 1_000_000 // positions; below it, making new partitions has probably failed
	manyRows     = 100_000   // rows whose topics are examined
)

// stream reports which source a relay will use, and whether a slot is left.
func (e *examination) stream(ctx context.Context, conn *pgx.Conn) {
	defer e.copies(ctx, conn)
	switch obstacle, err := wal.Obstacle(ctx, conn, wal.Outbox); {
	case err != nil:
		e.Warn("source", err.Error(), "let this role read pg_roles and pg_publication_tables")
		return
	case obstacle != "" && e.has(MappedRelay):
		e.Fail("source", obstacle, "a table with a mapping is read from the log alone")
		return
	case obstacle != "":
		e.Info("source", "poll: "+obstacle)
		return
	}
	e.Ok("source", "wal: the server and the role allow it")
	var slots, most int
	var held int64
	err := conn.QueryRow(ctx, `
		SELECT count(*), current_setting('max_replication_slots')::int,
		       coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)), 0)::bigint
		FROM pg_replication_slots`).Scan(&slots, &most, &held)
	switch {
	case err != nil:
		e.Warn("slots", err.Error(), "let this role read pg_replication_slots")
	case slots >= most:
		e.Warn("slots", fmt.Sprintf("%d of %d are taken: unless one is this outbox's, it will be polled", slots, most),
			"raise max_replication_slots, and restart the server")
	case held > muchRetained:
		e.Warn("slots", fmt.Sprintf("one of %d keeps %d MB of the log", slots, held>>20),
			"SELECT * FROM pg_replication_slots: find who should read it, or drop it")
	default:
		e.Ok("slots", fmt.Sprintf("%d of %d", slots, most))
	}
	e.unread(ctx, conn)
	e.standbys(ctx, conn)
	e.failover(ctx, conn)
}

// standbys warns if the server takes the relay for a synchronous standby.
func (e *examination) standbys(ctx context.Context, conn *pgx.Conn) {
	var names string
	err := conn.QueryRow(ctx, "SELECT current_setting('synchronous_standby_names')").Scan(&names)
	switch {
	case err != nil:
		e.Warn("standbys", err.Error(), "let this role read synchronous_standby_names")
	case wal.StandbyNamesMatch(names, conn.Config().RuntimeParams["application_name"]):
		e.Warn("standbys", wal.StandbyWarning, "ALTER SYSTEM SET synchronous_standby_names = 'name_of_a_standby';\nSELECT pg_reload_conf();")
	}
}

// unread reports slots of this database that have no reader and retain the log, or that have lost it.
func (e *examination) unread(ctx context.Context, conn *pgx.Conn) {
	streamed := slotsOfMappedTables(ctx, conn)
	rows, err := conn.Query(ctx, `
		SELECT slot_name, coalesce(wal_status, ''), `+pg.InvalidationSQL+`,
		       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint
		FROM pg_replication_slots s WHERE database = current_database() AND NOT active ORDER BY slot_name`)
	if err != nil {
		return // reported above
	}
	var name, status, invalidation string
	var held int64
	_, err = pgx.ForEachRow(rows, []any{&name, &status, &invalidation, &held}, func() error {
		if status == "lost" {
			cause, remedy := pg.Invalidation(invalidation)
			restart := "start the relay, which creates it again and publishes the rows in the table"
			if table := streamed[name]; table != "" {
				restart = fmt.Sprintf("start the relay of %s, which creates it again and publishes the rows that the table still holds. Rows that the table "+
					"no longer holds may be lost: compare the topics with the records of the service. A relay that is configured with another slot "+
					"is not ready until this one is dropped: SELECT pg_drop_replication_slot(%s)", plain.Line(table, 130), literal(name))
			}
			e.Warn("slots", name+" is lost: "+cause, restart+"; "+remedy)
			return nil
		}
		e.Warn("slots", fmt.Sprintf("slot %s has no reader, and it keeps %d MB of the log", name, held>>20),
			"start its relay; if no relay uses it any more: SELECT pg_drop_replication_slot("+literal(name)+");")
		return nil
	})
	if err != nil {
		e.Warn("slots", err.Error(), "let this role read pg_replication_slots")
	}
}

// slotsOfMappedTables returns the tables with a mapping by the slots from which they were streamed last. It returns none if the role cannot
// read them: then no relay of the role streams such a table.
func slotsOfMappedTables(ctx context.Context, conn *pgx.Conn) map[string]string {
	rows, err := conn.Query(ctx, "SELECT slot, name FROM troupe.mapped_tables WHERE slot <> '' ORDER BY updated_at")
	if err != nil {
		return nil
	}
	tables := make(map[string]string)
	var slot, table string
	if _, err := pgx.ForEachRow(rows, []any{&slot, &table}, func() error {
		tables[slot] = table
		return nil
	}); err != nil {
		return nil
	}
	return tables
}

func (e *examination) owner(ctx context.Context, conn *pgx.Conn) {
	var owner bool
	err := conn.QueryRow(ctx, `
		SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'troupe.outbox'::regclass`).Scan(&owner)
	if err == nil && !owner {
		e.Warn("partitions", e.role(conn)+" does not own troupe.outbox, so the relay cannot make partitions",
			"run the relay as the role that ran migrate, or make partitions by other means before they run out")
	}
}

// partitionOwners warns of partitions that do not belong to the owner of the outbox: relays of earlier versions left them with their own role.
func (e *examination) partitionOwners(ctx context.Context, conn *pgx.Conn) {
	const shown = 10 // statements
	var others int
	var roles, owner string
	var names []string // in SQL, with their schemas
	err := conn.QueryRow(ctx, `
		SELECT count(*), coalesce(string_agg(DISTINCT pg_get_userbyid(c.relowner)::text, ', '), ''),
		       coalesce((array_agg(format('%I.%I', n.nspname, c.relname) ORDER BY c.relname))[1:$1], '{}'),
		       coalesce(min(pg_get_userbyid(o.relowner)::text), '')
		FROM pg_class o
		JOIN pg_inherits i ON i.inhparent = o.oid
		JOIN pg_class c ON c.oid = i.inhrelid AND c.relowner <> o.relowner
		JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE o.oid = 'troupe.outbox'::regclass`, shown).Scan(&others, &roles, &names, &owner)
	if err != nil || others == 0 {
		return
	}
	to := pgx.Identifier{owner}.Sanitize()
	remedy := "as a superuser or a member of both roles:"
	for _, name := range names {
		remedy += fmt.Sprintf("\nALTER TABLE %s OWNER TO %s;", name, to)
	}
	if more := others - len(names); more > 0 {
		remedy += fmt.Sprintf("\nand %d more: repeat the check", more)
	}
	e.Warn("partitions", fmt.Sprintf("partitions of troupe.outbox that another role than its owner %s owns: %d, of %s: the owner cannot change the table, and "+
		"DROP OWNED BY for such a role drops partitions with rows that are not published", plain.Line(owner, 63), others, plain.Line(roles, 300)), remedy)
}

func (e *examination) outbox(ctx context.Context, conn *pgx.Conn) {
	var headroom, cache int64
	var parked int
	err := conn.QueryRow(ctx, `
		SELECT (SELECT coalesce(max(hi), 0) FROM troupe.outbox_partitions WHERE state = 'attached')
		         - (SELECT last_value FROM troupe.outbox_position_seq),
		       (SELECT seqcache FROM pg_sequence WHERE seqrelid = 'troupe.outbox_position_seq'::regclass),
		       (SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked')`).Scan(&headroom, &cache, &parked)
	if err != nil {
		e.Warn("outbox", err.Error(), "grant the missing rights, see privileges")
		return
	}
	if headroom < lowHeadroom {
		e.Warn("headroom", fmt.Sprintf("%d positions left; inserts fail at 0", headroom),
			"run a relay as the table's owner: it makes partitions at its start and each minute; or outbox-relay migrate as the owner")
	} else {
		e.Ok("headroom", fmt.Sprintf("%d positions", headroom))
	}
	if cache != 1 {
		e.Fail("sequence", fmt.Sprintf("CACHE %d: positions are given out of order, and rows can be missed", cache),
			"ALTER SEQUENCE troupe.outbox_position_seq CACHE 1")
	}
	if parked > 0 {
		e.Warn("parked", fmt.Sprintf("%d rows wait for a person, and their keys behind them", parked),
			"outbox-relay parked list; cure the cause, then outbox-relay parked retry, or discard")
	}
}

// waitingTopics returns the topics of the rows that wait, except topics that are not UTF-8, whose rows the relay parks.
func waitingTopics(ctx context.Context, conn *pgx.Conn) []string {
	rows, err := conn.Query(ctx, `
		SELECT DISTINCT topic
		FROM (SELECT topic FROM troupe.outbox ORDER BY position LIMIT $1) AS waiting
		WHERE getdatabaseencoding() = 'UTF8' OR troupe.outbox_unreadable(topic, NULL, NULL, NULL) IS NULL
		ORDER BY topic`, manyRows)
	if err != nil {
		return nil // reported under privileges
	}
	topics, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil
	}
	return topics
}
