package migrations

import (
	"context"
	"database/sql" //nolint:depguard // goose takes no other
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3/lock"
)

const (
	lockEvery = 100 * time.Millisecond
	lockLimit = 5 * time.Minute
)

// A locker lets one session of a database migrate at a time, by an advisory lock. Postgres has no rights on advisory locks: every role
// that may connect can take this one. So the error names the session or the prepared transaction that holds it. It is returned at once
// if no session of a role that may migrate holds it.
type locker struct{}

var _ lock.SessionLocker = locker{}

// SessionLock implements lock.SessionLocker.
func (locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	limit := time.NewTimer(lockLimit)
	defer limit.Stop()
	for {
		var locked bool
		err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", lock.DefaultLockID).Scan(&locked)
		if err != nil || locked {
			return err
		}
		held, migrates, err := findHolder(ctx, conn)
		if err != nil || held != nil && !migrates {
			return errors.Join(err, held)
		}
		select {
		case <-time.After(lockEvery):
		case <-limit.C:
			return errors.Join(fmt.Errorf("another session has been migrating for more than %s", lockLimit), held)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), held)
		}
	}
}

// findHolder returns an error that names the session or the prepared transaction that holds the lock, and whether it may be migrating: a
// session of a role that may. The error is nil if none holds the lock any more.
func findHolder(ctx context.Context, conn *sql.Conn) (held error, migrates bool, err error) {
	const find = `
		SELECT l.pid, coalesce(a.usename, p.owner, '')::text, p.transaction::text,
			l.pid IS NOT NULL AND has_database_privilege(a.usename, l.database, 'CREATE')
		FROM pg_locks AS l
		LEFT JOIN pg_stat_activity AS a USING (pid)
		LEFT JOIN pg_locks AS x ON l.pid IS NULL AND x.pid IS NULL AND x.virtualtransaction = l.virtualtransaction
			AND x.locktype = 'transactionid' AND x.granted
		LEFT JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid
		WHERE l.locktype = 'advisory'
		  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND l.classid::bigint << 32 | l.objid::bigint = $1 AND l.objsubid = 1
		  AND l.granted AND (a.pid IS NOT NULL OR p.transaction IS NOT NULL)`
	var pid *int
	var role string
	var prepared *string
	err = conn.QueryRowContext(ctx, find, lock.DefaultLockID).Scan(&pid, &role, &prepared, &migrates)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("find the holder of the lock of migrations: %w", err)
	case pid == nil:
		return fmt.Errorf("prepared transaction %s of role %q holds the lock of migrations: end it with ROLLBACK PREPARED and its gid in "+
			"pg_prepared_xacts, and let no such role connect to this database", *prepared, role), false, nil
	}
	return fmt.Errorf("process %d of the database server, of role %q, holds the lock of migrations: end it with "+
		"SELECT pg_terminate_backend(%d), and let no such role connect to this database", *pid, role, *pid), migrates, nil
}

// SessionUnlock implements lock.SessionLocker.
func (locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	var unlocked bool
	err := conn.QueryRowContext(ctx, "SELECT pg_advisory_unlock($1)", lock.DefaultLockID).Scan(&unlocked)
	if err == nil && !unlocked {
		err = errors.New("the lock of migrations was lost")
	}
	return err
}
