package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/grants"
)

// privileges reports the rights that the role lacks, part by part.
func (e *examination) privileges(ctx context.Context, conn *pgx.Conn) {
	role := e.role(conn)
	var usage bool
	err := conn.QueryRow(ctx, "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = 'troupe'").Scan(&usage)
	if err != nil {
		e.Fail("privileges", err.Error(), "see the server's log")
		return
	}
	if !usage {
		e.Fail("privileges", role+" may not use the schema troupe", grants.Usage(role))
	}
	for _, part := range e.withIncluded() {
		missing, err := grants.Missing(ctx, conn, part)
		if err != nil {
			e.Fail("privileges", string(part)+": "+err.Error(), "see the server's log")
			continue
		}
		var needed, optional []grants.Grant
		for _, g := range missing {
			if g.Optional {
				optional = append(optional, g)
			} else {
				needed = append(needed, g)
			}
		}
		if len(needed) == 0 && usage {
			e.Ok("privileges", fmt.Sprintf("%s: has all its grants", part))
		}
		if len(needed) > 0 {
			e.Fail("privileges", lacks(part, role, needed), giving(needed, role))
		}
		if len(optional) > 0 {
			e.Warn("privileges", lacks(part, role, optional), giving(optional, role))
		}
	}
	e.excess(ctx, conn)
}

// excess reports the audit logs that the role could forge, a line for each role that holds such rights.
func (e *examination) excess(ctx context.Context, conn *pgx.Conn) {
	role := e.role(conn)
	all, err := grants.Excess(ctx, conn, role, e.withIncluded())
	if err != nil {
		e.Fail("privileges", "rights on audit logs: "+err.Error(), "see the server's log")
		return
	}
	for len(all) > 0 {
		holder, logs, remedies := all[0].Holder, []string(nil), []string(nil)
		for _, s := range all {
			if s.Holder != holder {
				continue
			}
			log := s.Log
			if log == "" {
				log = "every table"
			}
			if !slices.Contains(logs, log) {
				logs = append(logs, log)
			}
			remedies = append(remedies, s.Remedy)
		}
		all = slices.DeleteFunc(all, func(s grants.Surplus) bool { return s.Holder == holder })
		through := ""
		switch holder {
		case role:
		case "":
			through = " by a grant to PUBLIC"
		default:
			through = " as a member of " + holder
		}
		e.Warn("privileges", fmt.Sprintf("%s may write more of %s than any part needs%s: it could forge an audit log", role, join(logs), through),
			strings.Join(remedies, "\n"))
	}
}

// withIncluded returns the parts in question, each after the part that it includes.
func (e *examination) withIncluded() []Part {
	var all []Part
	for _, part := range e.Parts {
		for _, p := range []Part{part.Includes(), part} {
			if p != "" && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// lacks names the part, the role, the tables and the reasons in one line.
func lacks(part Part, role string, missing []grants.Grant) string {
	var reasons, objects []string
	for _, g := range missing {
		if !slices.Contains(reasons, g.Reason) {
			reasons = append(reasons, g.Reason)
		}
		for _, object := range g.Objects {
			if !slices.Contains(objects, object) {
				objects = append(objects, object)
			}
		}
	}
	if len(objects) > 6 {
		objects = append(objects[:5], fmt.Sprintf("%d more", len(objects)-5))
	}
	return fmt.Sprintf("%s: %s lacks rights on %s (%s)", part, role, join(objects), strings.Join(reasons, "; "))
}

func giving(missing []grants.Grant, role string) string {
	lines := make([]string, len(missing))
	for i, g := range missing {
		lines[i] = g.To(role)
	}
	return strings.Join(lines, "\n")
}

// role returns the role whose rights are examined.
func (e *examination) role(conn *pgx.Conn) string {
	if e.Role != "" {
		return e.Role
	}
	return conn.Config().User
}
