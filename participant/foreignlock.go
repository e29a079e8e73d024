package participant

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

var (
	//go:embed sql/find_foreign_lock.sql
	findForeignLock string
	//go:embed sql/find_blocking_lock.sql
	findBlockingLock string
)

// firstClass and lastClass are the range of the first halves of the keys of Troupe's advisory locks, in this package and in the
// coordinator's.
const firstClass, lastClass = 0x74727500, 0x747275ff

// foreignLocksEvery is the time between two searches for a foreign lock that a transaction waits for.
const foreignLocksEvery = 10 * time.Second

// foreignLock returns an error if the advisory lock of class and object is held by a session, or a prepared transaction, whose role cannot be a
// participant's. Postgres has no rights on advisory locks: every role that may connect to the database can take every lock.
func (p *Participant) foreignLock(ctx context.Context, class, object int32) error {
	named, err := p.nameSession(ctx, findForeignLock, pg.Args{"class": int64(class), "object": int64(object)})
	return errors.Join(named, err)
}

// nameSession returns an error that names the session or the prepared transaction that the statement find returns; nil if it returns none.
func (p *Participant) nameSession(ctx context.Context, find string, args pg.Args) (named, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementLimit)
	defer cancel()
	var pid *int
	var role string
	var prepared *string
	err = p.cfg.Pool.QueryRow(ctx, find, args).Scan(&pid, &role, &prepared)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("find the holder of an advisory lock: %w", err)
	case pid == nil:
		return fmt.Errorf("prepared transaction %s of role %q holds an advisory lock of this participant: end it with ROLLBACK PREPARED and "+
			"its gid in pg_prepared_xacts, and let no such role connect to this database", *prepared, role), nil
	}
	return fmt.Errorf("process %d of the database server, of role %q, holds an advisory lock of this participant: end it with "+
		"SELECT pg_terminate_backend(%d), and let no such role connect to this database", *pid, role, *pid), nil
}

// watchForeignLocks finds foreign locks that transactions wait for, until ctx ends. It logs the session that holds such a lock, and stores it for
// Ready. Otherwise the wait would not be seen: a saga's start or a batch waits for an advisory lock without a time limit.
func (p *Participant) watchForeignLocks(ctx context.Context) {
	p.repeat(ctx, "find locks of other roles", foreignLocksEvery, func(ctx context.Context) error {
		named, err := p.nameSession(ctx, findBlockingLock, pg.Args{"first": int64(firstClass), "last": int64(lastClass)})
		if named != nil {
			named = fmt.Errorf("a transaction waits: %w", named)
		}
		p.mu.Lock()
		p.blocked = named
		p.mu.Unlock()
		return errors.Join(named, err)
	})
}
