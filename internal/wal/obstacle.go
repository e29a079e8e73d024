package wal

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Published names a table and the publication that should contain it.
type Published struct{ Publication, Schema, Table string }

// Outbox is troupe.outbox in the publication that the migrations create.
var Outbox = Published{"troupe_outbox", "troupe", "outbox"}

// Obstacle returns the reason why db's role cannot stream the table's rows from the log, with the remedy; "" if it can. It does
// not check for a free slot: only the creation of a slot shows whether there is one.
func Obstacle(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, p Published) (string, error) {
	var level string
	var may, holds, inserts, partly, standby bool
	err := db.QueryRow(ctx, `
		SELECT current_setting('wal_level'), pg_is_in_recovery(),
		       (SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user)
		         OR EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_replication' AND pg_has_role(current_user, oid, 'MEMBER')),
		       EXISTS (SELECT FROM pg_publication_tables
		               WHERE pubname = $1 AND schemaname = $2 AND tablename = $3),
		       EXISTS (SELECT FROM pg_publication WHERE pubname = $1 AND pubinsert),
		       EXISTS (SELECT FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
		               WHERE p.pubname = $1 AND r.prrelid = to_regclass(format('%I.%I', $2::text, $3::text))
		                 AND (to_jsonb(r) ->> 'prqual' IS NOT NULL OR to_jsonb(r) ->> 'prattrs' IS NOT NULL))`,
		p.Publication, p.Schema, p.Table).Scan(&level, &standby, &may, &holds, &inserts, &partly)
	switch {
	case err != nil:
		return "", fmt.Errorf("check what streaming needs: %w", err)
	case standby:
		return "the server is a standby", nil
	case level != "logical":
		return "wal_level is " + level + ", not logical", nil
	case !may:
		return "the role may not replicate: ALTER ROLE … REPLICATION", nil
	case !holds && p.Publication == Outbox.Publication:
		return "publication " + p.Publication + " does not hold troupe.outbox: run outbox-relay migrate", nil
	case !holds:
		return fmt.Sprintf("publication %s does not hold %s.%s: ALTER PUBLICATION %s ADD TABLE …; "+
			"of a partitioned table it must be made WITH (publish_via_partition_root = true)", p.Publication, p.Schema, p.Table, p.Publication), nil
	case !inserts:
		return fmt.Sprintf("publication %[1]s does not publish inserts: ALTER PUBLICATION %[1]s SET (publish = 'insert')", p.Publication), nil
	case partly:
		return fmt.Sprintf("publication %[1]s has a row filter or a column list for %[2]s.%[3]s: ALTER PUBLICATION %[1]s SET TABLE %[2]s.%[3]s",
			p.Publication, p.Schema, p.Table), nil
	}
	return "", nil
}

// StandbyNamesMatch reports whether synchronous_standby_names matches a walsender with this application name. It may wrongly
// return true for a name that is quoted in an unusual way, or that is a keyword of the setting.
func StandbyNamesMatch(setting, application string) bool {
	names := strings.FieldsFunc(strings.ToLower(setting), func(r rune) bool { return strings.ContainsRune(" \t\n,()\"", r) })
	return slices.Contains(names, "*") || application != "" && slices.Contains(names, strings.ToLower(application))
}

// StandbyWarning describes the effect if StandbyNamesMatch returns true, and the remedy.
const StandbyWarning = "synchronous_standby_names takes the relay for a synchronous standby: each commit waits until the relay " +
	"has published its rows and stored its state, a second or more, and no standby has the commit then: list your standbys in the setting, by " +
	"their application_name"
