package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The partitions that are emptied in turn.
var (
	inboxRing = ring(32, "inbox_recent_")
	watchRing = ring(16, "watch_messages_", "watch_findings_")
)

func ring(slots int, names ...string) string {
	var all []string
	for slot := range slots {
		for _, name := range names {
			all = append(all, name+strconv.Itoa(slot))
		}
	}
	return join(all)
}

// asked is one question: may the role do this to that?
type asked struct {
	of                        int // the right
	object, privilege, column string
}

// privileges looks for what the role lacks, part by part.
func (e *examination) privileges(ctx context.Context, conn *pgx.Conn) {
	var usage bool
	err := conn.QueryRow(ctx, "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = 'troupe'").Scan(&usage)
	if err != nil {
		e.Fail("privileges", err.Error(), "see the server's log")
		return
	}
	if !usage {
		e.Fail("privileges", e.role(conn)+" may not use the schema troupe", "GRANT USAGE ON SCHEMA troupe TO "+quoted(e.role(conn))+";")
	}
	for _, part := range e.Parts {
		lacking, err := e.lacking(ctx, conn, rights[part])
		if err != nil {
			e.Fail("privileges", string(part)+": "+err.Error(), "see the server's log")
			continue
		}
		var needed, missed []asked
		for _, a := range lacking {
			if rights[part][a.of].spared {
				missed = append(missed, a)
			} else {
				needed = append(needed, a)
			}
		}
		if len(needed) == 0 && usage {
			e.Ok("privileges", fmt.Sprintf("%s: all that it needs", part))
		}
		if len(needed) > 0 {
			e.Fail("privileges", e.lacks(conn, part, needed), e.grants(conn, part, needed))
		}
		if len(missed) > 0 {
			e.Warn("privileges", e.lacks(conn, part, missed), e.grants(conn, part, missed))
		}
	}
}

// lacking asks all questions at once. What is not there is told by the migrations.
func (e *examination) lacking(ctx context.Context, conn *pgx.Conn, list []right) ([]asked, error) {
	var questions []asked
	for n, r := range list {
		for _, object := range split(r.objects) {
			for _, privilege := range split(r.privileges) {
				for _, column := range split(r.columns) { // one that is empty: the whole table
					questions = append(questions, asked{n, object, privilege, column})
				}
			}
		}
	}
	objects, privileges, columns := make([]string, len(questions)), make([]string, len(questions)), make([]string, len(questions))
	for n, a := range questions {
		objects[n], privileges[n], columns[n] = a.object, a.privilege, a.column
	}
	rows, err := conn.Query(ctx, `
		SELECT n - 1
		FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS asked (object, privilege, attribute, n)
		JOIN pg_class AS c ON c.relname = object AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'troupe')
		WHERE NOT CASE
		  WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, privilege)
		  WHEN attribute = '' THEN has_table_privilege(c.oid, privilege)
		  ELSE has_column_privilege(c.oid, attribute, privilege) END
		ORDER BY n`, objects, privileges, columns)
	if err != nil {
		return nil, err
	}
	lack, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, err
	}
	lacking := make([]asked, len(lack))
	for i, n := range lack {
		lacking[i] = questions[n]
	}
	return lacking, nil
}

// lacks says it in a line.
func (e *examination) lacks(conn *pgx.Conn, part Part, lacking []asked) string {
	var why, objects []string
	for _, a := range lacking {
		if w := rights[part][a.of].why; !slices.Contains(why, w) {
			why = append(why, w)
		}
		if !slices.Contains(objects, a.object) {
			objects = append(objects, a.object)
		}
	}
	if len(objects) > 6 {
		objects = append(objects[:5], fmt.Sprintf("%d more", len(objects)-5))
	}
	return fmt.Sprintf("%s: %s lacks rights on %s (%s)", part, e.role(conn), join(objects), strings.Join(why, "; "))
}

// grants are the statements that give exactly what is lacking: one for all objects that lack the same.
func (e *examination) grants(conn *pgx.Conn, part Part, lacking []asked) string {
	type key struct {
		of   int
		what string
	}
	var order []key
	objects := make(map[key][]string)
	for of, r := range rights[part] {
		for _, object := range split(r.objects) {
			what := lackingOf(lacking, of, object)
			if what == "" {
				continue
			}
			k := key{of, what}
			if objects[k] == nil {
				order = append(order, k)
			}
			objects[k] = append(objects[k], "troupe."+object)
		}
	}
	var lines []string
	for _, k := range order {
		kind := ""
		if rights[part][k.of].ofSequence {
			kind = "SEQUENCE "
		}
		lines = append(lines, fmt.Sprintf("GRANT %s ON %s%s TO %s;", k.what, kind, join(objects[k]), quoted(e.role(conn))))
	}
	return strings.Join(lines, "\n")
}

// lackingOf is what of a right an object lacks, as GRANT has it: "SELECT, UPDATE" or "INSERT (id, topic)".
func lackingOf(lacking []asked, of int, object string) string {
	var privileges, columns []string
	for _, a := range lacking {
		if a.of != of || a.object != object {
			continue
		}
		if !slices.Contains(privileges, a.privilege) {
			privileges = append(privileges, a.privilege)
		}
		if a.column != "" {
			columns = append(columns, quoted(a.column))
		}
	}
	if len(columns) == 0 {
		return join(privileges)
	}
	return fmt.Sprintf("%s (%s)", join(privileges), join(columns)) // with columns there is one privilege
}

// role is whose rights are looked at.
func (e *examination) role(conn *pgx.Conn) string {
	if e.Role != "" {
		return e.Role
	}
	return conn.Config().User
}
