package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/pg"
)

// errServer means that a connection leads to another server process than the one from which a source reads. This happens after a failover,
// a restart or a promotion.
var errServer = errors.New("the database address leads to another server now, or the server was restarted")

// A server is a pool of connections to one server process. Snapshots, transaction ids and LSNs of two servers must never be combined. After
// a failover the old server's stream may still be open while new connections lead to the new server, where the same numbers mean other
// transactions. So code that reads or stores such state uses a server. A connection that would lead to another server process fails with
// errServer.
type server struct {
	*pgxpool.Pool
	id string
}

// Close closes the connections as closePool does.
func (s *server) Close() { closePool(s.Pool) }

// closePool closes a pool's connections, and waits for closeLimit at most. It may take more than a minute to close a connection to a host
// that is gone. After a failover the relay must not wait for that: it continues with the new server at once.
func closePool(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeLimit):
	}
}

const closeLimit = time.Second

// bind creates a pool of connections to the server process id, with the configuration of the pool to. The caller closes it.
func bind(to *pgxpool.Pool, id string) (*server, error) {
	pool, err := pg.SessionPool(to, func(ctx context.Context, conn *pgx.Conn) error {
		now, err := pg.Server(ctx, conn)
		if err == nil && now != id {
			err = errServer
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &server{pool, id}, nil
}

// bindNow creates a pool as bind does, for the server process to which the pool's connections lead now.
func bindNow(ctx context.Context, pool *pgxpool.Pool) (*server, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	id, err := pg.Server(ctx, conn.Conn())
	if err != nil {
		return nil, err
	}
	return bind(pool, id)
}

// systemOf returns the system identifier of the cluster. Transaction ids are unique within one cluster only.
func systemOf(ctx context.Context, db *server) (system string, err error) {
	if err := db.QueryRow(ctx, "SELECT system_identifier::text FROM pg_control_system()").Scan(&system); err != nil {
		return "", fmt.Errorf("identify the system: %w", err)
	}
	return system, nil
}
