package participant

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/pg"
)

var (
	//go:embed sql/make_lease.sql
	makeLease string
	//go:embed sql/take_lease.sql
	takeLease string
	//go:embed sql/end_holders.sql
	endHolders string
	//go:embed sql/load_offsets.sql
	loadOffsets string
	//go:embed sql/share_lease.sql
	shareLease string
	//go:embed sql/insert_offsets.sql
	insertOffsets string
	//go:embed sql/check_term.sql
	checkTerm string
	//go:embed sql/move_watermark.sql
	moveWatermark string
	//go:embed sql/release_lease.sql
	releaseLease string
	//go:embed sql/prune_offsets.sql
	pruneOffsets string
)

// leaseClass is the first half of the keys of the leases' advisory locks; the second half is the lease's id. Postgres keeps pairs of integers apart
// from the single integers that other libraries use as keys.
const leaseClass = 0x74727570 // "trup"

const (
	// takeLimit is the time that a new owner waits for the transactions of the last one before it ends their sessions.
	takeLimit = time.Second
	// takeIdle is the time after which Postgres ends the session of a member that is frozen while it takes a lease. That session has the
	// exclusive lock, and other members cannot tell whether it makes progress.
	takeIdle = 5 * time.Second
)

// errFenced reports that the partition has another owner. The transaction was rolled back.
var errFenced = errors.New("another member owns the partition")

// lease is the right to handle a partition. It holds the state that the lease had when this member took it.
type lease struct {
	id    int32
	term  int64
	clean bool // the previous owner shut down cleanly, or there was none
	seen  seen

	rebuilds rebuilds
}

// owner returns the text by which operators recognise the owner of a lease.
func (p *Participant) owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s, process %d", host, os.Getpid())
}

// takeLease makes this member the partition's owner: from then on no transaction of an earlier owner can commit. It waits takeLimit for open
// transactions of an earlier owner, such as a frozen one, and then ends their sessions. If this member dies after it has ended the sessions and
// before it has the term, the earlier owner keeps the partition and runs the rolled-back messages again. If the lock is held by a session whose role
// cannot be a participant's, it returns an error.
func (w *worker) takeLease(ctx context.Context) (l lease, err error) {
	args := pg.Args{
		"group": w.p.cfg.Group, "topic": w.topic, "partition": w.id, "owner": w.p.owner(), "class": int32(leaseClass),
	}
	const id = "SELECT id FROM troupe.leases WHERE consumer_group = @group AND topic = @topic AND partition = @partition"
	err = w.p.cfg.Pool.QueryRow(ctx, id, args).Scan(&l.id)
	if errors.Is(err, pgx.ErrNoRows) { // else there is no INSERT, which would wait for a frozen session that has the row
		if _, err = w.p.cfg.Pool.Exec(ctx, makeLease, args); err == nil {
			err = w.p.cfg.Pool.QueryRow(ctx, id, args).Scan(&l.id)
		}
	}
	if err != nil {
		return l, err
	}
	args["lease"] = l.id
	for {
		// Read committed, whatever default_transaction_isolation is: a snapshot from before the lock would lack commits of the last owner.
		err := pgx.BeginTxFunc(ctx, w.p.cfg.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			w.p.learnEncoding(tx.Conn())
			before, err := l.bump(ctx, tx, args)
			if err != nil {
				return err
			}
			// If this worker took the lease before, the row has no time of a release, which is no sign of a crash: the owner before that take counts.
			if clean, own := w.ownTerms[before]; own {
				l.clean = clean
			}
			w.ownTerms[l.term] = l.clean
			return nil
		})
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "55P03" { // lock_not_available
			return l, err
		}
		var ended int
		err = w.p.cfg.Pool.QueryRow(ctx, endHolders, args).Scan(&ended)
		if err != nil || ended == 0 {
			if foreign := w.p.foreignLock(ctx, leaseClass, l.id); foreign != nil {
				return l, foreign
			}
		}
		if err != nil {
			return l, fmt.Errorf("end the sessions of the partition's last owner: %w", err)
		}
		if ended > 0 {
			w.p.cfg.Log.Warn().Stringer("partition", w.at).Int("sessions", ended).
				Msg("the partition's last owner had transactions open: their sessions were ended")
		}
	}
}

// last returns the highest offset of a topic that had ended when the lease was taken, or when a rebuild began; -1: there is none.
func (l *lease) last(topicID uuid.UUID) int64 {
	last := int64(-1)
	if topicID == uuid.Nil {
		return last
	}
	if l.seen.topicID == topicID {
		last = l.seen.last()
	}
	if r := l.rebuilds.now; r != nil && r.topicID == topicID {
		last = max(last, r.before.last())
	}
	return last
}

