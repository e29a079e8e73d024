package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/mapping"
	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
)

// report confirms s.confirmedLSN to the server every reportEvery until ctx ends, and then once more. When the server is silent for too long,
// report checks whether the server still works. If it does not, report ends the stream.
func (s *stream) report(ctx context.Context) {
	for more := true; more; {
		sleep(ctx, reportEvery, s.hurry)
		more = ctx.Err() == nil
		full := s.isFull() // read once, so that at most one of the two checks below runs: both take longer than the server waits for a report
		if quiet := time.Since(time.Unix(0, s.received.Load())); quiet > s.relay.silence && !full {
			if !s.decodes(ctx) {
				s.endWith(fmt.Errorf("the server was silent for %s", quiet))
				return
			}
			s.received.Store(time.Now().UnixNano())
			s.relay.cfg.Log.Info().Stringer("silent_for", quiet.Round(time.Second)).
				Msg("the server decodes a large transaction and sends nothing meanwhile: the relay waits")
		}
		if full && s.serverStops(ctx) {
			s.endWith(errStopping)
			s.conn.Close() // at once, since the publisher may wait for a broker
			return
		}
		if err := s.conn.Report(wal.LSN(s.confirmedLSN.Load())); err != nil {
			s.endWith(err)
			return
		}
	}
}

// decodes reports whether the stream's walsender is busy decoding the log, so that its silence is no failure. Up to Postgres 15 a walsender
// sends nothing, not even a keepalive, while it decodes a transaction without published rows, such as REFRESH MATERIALIZED VIEW.
//
// A walsender that waits for the client or for more log sends keepalives. If such a walsender is silent, the connection is broken, and
// decodes returns false. It also returns false if the query fails.
func (s *stream) decodes(ctx context.Context) (busy bool) {
	ctx, cancel := context.WithTimeout(ctx, s.relay.answer)
	defer cancel()
	err := s.db.QueryRow(ctx, readWalsender, pg.Args{"slot": s.relay.cfg.Slot, "pid": int64(s.conn.PID())}).Scan(&busy)
	return err == nil && busy
}

// serverStops reports whether the server is shutting down. report calls it while the window is full, when the relay reads nothing. Before
// it stops, a server sends all of its log, and would wait for the relay.
func (s *stream) serverStops(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.relay.answer)
	defer cancel()
	_, err := s.db.Exec(ctx, "SELECT")
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == cannotConnectNow
}

// cannotConnectNow is the error code of a server that accepts no connections, since it shuts down or starts.
const cannotConnectNow = "57P03"

// storeCheckpoints stores regularly the LSN up to which the log is published. Only then does report confirm this LSN to the server. It
// takes samples, and when the stream has passed a sample, it stores the sample's snapshot too: the rows of that snapshot are published or
// recorded. When ctx ends it stores the last checkpoint and returns.
func (s *stream) storeCheckpoints(ctx context.Context, st storedState) {
	var pending *sample          // a sample that the stream has not passed yet
	var unsampled bool           // the last sample has failed
	var proven, storedRows int64 // s.rows at the last sample that the stream has passed, and at the last store
	for stored := time.Now(); s.awaitCheckpoint(ctx, pending, proven); {
		s.confirmTimed(ctx)
		if pending == nil {
			s.relay.state.setStoreBegan(time.Now())
			got, err := s.sample(ctx)
			s.relay.state.setStoreBegan(time.Time{})
			if err != nil {
				s.failed(ctx, "sample", err)
				s.relay.state.setStoreError(err) // without a sample no checkpoint is stored
				unsampled = true
				continue
			}
			s.relay.quiet.recovered("sample")
			if unsampled {
				unsampled = false
				s.relay.state.setStoreError(nil)
			}
			pending = &got
		}
		published := s.published.Load()
		fresh := false // a snapshot that sees rows that the stored one does not see
		if published >= uint64(pending.lsn) {
			fresh = pending.rows != proven
			proven, st.published, pending = pending.rows, &pending.snapshot, nil
		}
		s.reportSilence(ctx, pending)
		rows := s.rows.Load()
		moved := rows != storedRows && time.Since(stored) >= sampleEvery
		if !fresh && !moved && published < s.storedLSN.Load()+storeBehind && time.Since(stored) < time.Minute {
			continue
		}
		s.relay.state.setStoreBegan(time.Now())
		err := s.storeCheckpoint(ctx, st, published)
		s.relay.state.setStoreBegan(time.Time{})
		if err != nil {
			s.failed(ctx, "store", err)
			s.relay.state.setStoreError(err)
			continue
		}
		s.relay.quiet.recovered("store")
		s.relay.state.setStoreError(nil)
		stored, storedRows = time.Now(), rows
	}
	s.relay.heldBack(nil)
	s.relay.state.setStoreError(nil)
	if err := s.storeLastCheckpoint(context.WithoutCancel(ctx), st); err != nil && !errors.Is(err, errLost) {
		s.relay.cfg.Log.Warn().Err(err).Msg("the rows published last will be published again")
	}
}

