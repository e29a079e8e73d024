package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/pg"
)

// ErrNotFound is wrapped by errors about a schedule that is not in the database.
var ErrNotFound = errors.New("not found")

const columns = `name, cron, zone, catch_up, coalesce(saga, ''), coalesce(topic, ''), coalesce(key, ''), coalesce(type, ''), data,
  next_at, last_at, ran_at, requested_at, paused_at, set_at, coalesce(error, ''), tries`

// scanSchedule reads a row of columns, and the columns that follow them into more.
func scanSchedule(row pgx.CollectableRow, more ...any) (s Schedule, err error) {
	err = row.Scan(append([]any{
		&s.Name, &s.Cron, &s.Zone, &s.CatchUp, &s.Saga, &s.Topic, &s.Key, &s.Type, &s.Data,
		&s.NextAt, &s.LastAt, &s.RanAt, &s.RequestedAt, &s.PausedAt, &s.SetAt, &s.Error, &s.Tries,
	}, more...)...)
	return s, err
}

// sanitize replaces the characters of an error's text that Postgres cannot store.
func sanitize(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// A Desk lists and changes the schedules of one database. It is safe for concurrent use.
type Desk struct{ Pool *pgxpool.Pool }

// rightsPage is the page that an error about a missing right names.
const rightsPage = "docs/schedules.md"

// List returns the schedules, by name: at most 1,000, as many as a Desk makes in a database. It leaves out data of more than 4 KiB.
func (d Desk) List(ctx context.Context) ([]Schedule, error) {
	short := strings.Replace(columns, " data,", " CASE WHEN octet_length(data::text) <= 4096 THEN data END,", 1)
	rows, err := d.Pool.Query(ctx, "SELECT "+short+" FROM troupe.schedules ORDER BY name LIMIT @most", pg.Args{"most": maxSchedules})
	if err != nil {
		return nil, admin.Explain(err, rightsPage)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Schedule, error) { return scanSchedule(row) })
	return all, admin.Explain(err, rightsPage)
}

