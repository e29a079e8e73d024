package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// failoverFacts holds the settings and slots of a primary that decide the cost of a failover.
type failoverFacts struct {
	version     int      // server_version_num
	standbys    int      // physical standbys that are connected
	physical    []string // physical slots
	idle        []string // physical slots that no standby streams
	silent      []string // physical slots whose standby sends no hot_standby_feedback
	copied      []string // logical slots of pgoutput in this database that standbys copy
	local       []string // logical slots of pgoutput in this database that standbys do not copy
	syncs       bool     // sync_replication_slots, on this server
	syncing     bool     // a standby that copies slots is connected, as far as this role sees it
	waitsFor    string   // synchronized_standby_slots
	synchronous string   // synchronous_standby_names
}

// failover reports what a failover would cost now.
func (e *examination) failover(ctx context.Context, conn *pgx.Conn) {
	var f failoverFacts
	var syncs, waitsFor *string
	err := conn.QueryRow(ctx, `
		SELECT current_setting('server_version_num')::int,
		       (SELECT count(*)::int FROM pg_stat_replication r
		        WHERE NOT EXISTS (SELECT FROM pg_replication_slots l WHERE l.active_pid = r.pid AND l.slot_type = 'logical')),
		       current_setting('sync_replication_slots', true), current_setting('synchronized_standby_slots', true),
		       current_setting('synchronous_standby_names'),
		       EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE '%slotsync worker')`).
		Scan(&f.version, &f.standbys, &syncs, &waitsFor, &f.synchronous, &f.syncing)
	var rows pgx.Rows
	if err == nil {
		rows, err = conn.Query(ctx, `
			SELECT slot_name, slot_type = 'physical', active, coalesce(xmin::text, catalog_xmin::text) IS NULL,
			       coalesce((to_jsonb(s) ->> 'failover')::boolean, false)
			FROM pg_replication_slots s
			WHERE NOT temporary AND (slot_type = 'physical' OR plugin = 'pgoutput' AND database = current_database())
			ORDER BY slot_name`)
	}
	if err == nil {
		var name string
		var physical, active, silent, failover bool
		_, err = pgx.ForEachRow(rows, []any{&name, &physical, &active, &silent, &failover}, func() error {
			switch {
			case !physical && failover:
				f.copied = append(f.copied, name)
			case !physical:
				f.local = append(f.local, name)
			default:
				f.physical = append(f.physical, name)
				if !active {
					f.idle = append(f.idle, name)
				} else if silent {
					f.silent = append(f.silent, name)
				}
			}
			return nil
		})
	}
	if err != nil {
		e.Warn("failover", err.Error(), "let this role read pg_replication_slots and pg_stat_replication")
		return
	}
	if syncs != nil {
		f.syncs = *syncs == "on"
	}
	if waitsFor != nil {
		f.waitsFor = *waitsFor
	}
	f.judge(e.Report)
}

const (
	createdAgain = "after a failover the relay creates its slot again and publishes from the table: no row of the new primary is lost, " +
		"and about the last second is repeated"
	ahead = "the log is streamed before a standby has it: Kafka may have rows that a failover loses"
)

