package participant

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

//go:embed sql/find_stranger.sql
var findStranger string

// stranger returns an error if a session holds the advisory lock of class and object whose role has no rights on Troupe's tables. Postgres has no rights on advisory
// locks: a role that may connect to the database can take each.
func (p *Participant) stranger(ctx context.Context, class, object int32) error {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	var pid int
	var role string
	err := p.cfg.Pool.QueryRow(ctx, findStranger, pg.Args{"class": int64(class), "object": int64(object)}).Scan(&pid, &role)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("find the session that holds an advisory lock: %w", err)
	}
	return fmt.Errorf("process %d of the database server, of role %q, holds an advisory lock of this participant: end it with "+
		"SELECT pg_terminate_backend(%d), and let no such role connect to this database", pid, role, pid)
}
