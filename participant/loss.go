package participant

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

// A member continues when its connections break and new ones reach a standby that was promoted. If the standby lagged, the effects of messages that
// this member has handled are lost, and neither the term nor the next message shows it. So a member keeps the watermark that it wrote last and the
// number of rows of troupe.inbox_offsets that it has committed. It compares both with the database before the watermark moves, and every verifyEvery
// while the watermark does not move. If the database has less, the member leaves the group and joins again, and its partitions are read from the
// stored watermarks.

//go:embed sql/verify_progress.sql
var verifyProgress string

// verifyEvery is the interval of the comparison while the watermark does not move.
const verifyEvery = 10 * time.Second

var errLost = errors.New("the database has lost transactions of this member, as after a failover to a standby that lagged")

// committedRows holds the highest offset of each row of troupe.inbox_offsets that this member has committed above the watermark. Rows of an earlier
// owner need no count: they were committed before the lease's new term, and are lost only together with it.
type committedRows struct {
	mu    sync.Mutex
	highs []int64
}

func (r *committedRows) add(high int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.highs = append(r.highs, high)
}

func (r *committedRows) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.highs)
}

func (r *committedRows) prune(watermark int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.highs = slices.DeleteFunc(r.highs, func(high int64) bool { return high <= watermark })
}

// committed is called once a transaction has committed, and records the row with the offsets of its messages.
func (w *worker) committed(ms []*message) {
	if len(ms) > 0 && ms[0].held == nil {
		_, high, _, _ := span(ms)
		w.rows.add(high)
	}
}

// verify compares this member's committed progress with the database. It returns errFenced if another member has the lease, and errLost if the
// database has less.
func (w *worker) verify(ctx context.Context, tx interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}) error {
	args := pg.Args{"lease": w.lease.id, "term": w.lease.term, "watermark": w.storedWatermark.offset, "topic_id": (*uuid.UUID)(nil),
		"rows": w.rows.count()}
	if w.storedWatermark.topicID != uuid.Nil {
		args["topic_id"] = &w.storedWatermark.topicID
	}
	var taken, there bool
	err := tx.QueryRow(ctx, verifyProgress, args).Scan(&taken, &there)
	w.verified = time.Now()
	switch {
	case err == nil && taken:
		return errFenced
	case errors.Is(err, pgx.ErrNoRows), err == nil && !there:
		return errLost
	default:
		return err
	}
}
