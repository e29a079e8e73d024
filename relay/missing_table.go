package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A missingTable is a mapped table that no longer exists under its name, although rows of it are recorded as failed. No relay publishes
// these rows.
type missingTable struct {
	Name         string
	Rows, Parked int
}

func (m missingTable) String() string {
	return fmt.Sprintf("table %s does not exist, and %d of its rows are not published (%d parked, the others are tried again or wait)",
		m.Name, m.Rows, m.Parked)
}

// remedy returns two statements for an operator. One assigns the failed rows to the table with the name table, and the other deletes them.
func (m missingTable) remedy(table string) string {
	return fmt.Sprintf("to publish them as rows of %s, or if it was renamed to that: UPDATE troupe.mapped_failures SET table_name = %s "+
		"WHERE table_name = %s; to give them up: DELETE FROM troupe.mapped_failures WHERE table_name = %[3]s",
		table, literal(table), literal(m.Name))
}

// reason returns the error for a relay that is configured with the missing table.
func (m missingTable) reason() error {
	return fmt.Errorf("%s: create it again, or configure the name that it has now", m)
}

// literal returns text as a string literal of SQL.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func (r *Relay) missingTables(ctx context.Context) ([]missingTable, error) {
	rows, err := r.pool.Query(ctx, listMissingTables)
	if err != nil {
		return nil, fmt.Errorf("look for tables that no longer exist: %w", err)
	}
	missing, err := pgx.CollectRows(rows, pgx.RowToStructByPos[missingTable])
	if err != nil {
		return nil, fmt.Errorf("look for tables that no longer exist: %w", err)
	}
	return missing, nil
}

// keepsFailures returns an error if failed rows would be left behind, and later rows of their keys would overtake them. There are two
// cases. This table no longer exists, and has failed rows. Or this table was never streamed, and another table that has failed rows no
// longer exists: this table may be that one, renamed.
func (t *mappedTable) keepsFailures(ctx context.Context, r *Relay) error {
	missing, err := r.missingTables(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	for _, m := range missing {
		if m.Name == t.String() {
			return m.reason()
		}
	}
	var streamed bool
	err = r.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM troupe.mapped_tables WHERE name = @table AND system_id <> '')", t.args(nil)).
		Scan(&streamed)
	switch {
	case err != nil:
		return fmt.Errorf("read whether table %s was streamed: %w", t, err)
	case !streamed:
		return fmt.Errorf("%s: %s", missing[0], missing[0].remedy(t.String()))
	}
	return nil
}

// whyDenied adds the cause to an error by which the role may not change the records of the mapped table. Either the table does not exist,
// or the role may not read it. whyDenied returns any other error unchanged.
func (r *Relay) whyDenied(ctx context.Context, err error) error {
	if r.mapped == nil || !denied(err) {
		return err
	}
	missing, failed := r.missingTables(ctx)
	if failed != nil {
		return err
	}
	for _, m := range missing {
		if m.Name == r.mapped.String() {
			return m.reason()
		}
	}
	var readable bool // as in troupe.may_relay
	const mayRead = "SELECT has_any_column_privilege(c.oid, 'SELECT') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2"
	switch failed := r.pool.QueryRow(ctx, mayRead, r.mapped.schema, r.mapped.name).Scan(&readable); {
	case errors.Is(failed, pgx.ErrNoRows):
		return fmt.Errorf("table %s does not exist: %w", r.mapped, err)
	case failed != nil || readable:
		return err
	}
	return fmt.Errorf("the role may not read its table: grant it SELECT on table %s: %w", r.mapped, err)
}

// warnOfMissingTables logs, once each, the tables that no longer exist and whose failed rows no relay publishes.
func (r *Relay) warnOfMissingTables(ctx context.Context, warned map[string]bool) error {
	if r.mapped == nil {
		return nil
	}
	missing, err := r.missingTables(ctx)
	if err != nil {
		return err
	}
	for _, m := range missing {
		if warned[m.Name] {
			continue
		}
		warned[m.Name] = true
		r.cfg.Log.Warn().Str("table", m.Name).Int("rows", m.Rows).Int("parked", m.Parked).
			Msg(m.String() + ": " + m.remedy(r.mapped.String()) + "; then start this relay again")
	}
	return nil
}