// judge adds the findings, one sentence each.
func (f failoverFacts) judge(r *Report) {
	const name = "failover"
	if f.standbys == 0 && len(f.physical) == 0 {
		if f.waitsFor != "" {
			f.judgeWaiting(r, name)
			return
		}
		r.Info(name, "no standby is connected: there is nothing to fail over to")
		return
	}
	if f.version < 170000 {
		r.Info(name, fmt.Sprintf("Postgres %d copies no slots to standbys, as 17 and newer do: %s; %s", f.version/10000, createdAgain, ahead))
		return
	}
	found := len(r.Findings)
	if len(f.local) > 0 {
		r.Warn(name, fmt.Sprintf("slot %s is not copied to standbys: %s", strings.Join(f.local, ", "), createdAgain),
			"let its relay run with failover auto, or on: it alters the slot at its start")
	}
	if !f.syncs && !f.syncing {
		r.Warn(name, "no standby is seen that copies slots, and sync_replication_slots is off here: if it is off on the standby too, "+createdAgain,
			"on each server: ALTER SYSTEM SET sync_replication_slots = on;\nSELECT pg_reload_conf();")
	}
	if len(f.silent) > 0 {
		r.Warn(name, fmt.Sprintf("the standby of slot %s sends no hot_standby_feedback, so the slots that it copies become invalid: %s",
			strings.Join(f.silent, ", "), createdAgain),
			"on each standby: ALTER SYSTEM SET hot_standby_feedback = on;\nSELECT pg_reload_conf();")
	}
	f.judgeWaiting(r, name)
	if len(r.Findings) == found {
		r.Ok(name, "standbys copy the slot, and only rows that a standby has are published: a failover loses none and repeats up to the last second")
	}
}

// judgeWaiting adds the findings about synchronized_standby_slots.
func (f failoverFacts) judgeWaiting(r *Report, name string) {
	if f.waitsFor == "" {
		found := ahead
		if f.synchronous != "" {
			found += "; synchronous_standby_names makes them fewer, but not none"
		}
		slot := "name_of_the_standbys_slot"
		if len(f.physical) > 0 {
			slot = f.physical[0]
		}
		r.Warn(name, found, "ALTER SYSTEM SET synchronized_standby_slots = "+literal(slot)+";\nSELECT pg_reload_conf();")
		return
	}
	for one := range strings.SplitSeq(f.waitsFor, ",") {
		one = strings.Trim(strings.TrimSpace(one), `"`)
		switch {
		case one == "":
		case !slices.Contains(f.physical, one):
			r.Warn(name, "the relay publishes nothing: synchronized_standby_slots names "+one+", and there is no such physical slot",
				"SELECT pg_create_physical_replication_slot("+literal(one)+"); or take the name out of synchronized_standby_slots")
		case slices.Contains(f.idle, one):
			r.Warn(name, "the relay publishes nothing until the standby of slot "+one+" is connected: synchronized_standby_slots names it",
				"start that standby, or take the name out of synchronized_standby_slots")
		}
	}
}

// copies reports, on a standby, which slots it has copied from its primary: a promotion keeps these.
func (e *examination) copies(ctx context.Context, conn *pgx.Conn) {
	var standby bool
	var ready, broken []string
	err := conn.QueryRow(ctx, `
		SELECT pg_is_in_recovery(),
		       (SELECT coalesce(array_agg(slot_name::text ORDER BY slot_name), '{}') FROM pg_replication_slots s
		        WHERE (to_jsonb(s) ->> 'synced')::boolean AND NOT temporary AND to_jsonb(s) ->> 'invalidation_reason' IS NULL
		          AND database = current_database()),
		       (SELECT coalesce(array_agg(slot_name::text ORDER BY slot_name), '{}') FROM pg_replication_slots s
		        WHERE (to_jsonb(s) ->> 'synced')::boolean AND (temporary OR to_jsonb(s) ->> 'invalidation_reason' IS NOT NULL)
		          AND database = current_database())`).Scan(&standby, &ready, &broken)
	switch {
	case err != nil || !standby: // the finding "source" has the error
	case len(broken) > 0:
		e.Warn("failover", "this standby has a copy of slot "+strings.Join(broken, ", ")+" that is not ready for a failover: "+createdAgain,
			"wait a minute; if it stays, look at this server's log, and at hot_standby_feedback")
	case len(ready) > 0:
		e.Ok("failover", "this standby has a copy of slot "+strings.Join(ready, ", ")+": its promotion keeps it")
	default:
		e.Warn("failover", "this standby has no copy of a slot: "+createdAgain,
			"from Postgres 17 on, here: ALTER SYSTEM SET sync_replication_slots = on;\nSELECT pg_reload_conf();")
	}
}