// storeTimeout is the time after which Ready returns errSlowStore for a statement that takes a sample, stores a checkpoint, or reads whether
// standbys have it. It does not end the statement: if its connection were closed, the server might execute it after a later one, and the
// checkpoint would go back. TCP ends a connection whose other host acknowledges nothing, see pg.limitSilence.
const storeTimeout = 30 * time.Second

// errSlowStore is the error of a statement without an answer.
var errSlowStore = errors.New("the server does not answer, or another session holds a lock: see pg_stat_activity, and whether the network forwards each connection")

// storeLastCheckpoint stores the last checkpoint of the stream. The failure of the network that ended the stream may also have broken the
// pool's connections. So storeLastCheckpoint tries again while there is a new checkpoint to store, for at most releaseLimit.
func (s *stream) storeLastCheckpoint(ctx context.Context, st storedState) error {
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	for {
		published := s.published.Load()
		try, end := context.WithTimeout(ctx, releaseLimit/4)
		err := s.storeCheckpoint(try, st, published)
		end()
		if err == nil || endsStream(err) || published <= s.storedLSN.Load() || ctx.Err() != nil {
			return err
		}
		sleep(ctx, 100*time.Millisecond, nil)
	}
}

// endsStream reports whether err must end the stream: there is another server, another leader or another publication, or a
// table inherits from the mapped table, so a retry cannot help.
func endsStream(err error) bool {
	return errors.Is(err, errLost) || errors.Is(err, errServer) || errors.Is(err, errAltered) || errors.Is(err, mapping.ErrInherits)
}

// failed logs an error of storeCheckpoints. If a retry cannot help, it ends the stream.
func (s *stream) failed(ctx context.Context, what string, err error) {
	if endsStream(err) {
		s.endWith(err)
	}
	if ctx.Err() == nil {
		s.relay.quiet.failed(what, err)
	}
}

// awaitCheckpoint waits until storeCheckpoints must check again whether to store, which takes longer while no rows are published. It
// returns false when ctx has ended. pending and proven are variables of storeCheckpoints.
func (s *stream) awaitCheckpoint(ctx context.Context, pending *sample, proven int64) bool {
	if pending != nil {
		sleep(ctx, sampleEvery, s.publishedMoved)
		return ctx.Err() == nil
	}
	sleep(ctx, sampleEvery, nil)
	s.idle(ctx, proven)
	return ctx.Err() == nil
}

// idle waits until s.rows differs from rows, for at most beatEvery. Meanwhile it confirms a checkpoint that is held. It takes no sample for that:
// a program such as pg_receivewal makes each checkpoint wait, and a sample writes to the log.
func (s *stream) idle(ctx context.Context, rows int64) {
	for end := time.Now().Add(beatEvery); ctx.Err() == nil && time.Now().Before(end) && s.rows.Load() == rows; {
		if s.confirmTimed(ctx); s.held.lsn > 0 {
			sleep(ctx, sampleEvery, nil)
		} else {
			sleep(ctx, time.Until(end), s.publishedMoved)
		}
	}
}

// confirmTimed calls confirm. Meanwhile Ready takes the time without an answer.
func (s *stream) confirmTimed(ctx context.Context) {
	s.relay.state.setStoreBegan(time.Now())
	s.confirm(ctx)
	s.relay.state.setStoreBegan(time.Time{})
}

// storeCheckpoint stores the checkpoint published, and then lets report confirm it, see confirm.
func (s *stream) storeCheckpoint(ctx context.Context, st storedState, published uint64) error {
	published = max(published, s.storedLSN.Load())
	st.lsn = wal.LSN(published)
	if err := s.relay.store(ctx, s.db, s.lease, st); err != nil {
		return err
	}
	s.storedLSN.Store(published)
	s.confirm(ctx)
	return nil
}
