package grants

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/find_excess.sql
var findExcess string

// A Surplus is a set of rights with which the connected role could forge an audit log: to set columns that the server sets, to change or
// delete rows, or to create triggers.
type Surplus struct {
	Log    string // the table; "" for every table
	Holder string // the role that has the rights: the connected one, or one that it is a member of; "" for PUBLIC
	Remedy string // statements that take the rights away from Holder, and leave it the documented ones that it has
}

// Excess returns the surplus rights of the connected role on all audit logs, whichever of them parts write. The owner of a log and
// its members, such as a superuser, have all rights on it, and no surplus.
func Excess(ctx context.Context, db DB, role string, parts []Part) ([]Surplus, error) {
	logs := []string{"erasures"} // which only the owner writes
	var columnLogs, columns []string
	for _, part := range Parts() {
		for _, g := range Of(part) {
			if !g.Audit {
				continue
			}
			for _, log := range g.Objects {
				if !slices.Contains(logs, log) {
					logs = append(logs, log)
				}
				for _, column := range g.Columns {
					columnLogs, columns = append(columnLogs, log), append(columns, column)
				}
			}
		}
	}
	rows, err := db.Query(ctx, findExcess, pgx.NamedArgs{
		"logs": logs, "privileges": strings.Split(writing, ", "), "column_logs": columnLogs, "columns": columns,
	})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Surplus, error) {
		var s Surplus
		var grantor string
		var kept []string
		if err := row.Scan(&s.Log, &s.Holder, &grantor, &kept); err != nil {
			return s, err
		}
		s.Remedy = s.revoke(grantor) + s.grant(kept, role, parts)
		return s, nil
	})
}

func (s Surplus) grantee() string {
	if s.Holder == "" {
		return "PUBLIC"
	}
	return Quote(s.Holder)
}

// revoke returns the statements that take all rights to write from the holder. Only their grantor can revoke them: it is "" for the
// owner of the table.
func (s Surplus) revoke(grantor string) string {
	if s.Log == "" {
		return "REVOKE pg_write_all_data FROM " + s.grantee() + ";"
	}
	revoke := "REVOKE " + writing + " ON troupe." + s.Log + " FROM " + s.grantee() + ";"
	if grantor != "" {
		return "SET ROLE " + Quote(grantor) + "; " + revoke + " RESET ROLE;"
	}
	return revoke
}

// grant returns the statement that gives the holder the columns again that it keeps. The connected role keeps the columns of its parts.
func (s Surplus) grant(kept []string, role string, parts []Part) string {
	if s.Holder == role {
		for _, part := range parts {
			for _, g := range Of(part) {
				if !g.Audit || !slices.Contains(g.Objects, s.Log) {
					continue
				}
				for _, column := range g.Columns {
					if !slices.Contains(kept, column) {
						kept = append(kept, column)
					}
				}
			}
		}
	}
	if len(kept) == 0 || s.Holder == "" {
		return ""
	}
	again := Grant{Privileges: []string{"INSERT"}, Objects: []string{s.Log}, Columns: kept}
	return "\n" + again.give(s.Holder)
}