// bump raises the term, reads the lease into l, and returns the term before it.
func (l *lease) bump(ctx context.Context, tx pgx.Tx, args pg.Args) (before int64, err error) {
	const limits = "SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true), " +
		"set_config('statement_timeout', '0', true)" // a shorter one of the role would end the wait before lock_timeout does
	if _, err := tx.Exec(ctx, limits, fmt.Sprint(takeLimit.Milliseconds()), fmt.Sprint(takeIdle.Milliseconds())); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(@class, @lease)", args); err != nil {
		return 0, err
	}
	if err := l.rebuilds.load(ctx, tx, args); err != nil {
		return 0, err
	}
	l.seen = seen{}
	var topicID *uuid.UUID
	err = tx.QueryRow(ctx, takeLease, args).Scan(&l.term, &before, &l.clean, &topicID, &l.seen.watermark.offset, &l.seen.watermark.epoch)
	if err != nil {
		return 0, err
	}
	if topicID != nil {
		l.seen.topicID = *topicID
	}
	return before, l.seen.load(ctx, tx, l.id)
}

// queueTermCheck queues the first statements of each transaction of the partition. These transactions share an advisory lock, which a new owner takes
// exclusively. The lock comes first, so that the term is read after it was acquired. ended holds the messages whose offsets the transaction stores;
// it may be empty.
func (w *worker) queueTermCheck(b *pgx.Batch, ended []*message) {
	idle := w.p.cfg.Timeout + wedgedAfter
	b.Queue(shareLease, int32(leaseClass), w.lease.id, fmt.Sprint(idle.Milliseconds()))
	if len(ended) == 0 {
		b.Queue(checkTerm, w.lease.id, w.lease.term)
		return
	}
	low, high, offsets, epoch := span(ended)
	b.Queue(insertOffsets, w.lease.id, w.lease.term, [16]byte(ended[0].topicID), low, high, offsets, epoch)
}

// readTermCheck reads the results of queueTermCheck's statements. It returns errFenced if the partition has another owner.
func readTermCheck(results pgx.BatchResults) error {
	if _, err := results.Exec(); err != nil {
		return err
	}
	tag, err := results.Exec()
	if err == nil && tag.RowsAffected() == 0 {
		err = errFenced
	}
	return err
}

// storeWatermark stores w.low as the partition's watermark, the offset up to which all messages have ended. Before that it compares this member's
// progress with the database. If this watermark is stored already, storeWatermark only makes the comparison, at most every verifyEvery. With release
// it releases the lease too; if the watermark is stored already, it does only that.
//
// The watermark has a transaction of its own: if each handler's transaction updated the lease's row, these transactions would wait for each other. The
// watermark's transaction begins with queueTermCheck, as the handlers' transactions do. So the next owner can end it if this member is frozen.
func (w *worker) storeWatermark(ctx context.Context, release bool) error {
	low := w.low.Load()
	if low == nil || low == w.storedWatermark {
		switch {
		case release:
			_, err := w.p.cfg.Pool.Exec(ctx, releaseLease, pg.Args{"lease": w.lease.id, "term": w.lease.term})
			return err
		case time.Since(w.verified) > verifyEvery:
			return w.verify(ctx, w.p.cfg.Pool)
		}
		return nil
	}
	args := pg.Args{
		"lease": w.lease.id, "term": w.lease.term, "topic_id": low.topicID, "watermark": low.offset, "epoch": low.epoch,
		"released": release,
	}
	tx, err := w.begin(ctx, func(b *pgx.Batch) { w.queueTermCheck(b, nil) }, readTermCheck)
	if err != nil {
		return err
	}
	defer tx.rollback(ctx)
	if err := w.verify(ctx, tx); err != nil {
		return err
	}
	tx.queue.Queue(moveWatermark, args)
	tx.queue.Queue(pruneOffsets, args)
	if l := w.lowered.Load(); l != nil && l.low == low {
		tx.queue.Queue(deleteOffsets, w.lease.id, w.lease.term, low.offset)
		args["group"], args["topic"], args["partition"], args["from"] = w.p.cfg.Group, w.topic, w.id, l.from
		tx.queue.Queue(cutRebuild, args)
	}
	if err = tx.commit(ctx); err == nil {
		w.storedWatermark = low
		w.rows.prune(low.offset)
	}
	return err
}