// Show returns a schedule with its next occurrences, and its last changes, the latest first.
func (d Desk) Show(ctx context.Context, name string) (s Schedule, next []time.Time, changes []admin.Change, err error) {
	err = d.inTx(ctx, func(tx pgx.Tx) error {
		if s, err = findSchedule(ctx, tx, name, ""); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
SELECT at, actor, role, action, reason, change
FROM troupe.schedule_changes
WHERE name = @name
ORDER BY position DESC
LIMIT 20`, pg.Args{"name": name})
		if err == nil {
			changes, err = pgx.CollectRows(rows, pgx.RowToStructByPos[admin.Change])
		}
		return err
	})
	if err != nil {
		return s, nil, nil, err
	}
	c, err := s.Check()
	if err != nil {
		return s, nil, changes, nil // the next try stores this error
	}
	return s, append([]time.Time{s.NextAt}, c.after(s.NextAt, 4)...), changes, nil
}

// after returns the first n times of c after a time.
func (c Cron) after(at time.Time, n int) (all []time.Time) {
	for at = c.Next(at); !at.IsZero() && len(all) < n; at = c.Next(at) {
		all = append(all, at)
	}
	return all
}

// Plan returns the first n times of a Spec after at, for a preview.
func Plan(s Spec, at time.Time, n int) ([]time.Time, error) {
	c, err := s.Check()
	if err != nil {
		return nil, err
	}
	return c.after(at, n), nil
}

func (d Desk) inTx(ctx context.Context, do func(pgx.Tx) error) error {
	return admin.InTx(ctx, d.Pool, rightsPage, do)
}

// findSchedule reads a schedule. lock is "" or FOR UPDATE.
func findSchedule(ctx context.Context, tx pgx.Tx, name, lock string) (Schedule, error) {
	rows, err := tx.Query(ctx, "SELECT "+columns+" FROM troupe.schedules WHERE name = @name "+lock, pg.Args{"name": name})
	if err != nil {
		return Schedule{}, err
	}
	s, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Schedule, error) { return scanSchedule(row) })
	if errors.Is(err, pgx.ErrNoRows) {
		return s, fmt.Errorf("schedule %q: %w", name, ErrNotFound)
	}
	return s, err
}

// changeExisting changes a schedule that exists, and records the text that change returns.
func (d Desk) changeExisting(ctx context.Context, name, action string, by admin.Actor, change func(tx pgx.Tx, s Schedule) (string, error)) error {
	if err := by.CheckReasoned(); err != nil {
		return err
	}
	return d.inTx(ctx, func(tx pgx.Tx) error {
		s, err := findSchedule(ctx, tx, name, "FOR UPDATE")
		if err != nil {
			return err
		}
		text, err := change(tx, s)
		if err != nil {
			return err
		}
		return record(ctx, tx, name, action, by, text)
	})
}

// record writes a row of troupe.schedule_changes.
func record(ctx context.Context, tx pgx.Tx, name, action string, by admin.Actor, change string) error {
	_, err := tx.Exec(ctx, `
INSERT INTO troupe.schedule_changes (actor, action, reason, name, change)
VALUES (@actor, @action, @reason, @name, @change)`, pg.Args{"actor": by.Name, "action": action, "reason": by.Reason, "name": name, "change": change})
	return err
}

// Set makes or changes a schedule. If cron and zone do not change, the next occurrence does not change either, even if it is due.
func (d Desk) Set(ctx context.Context, spec Spec, by admin.Actor) (s Schedule, err error) {
	c, err := spec.Check()
	if err == nil {
		err = by.CheckReasoned()
	}
	if err != nil {
		return s, err
	}
	err = d.inTx(ctx, func(tx pgx.Tx) error {
		var now time.Time
		var others int
		const count = "SELECT clock_timestamp(), count(*) FROM troupe.schedules WHERE name <> @name"
		if err := tx.QueryRow(ctx, count, pg.Args{"name": spec.Name}).Scan(&now, &others); err != nil {
			return err
		}
		old, err := findSchedule(ctx, tx, spec.Name, "FOR UPDATE")
		change := "new: "
		switch {
		case errors.Is(err, ErrNotFound) && others >= maxSchedules:
			return fmt.Errorf("the database has %d schedules, and may have at most %d: delete one first", others, maxSchedules)
		case errors.Is(err, ErrNotFound):
			s.NextAt = c.Next(now)
		case err != nil:
			return err
		case old.Cron == spec.Cron && old.Zone == spec.Zone:
			change, s.NextAt = "", old.NextAt
		default:
			change = ""
			if s.NextAt = c.Next(now); old.LastAt != nil && old.LastAt.After(now) {
				s.NextAt = c.Next(*old.LastAt)
			}
		}
		_, err = tx.Exec(ctx, `
INSERT INTO troupe.schedules (name, cron, zone, catch_up, saga, topic, key, type, data, next_at)
VALUES (@name, @cron, @zone, @catch_up, nullif(@saga, ''), nullif(@topic, ''), nullif(@key, ''), nullif(@type, ''), @data, @next)
ON CONFLICT (name) DO UPDATE
SET cron = excluded.cron, zone = excluded.zone, catch_up = excluded.catch_up, saga = excluded.saga, topic = excluded.topic,
    key = excluded.key, type = excluded.type, data = excluded.data, next_at = excluded.next_at, set_at = clock_timestamp(),
    error = NULL, tries = 0, retry_at = NULL`, pg.Args{
			"name": spec.Name, "cron": spec.Cron, "zone": spec.Zone, "catch_up": spec.CatchUp, "saga": spec.Saga, "topic": spec.Topic,
			"key": spec.Key, "type": spec.Type, "data": spec.Data, "next": s.NextAt,
		})
		if err != nil {
			return err
		}
		change += fmt.Sprintf("%s %s, catch-up %d, %s", spec.Cron, spec.Zone, spec.CatchUp, spec.Target())
		if err := record(ctx, tx, spec.Name, "set", by, change); err != nil {
			return err
		}
		s, err = findSchedule(ctx, tx, spec.Name, "")
		return err
	})
	return s, err
}

// Pause stops a schedule. Its occurrences until Resume are skipped.
func (d Desk) Pause(ctx context.Context, name string, by admin.Actor) error {
	return d.changeExisting(ctx, name, "pause", by, func(tx pgx.Tx, s Schedule) (string, error) {
		if s.PausedAt != nil {
			return "", fmt.Errorf("schedule %s is already paused", name)
		}
		_, err := tx.Exec(ctx, "UPDATE troupe.schedules SET paused_at = clock_timestamp() WHERE name = @name", pg.Args{"name": name})
		return "paused", err
	})
}

// Resume continues a paused schedule with its next occurrence after now.
func (d Desk) Resume(ctx context.Context, name string, by admin.Actor) (next time.Time, err error) {
	err = d.changeExisting(ctx, name, "resume", by, func(tx pgx.Tx, s Schedule) (string, error) {
		if s.PausedAt == nil {
			return "", fmt.Errorf("schedule %s is not paused", name)
		}
		c, err := s.Check()
		if err != nil {
			return "", err
		}
		var now time.Time
		if err := tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
			return "", err
		}
		if next = s.NextAt; !next.After(now) {
			next = c.Next(now)
		}
		const resume = "UPDATE troupe.schedules SET paused_at = NULL, next_at = @next, error = NULL, tries = 0, retry_at = NULL WHERE name = @name"
		_, err = tx.Exec(ctx, resume, pg.Args{"name": name, "next": next})
		return "next occurrence " + next.UTC().Format(time.RFC3339), err
	})
	return next, err
}

// Request asks the coordinators to run one more occurrence, at once, also of a paused schedule. Its time is the time of the request.
func (d Desk) Request(ctx context.Context, name string, by admin.Actor) (occurrence string, err error) {
	err = d.changeExisting(ctx, name, "run", by, func(tx pgx.Tx, s Schedule) (string, error) {
		if s.RequestedAt != nil {
			return "", fmt.Errorf("schedule %s has an occurrence requested at %s that has not run yet: see troupe schedule show", name, s.RequestedAt.UTC().Format(time.RFC3339))
		}
		var at time.Time
		const request = "UPDATE troupe.schedules SET requested_at = clock_timestamp(), retry_at = NULL WHERE name = @name RETURNING requested_at"
		if err := tx.QueryRow(ctx, request, pg.Args{"name": name}).Scan(&at); err != nil {
			return "", err
		}
		occurrence = s.Occurrence(at)
		return "occurrence " + occurrence, nil
	})
	return occurrence, err
}

// Delete removes a schedule. Its record of changes stays.
func (d Desk) Delete(ctx context.Context, name string, by admin.Actor) error {
	return d.changeExisting(ctx, name, "delete", by, func(tx pgx.Tx, _ Schedule) (string, error) {
		_, err := tx.Exec(ctx, "DELETE FROM troupe.schedules WHERE name = @name", pg.Args{"name": name})
		return "deleted", err
	})
}
