package relay

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/troupe-go/troupe/internal/pg"
)

// A session is a connection out of the pool, since its planner settings are its own.
type session struct {
	pool   *pgxpool.Pool
	conn   *pgx.Conn // nil: none
	server string    // that conn leads to
}

// planner leaves one plan: walk the partitions' keys upwards and stop at the limit. By its own estimates the planner
// rather reads the whole backlog and sorts it for each claim: young partitions have no statistics, and a table of
// trouble that is empty is taken to hold hundreds of rows. A delete by its estimates keeps a range of a small table in
// memory and reads it once for every row that goes. Workers in parallel, with which claims of 10,000,000 rows were planned,
// each read ahead of the limit. What has no other plan costs so much then that it would be compiled.
const planner = `
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET max_parallel_workers_per_gather = 0;
SET jit = off`

// connect makes the connection where there is none, which it says.
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
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) // it is given up in any case
	s.conn = nil
}
