package sidecar

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/relay"
)

const muchRetained = 1 << 30 // bytes of the log that one slot holds

// checkStream says which source it will be, and whether there is room for a slot.
func (r *report) checkStream(ctx context.Context, conn *pgx.Conn, of tableOf) {
	switch obstacle, err := relay.Obstacle(ctx, conn); {
	case err != nil:
		r.warn("source", err.Error(), "let this role read pg_roles and pg_publication_tables")
		return
	case obstacle != "" && of.mapping != nil:
		r.fail("source", obstacle, "a table with a mapping is read from the log alone")
		return
	case obstacle != "":
		r.info("source", "poll: "+obstacle)
		return
	}
	r.ok("source", "wal: the server and the role allow it")
	var slots, most int
	var held int64
	err := conn.QueryRow(ctx, `
		SELECT count(*), current_setting('max_replication_slots')::int,
		       coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)), 0)::bigint
		FROM pg_replication_slots`).Scan(&slots, &most, &held)
	switch {
	case err != nil:
		r.warn("slots", err.Error(), "let this role read pg_replication_slots")
	case slots >= most:
		r.warn("slots", fmt.Sprintf("%d of %d are taken: unless one is this outbox's, it will be polled", slots, most),
			"raise max_replication_slots, and restart the server")
	case held > muchRetained:
		r.warn("slots", fmt.Sprintf("one of %d keeps %d MB of the log", slots, held>>20),
			"SELECT * FROM pg_replication_slots: find who should read it, or drop it")
	default:
		r.ok("slots", fmt.Sprintf("%d of %d", slots, most))
	}
}
