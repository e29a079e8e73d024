package relay

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/pg"
)

// A session is a connection with planner settings of its own. It is taken out of the pool, so that no other code uses these settings.
type session struct {
	pool   *pgxpool.Pool
	conn   *pgx.Conn // nil: none
	server string    // server process that conn leads to
}

// planner holds the settings of a session that claims or deletes rows. They leave Postgres one plan: walk the partitions' primary keys
// upwards, and stop at the limit.
//
// Without these settings Postgres chooses badly. For a claim it reads and sorts the whole backlog, because new partitions have no
// statistics, and it assumes that the empty table of failures holds hundreds of rows. In a table of 10,000,000 rows it starts parallel
// workers, each of which reads more rows than the limit. For a delete it materialises a range of rows, and reads the range once for each
// deleted row.
//
// With these settings the plan's estimated cost is so high that Postgres would compile the plan, so jit is off.
const planner = `
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET max_parallel_workers_per_gather = 0;
SET jit = off`

// connect opens the connection if there is none, and reports whether it did.
func (s *session) connect(ctx context.Context) (fresh bool, err error) {
	if s.conn != nil {
		return false, nil
	}
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	s.conn = pooled.Hijack()
	if _, err = s.conn.Exec(ctx, planner); err != nil {
		return true, err
	}
	s.server, err = pg.Server(ctx, s.conn)
	return true, err
}

func (s *session) close() {
	if s.conn != nil {
		closeConn(s.conn)
		s.conn = nil
	}
}

// closeConn closes a connection, and waits for closeLimit at most.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = conn.Close(ctx) // an error does not matter: the connection is not used again
}
