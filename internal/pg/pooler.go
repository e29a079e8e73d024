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

// A Pooler is the kind of pooler between a client and the server.
type Pooler int

// The kinds.
const (
	Direct         Pooler = iota // no pooler that could be detected
	PoolsSessions                // a connection is one session of the server
	PoolsStatement               // a connection may have another session in each transaction
)

// ErrPooled is the error for a connection that is not one session: its settings affect other clients, and notifications are lost.
var ErrPooled = errors.New("the connection goes through a pooler in transaction mode: a connection is another session from " +
	"transaction to transaction, so settings leak to other clients and notifications are lost; connect to the server itself, " +
	"or to a pool in session mode")

const (
	poolerRounds = 4 // attempts to see a session change; one is enough if no other client uses the pool
	closeLimit   = time.Second
)

// FindPooler detects a pooler between config and the server. A server sends its process id when a connection begins and again
// when queried; a pooler sends a number of its own first. Then it opens a second connection to find the pooler's mode: if one
// connection gets the session that the other had, or the other loses it, connections are not bound to sessions.
func FindPooler(ctx context.Context, config *pgx.ConnConfig) (Pooler, error) {
	config = config.Copy()
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // a pooler may not support prepared statements
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

// changes reports whether the sessions of the two connections change, while second keeps one in a transaction.
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

// poolerRefusal names the pooler in the error, if a connection is refused with a text that no server sends.
func poolerRefusal(err error) error {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && refusal.Code == "08P01" && strings.HasPrefix(refusal.Message, "unsupported startup parameter") {
		return fmt.Errorf("the connection goes through a pooler, which refuses it; connect to the server itself: %w", err)
	}
	return fmt.Errorf("look for a pooler: %w", err)
}

func closeNow(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	_ = conn.Close(ctx)
}
