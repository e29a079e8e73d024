// Package grants lists the Postgres rights that each part of Troupe needs, and no more. `outbox-relay grants` prints them, the
// doctor compares a role with them, docs/security.md lists them, and tests run each program with a role that has exactly these
// rights.
//
// Every part also needs USAGE on the schema troupe.
package grants

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A Grant gives privileges on objects of the schema troupe.
type Grant struct {
	Privileges []string
	Objects    []string // without the schema
	Columns    []string // nil: the whole table; else there is one privilege
	Reason     string   // completes "the part needs it …"
	Optional   bool     // the part works without it, with less function
	Sequence   bool     // the objects are sequences
	Audit      bool     // the objects are audit logs: with more rights to write them a role could forge a record
}

// Usage returns the statement that every role needs first.
func Usage(role string) string { return "GRANT USAGE ON SCHEMA troupe TO " + Quote(role) + ";" }

// writing lists the privileges that To revokes from the role on an audit log, before it grants columns again, and that Excess
// looks for. A trigger could set the columns that the server sets.
const writing = "INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER"

// To returns the statement that grants g to a role. On an audit log it revokes every other right to write from the role in the
// same statement: privileges on columns do not narrow a privilege on the whole table, which an older version of the list granted.
// The owner of the log has all rights, and the statement changes nothing for it.
func (g Grant) To(role string) string {
	give := g.give(role)
	if !g.Audit {
		return give
	}
	body := fmt.Sprintf(` BEGIN
  IF NOT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'troupe' AND tablename IN ('%s') AND tableowner = %s) THEN
    REVOKE %s ON troupe.%s FROM %s;
    %s
  END IF;
END `, strings.Join(g.Objects, "', '"), literal(role), writing, strings.Join(g.Objects, ", troupe."), Quote(role), give)
	tag := ""
	for strings.Contains(body, "$"+tag+"$") { // the role's name must not end the quoted body
		tag += "q"
	}
	return "DO $" + tag + "$" + body + "$" + tag + "$;"
}

func (g Grant) give(role string) string {
	what := strings.Join(g.Privileges, ", ")
	if g.Columns != nil {
		columns := make([]string, len(g.Columns))
		for i, name := range g.Columns {
			columns[i] = Quote(name)
		}
		what += " (" + strings.Join(columns, ", ") + ")"
	}
	kind := ""
	if g.Sequence {
		kind = "SEQUENCE "
	}
	return fmt.Sprintf("GRANT %s ON %stroupe.%s TO %s;", what, kind, strings.Join(g.Objects, ", troupe."), Quote(role))
}

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// Quote returns name as an SQL identifier. "public" in quotes is a role that does not exist, not every role.
func Quote(name string) string {
	if plainName.MatchString(name) && !slices.Contains([]string{"offset", "user", "public", "current_user", "session_user", "current_role"}, name) {
		return name
	}
	return pgx.Identifier{name}.Sanitize()
}

// literal returns text as an SQL string, also where backslashes are escapes.
func literal(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		return "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}

// A DB is a pool, a connection or a transaction.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// lack is a privilege that the connected role does not have.
type lack struct {
	grant                     int
	object, privilege, column string
}

// Missing returns the rights of part that the connected role does not have, as Grants of exactly these. Tables that do not exist
// are left out: then a migration is missing, not a right.
func Missing(ctx context.Context, db DB, part Part) ([]Grant, error) {
	all := Of(part)
	lacks, err := find(ctx, db, all)
	if err != nil {
		return nil, err
	}
	var missing []Grant
	for i, g := range all {
		for _, object := range g.Objects {
			one := Grant{Objects: []string{object}, Reason: g.Reason, Optional: g.Optional, Sequence: g.Sequence}
			for _, l := range lacks {
				if l.grant != i || l.object != object {
					continue
				}
				if !slices.Contains(one.Privileges, l.privilege) {
					one.Privileges = append(one.Privileges, l.privilege)
				}
				if l.column != "" {
					one.Columns = append(one.Columns, l.column)
				}
			}
			if one.Privileges == nil {
				continue
			}
			if n := len(missing) - 1; n >= 0 && missing[n].joins(one) {
				missing[n].Objects = append(missing[n].Objects, object)
			} else {
				missing = append(missing, one)
			}
		}
	}
	return missing, nil
}

// joins reports whether one statement can grant both.
func (g Grant) joins(o Grant) bool {
	return g.Reason == o.Reason && g.Optional == o.Optional && g.Sequence == o.Sequence &&
		slices.Equal(g.Privileges, o.Privileges) && slices.Equal(g.Columns, o.Columns)
}

func find(ctx context.Context, db DB, all []Grant) ([]lack, error) {
	var questions []lack
	for i, g := range all {
		columns := g.Columns
		if columns == nil {
			columns = []string{""} // the whole table
		}
		for _, object := range g.Objects {
			for _, privilege := range g.Privileges {
				for _, column := range columns {
					questions = append(questions, lack{i, object, privilege, column})
				}
			}
		}
	}
	objects, privileges, columns := make([]string, len(questions)), make([]string, len(questions)), make([]string, len(questions))
	for i, q := range questions {
		objects[i], privileges[i], columns[i] = q.object, q.privilege, q.column
	}
	rows, err := db.Query(ctx, `
		SELECT n - 1
		FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS question (object, privilege, attribute, n)
		JOIN pg_class AS c ON c.relname = object AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'troupe')
		WHERE NOT CASE
		  WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, privilege)
		  WHEN attribute = '' THEN has_table_privilege(c.oid, privilege)
		  ELSE has_column_privilege(c.oid, attribute, privilege) END
		ORDER BY n`, objects, privileges, columns)
	if err != nil {
		return nil, err
	}
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, err
	}
	lacks := make([]lack, len(numbers))
	for i, n := range numbers {
		lacks[i] = questions[n]
	}
	return lacks, nil
}
