package pg

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Pooler is what stands between us and the server.
type Pooler int

// The kinds.
const (
	Direct         Pooler = iota // nothing that could be seen
	PoolsSessions                // a connection is one session of the server's, and works like one
	PoolsStatement               // a connection is another session from transaction to transaction
)

// ErrPooled says that a connection is not one session: what is set in it is set for others, and notifications get lost.
var ErrPooled = errors.New("a pooler in transaction mode stands before the database: a connection is another session from " +
	"transaction to transaction, so settings leak to other clients and notifications are lost; connect to the server itself, " +
	"or to a pool in session mode")

const (
	poolerRounds = 4 // tries to see a session change; one is enough where nobody else uses the pool
	closeLimit   = time.Second
)

// FindPooler says what a connection leads to. A server tells its process id in its greeting and again when asked; a pooler
// greets with a number of its own. Then two connections tell what it pools: when one gets the session that the other had,
// or the other loses it, sessions are not theirs.
func FindPooler(ctx context.Context, config *pgx.ConnConfig) (Pooler, error) {
	config = config.Copy()
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // a pooler may know no prepared statements
	first, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return Direct, poolerRefusal(err)
	}
	defer closeNow(ctx, first)
	greeted := first.PgConn().PID()
	session, err := sessionOf(ctx, first)
	if err != nil || session == greeted {
		return Direct, err
	}
	second, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return PoolsSessions, poolerRefusal(err)
	}
	defer closeNow(ctx, second)
	for range poolerRounds {
		changed, err := changes(ctx, first, second)
		if err != nil || changed {
			return PoolsStatement, err
		}
	}
	return PoolsSessions, nil
}

// changes lets second hold a session in a transaction that first has just used.
func changes(ctx context.Context, first, second *pgx.Conn) (bool, error) {
	before, err := sessionOf(ctx, first)
	if err != nil {
		return false, err
	}
	if _, err := second.Exec(ctx, "BEGIN"); err != nil {
		return false, err
	}
	held, err := sessionOf(ctx, second)
	if err != nil || held == before {
		return held == before, err
	}
	after, err := sessionOf(ctx, first)
	if err != nil {
		return false, err
	}
	_, err = second.Exec(ctx, "ROLLBACK")
	return after != before, err
}

func sessionOf(ctx context.Context, conn *pgx.Conn) (uint32, error) {
	var id int64
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&id); err != nil {
		return 0, fmt.Errorf("look for a pooler: %w", err)
	}
	return uint32(id), nil
}

// poolerRefusal adds who speaks when a connection is refused by what no server says.
func poolerRefusal(err error) error {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && refusal.Code == "08P01" && strings.HasPrefix(refusal.Message, "unsupported startup parameter") {
		return fmt.Errorf("a pooler stands before the database and takes no such connection; connect to the server itself: %w", err)
	}
	return fmt.Errorf("look for a pooler: %w", err)
}

func closeNow(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	_ = conn.Close(ctx)
}
