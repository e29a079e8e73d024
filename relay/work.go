package relay

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/outboxrow"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
	"github.com/troupe-go/troupe/retry"
)

// A Source is the source of a relay's rows.
type Source string

// The sources. Poll needs no privilege for replication and no setting of the server. WAL delivers rows when they commit, in the order of
// the commits, and costs the database far less.
const (
	Auto Source = "auto" // WAL if the server and the role allow it, else Poll; the log has the reason
	WAL  Source = "wal"
	Poll Source = "poll"
)

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// work calls once, which publishes from one source, until once returns nil or the term ends. It returns errLost and errStop, and calls once
// again after any other error.
func (r *Relay) work(idle, term context.Context, p *publisher, once func(idle, term context.Context, p *publisher) error) error {
	backoff := retry.Policy{Initial: 100 * time.Millisecond, Cap: 2 * time.Second}
	for failures := 0; idle.Err() == nil; {
		began := time.Now()
		err := once(idle, term, p)
		if err == nil || errors.Is(err, errLost) || errors.Is(err, errStop) {
			return err
		}
		if term.Err() != nil {
			return nil
		}
		if errors.Is(err, errAgain) {
			continue
		}
		if failures++; time.Since(began) > 10*time.Second {
			failures = 1
		}
		r.state.failed(err)
		r.quiet.failed("source", err)
		sleep(idle, backoff.Wait(failures), nil)
	}
	return nil
}

// workOnce chooses a source and publishes from it, until idle ends or the source fails.
func (r *Relay) workOnce(idle, term context.Context, p *publisher) error {
	source, why, err := r.choose(idle)
	if err != nil {
		return err
	}
	r.state.update(func(s *Status) { s.Source = source })
	if err := r.storeSource(idle, p.lease, source, why); err != nil {
		return err
	}
	if source == WAL { // before the transactional id is taken, which has the slot's name
		if err := r.checkSlotOwner(idle, r.pool); err != nil {
			return err
		}
	}
	if r.cfg.Delivery == ExactlyOnce {
		if err := r.transact(idle, term, p); err != nil {
			return err
		}
		defer p.tx.close()
	}
	if r.mapped == nil {
		number := 1
		if source == Poll && r.shares() {
			number = r.cfg.Shards
		}
		if err := r.divide(idle, p.lease, number); err != nil {
			return err
		}
	}
	if source == Poll {
		r.cfg.Log.Info().Str("source", string(Poll)).Str("why", why).Msg("source")
		r.repeats("the table is polled, with the rows published since the last stored snapshot: " + why)
		return r.pollOutbox(idle, term, p)
	}
	r.cfg.Log.Info().Str("source", string(WAL)).Str("slot", r.cfg.Slot).Msg("source")
	return r.stream(idle, term, p)
}

// storeSource stores the source and the reason for it, for the console.
func (r *Relay) storeSource(ctx context.Context, l *lease, source Source, why string) error {
	args := l.args(pg.Args{"source": string(source), "why": why})
	_, err := r.pool.Exec(ctx, storeSource, args)
	if unconvertible(err) { // the database's encoding lacks a character of the reason
		args["why"] = asciiText(why)
		_, err = r.pool.Exec(ctx, storeSource, args)
	}
	if err != nil {
		return fmt.Errorf("store the source: %w", err)
	}
	return nil
}

// pollOutbox polls troupe.outbox. If the table was streamed before, pollOutbox first ends that, and leaves out the rows that a stream has
// published.
func (r *Relay) pollOutbox(idle, term context.Context, p *publisher) error {
	db, err := bindNow(idle, r.pool)
	if err != nil {
		return err
	}
	defer db.Close()
	st, err := r.readState(idle, db)
	if err != nil {
		return err
	}
	if st, err = r.discardForeignState(idle, db, p.lease, st); err != nil {
		return err
	}
	if err := r.leaveSlot(idle, db, p.lease, st); err != nil {
		return err
	}
	return r.poll(idle, term, p, streamedRows{db.id, st.published})
}

// discardForeignState discards stored snapshots of another cluster: in this cluster the same transaction ids are other transactions.
// Without a snapshot all rows of the table are published, perhaps again.
func (r *Relay) discardForeignState(ctx context.Context, db *server, l *lease, st storedState) (storedState, error) {
	if st.published == nil && st.sweep == nil {
		return st, nil
	}
	system, err := systemOf(ctx, db)
	if err != nil || st.system == system {
		return st, err
	}
	r.cfg.Log.Warn().Str("system", system).Str("stored", st.system).
		Msg("the stored state is of another cluster: all rows that are in the table are published, perhaps again")
	st.source, st.system, st.published, st.sweep, st.lsn = Poll, system, nil, nil, 0
	return st, r.store(ctx, db, l, st)
}

// choose returns the source to use, and the reason for it.
func (r *Relay) choose(ctx context.Context) (s Source, why string, err error) {
	if r.cfg.Source == Poll {
		return Poll, "by configuration", nil
	}
	if r.slotGivenUp.Load() {
		return Poll, errGivenUp.Error(), nil
	}
	obstacle, err := r.obstacle(ctx)
	switch {
	case err != nil:
		return "", "", err
	case obstacle == "" && r.cfg.Source == WAL:
		return WAL, "by configuration", nil
	case obstacle == "":
		return WAL, "the server and the role allow it", nil
	case r.cfg.Source == WAL || r.mapped != nil:
		return "", "", fmt.Errorf("source wal: %s", obstacle)
	}
	return Poll, obstacle, nil
}

