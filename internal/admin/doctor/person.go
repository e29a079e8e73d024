package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// person warns of work that waits for a person: open dead letters and parked sagas.
func (e *examination) person(ctx context.Context, conn *pgx.Conn) {
	for _, look := range []struct{ name, table, sql, one, remedy string }{
		{"dead letters", "troupe.dead_letters", "SELECT count(*), min(last_failed_at) FROM troupe.dead_letters WHERE status = 'open'", "open dead letter",
			"troupe dlq list groups them by cause; correct the cause, then troupe dlq redrive, or troupe dlq discard"},
		{"parked sagas", "troupe.sagas", "SELECT count(*), min(started_at) FROM troupe.sagas WHERE status = 'parked'", "parked saga",
			"troupe saga list --status parked has the reasons; troupe saga show ID says what you can do"},
	} {
		var may bool // a role that does not read them cannot repair them
		if conn.QueryRow(ctx, "SELECT has_table_privilege($1, 'SELECT')", look.table).Scan(&may) != nil || !may {
			continue
		}
		var n int
		var since *time.Time
		switch err := conn.QueryRow(ctx, look.sql).Scan(&n, &since); {
		case err != nil:
			e.Warn(look.name, err.Error(), "grant the missing rights, see privileges")
		case n > 0:
			e.Warn(look.name, fmt.Sprintf("%s; the oldest is of %s", counted(n, look.one), since.UTC().Format(time.RFC3339)), look.remedy)
		}
	}
}
