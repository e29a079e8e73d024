package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Stats is what an operator asks of an outbox first.
type Stats struct {
	Pending  int64         `json:"pending"`  // rows there are, those in trouble included; counted up to 100,000
	Oldest   time.Duration `json:"oldest"`   // age of the lowest row there is; 0 when empty
	Retrying int64         `json:"retrying"` // rows that wait for their next try
	Parked   int64         `json:"parked"`   // rows that a person must look at
	Headroom int64         `json:"headroom"` // positions left in the partitions that there are
}

// ReadStats takes one round trip. The count stops at 100,000 rows, so that it stays cheap behind any backlog.
func ReadStats(ctx context.Context, pool *pgxpool.Pool) (Stats, error) {
	var s Stats
	var oldest *float64
	err := pool.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM (SELECT FROM troupe.outbox LIMIT 100000) AS rows),
		       (SELECT extract(epoch FROM clock_timestamp() - created_at)::float8
		        FROM troupe.outbox ORDER BY position LIMIT 1),
		       (SELECT count(*) FROM troupe.outbox_trouble WHERE status = 'retrying'),
		       (SELECT count(*) FROM troupe.outbox_trouble WHERE status = 'parked'),
		       (SELECT coalesce(max(hi), 0) FROM troupe.outbox_partitions WHERE state = 'attached')
		         - (SELECT last_value FROM troupe.outbox_position_seq)`).
		Scan(&s.Pending, &oldest, &s.Retrying, &s.Parked, &s.Headroom)
	if err != nil {
		return Stats{}, fmt.Errorf("outbox: read statistics: %w", err)
	}
	if oldest != nil {
		s.Oldest = max(0, time.Duration(*oldest*float64(time.Second)))
	}
	return s, nil
}