// warnOfStandby logs a warning if the server's synchronous_standby_names makes writers wait for this relay.
func (r *Relay) warnOfStandby(ctx context.Context, db *server) error {
	var names string
	if err := db.QueryRow(ctx, "SELECT current_setting('synchronous_standby_names')").Scan(&names); err != nil {
		return fmt.Errorf("read synchronous_standby_names: %w", err)
	}
	if wal.StandbyNamesMatch(names, r.cfg.Pool.Config().ConnConfig.RuntimeParams["application_name"]) {
		r.cfg.Log.Warn().Str("synchronous_standby_names", names).Msg(wal.StandbyWarning)
	}
	return nil
}

// obstacle returns why the table cannot be streamed, or "" if it can. For a mapped table it first creates the publication.
func (r *Relay) obstacle(ctx context.Context) (string, error) {
	if r.mapped == nil {
		return wal.Obstacle(ctx, r.pool, wal.Published{Publication: r.cfg.Publication, Schema: "troupe", Table: "outbox"})
	}
	if err := r.mapped.open(ctx, r); err != nil {
		return "", err
	}
	return wal.Obstacle(ctx, r.pool, wal.Published{Publication: r.cfg.Publication, Schema: r.mapped.schema, Table: r.mapped.name})
}

// A streamedRows is a snapshot of the rows that a stream has published, and the server process on which it is valid. If published is nil,
// there are no such rows.
type streamedRows struct {
	server    string
	published *string
}

// poll publishes from the table until idle ends. It leaves out the rows of except.
func (r *Relay) poll(idle, term context.Context, p *publisher, except streamedRows) error {
	idle, stop := context.WithCancel(idle)
	var side sync.WaitGroup
	defer side.Wait()
	defer stop()
	wake := make(chan struct{}, 1)
	source := r.newPoll(p.lease)
	source.wake, source.serverID, source.published = wake, except.server, except.published
	defer source.close()
	if p.lease.shardCount() > 1 {
		source.looker = r.looker
	} else {
		side.Go(func() { r.listen(idle, outboxrow.Channel, wake) })
	}
	if except.published != nil && p.lease.shard == 0 {
		side.Go(func() { r.removeOldRows(idle, p.lease, except) })
	}
	p.source = source
	return r.publish(idle, term, p)
}

func (r *Relay) newPoll(l *lease) *poll {
	return &poll{
		session: session{pool: r.pool}, lease: l, batch: batchOfShard(r.cfg.Batch, l.shardCount()), passLimit: passLength,
		warn: func(err error) { r.quiet.failed("low mark", err) },
	}
}

// batchOfShard returns the number of rows of a claim in one of several shards: batch divided by shards, but at least 500, or batch if
// that is less.
func batchOfShard(batch, shards int) int { return max(batch/shards, min(batch, 500)) }

// A storedState is the row of troupe.relay_state, or for a mapped table its row of troupe.mapped_tables.
type storedState struct {
	there       bool // the row exists
	source      Source
	system      string
	timeline    int32
	published   *string // snapshot: rows that it sees are published or recorded; nil: none
	sweep       *string // snapshot: rows that it sees and published does not see are swept before the slot is streamed; nil: none
	lsn         wal.LSN // checkpoint; under wal a new stream begins there
	publication *string // publication that lsn belongs to, as sample.sql identifies it; nil: not known
}

func (r *Relay) readState(ctx context.Context, db *server) (s storedState, err error) {
	var lsn *string
	query, args := readState, pg.Args{"slot": r.cfg.Slot}
	if r.mapped != nil {
		query, args = readMappedState, r.mapped.args(nil)
	}
	err = db.QueryRow(ctx, query, args).
		Scan(&s.source, &s.system, &s.timeline, &s.published, &s.sweep, &lsn, &s.publication)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s, nil
	case err != nil:
		return s, fmt.Errorf("read the relay's state: %w", err)
	}
	s.there = true
	if lsn != nil {
		s.lsn, err = wal.ParseLSN(*lsn)
	}
	return s, err
}

// store stores s. The error wraps errLost when the term is over.
func (r *Relay) store(ctx context.Context, db *server, l *lease, s storedState) error {
	query, args := storeState, pg.Args{
		"slot": r.cfg.Slot, "source": s.source, "system_id": s.system, "timeline": s.timeline,
		"published": s.published, "sweep": s.sweep, "lsn": s.lsn.String(), "publication": s.publication,
	}
	if r.mapped != nil {
		query, args = storeMappedState, r.mapped.args(args)
	}
	tag, err := db.Exec(ctx, query, l.args(args))
	switch {
	case err != nil:
		return fmt.Errorf("store the relay's state: %w", err)
	case tag.RowsAffected() == 0:
		return fmt.Errorf("store the relay's state: %w", errLost)
	}
	return nil
}
