package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/internal/pg"
)

// heldAfter is the time for which a stream must make no progress before the relay checks whether the server holds the log back. It is also
// the time between two checks.
const heldAfter = 5 * time.Second

// standbyWait returns an error if the server process pid, which sends the log to the relay, waits for a standby; the error names the cause.
// It returns nil if the process does not wait. The server sends no part of the log to a failover slot before every standby in
// synchronized_standby_slots has received that part, however long a standby is absent.
func standbyWait(ctx context.Context, db querier, pid uint32) error {
	ctx, cancel := context.WithTimeout(ctx, heldAfter)
	defer cancel()
	var named string
	var streamed, idle []string
	err := db.QueryRow(ctx, readStandbyWait, pg.Args{"pid": int64(pid)}).Scan(&named, &streamed, &idle)
	if err != nil { // no row: it does not wait. After any other error the next check repeats the query
		return nil
	}
	const held = "the server holds the log back from the relay: synchronized_standby_slots names "
	for name := range strings.SplitSeq(named, ",") {
		name = strings.Trim(strings.TrimSpace(name), `"`)
		switch {
		case slices.Contains(streamed, name):
		case slices.Contains(idle, name):
			return fmt.Errorf("%s%s, and no standby streams this slot: start that standby, or take the name out of the setting", held, name)
		default:
			return fmt.Errorf("%s%s, and there is no such physical slot: create it for its standby, or take the name out of the setting", held, name)
		}
	}
	return fmt.Errorf("%s%s, whose standbys are behind: find out why they do not receive the log, or take the slow one out of the setting", held, named)
}

// heldBack reports in Status, in Ready and in the log why the server holds the log back from the relay; nil: it does not.
func (r *Relay) heldBack(why error) {
	r.state.setHeldBack(why)
	if why == nil {
		r.quiet.recovered("log")
		return
	}
	r.state.failed(why)
	r.quiet.failed("log", why)
}

// reportSilence reports why the server sends no part of the log. storeCheckpoints calls it regularly. pending is the sample that the stream
// has not passed yet; nil: it has passed the last one. Once pending is older than heldAfter, reportSilence checks every heldAfter whether
// the server holds the log back. It does not check while the window is full, since then the relay itself delays the log.
func (s *stream) reportSilence(ctx context.Context, pending *sample) {
	switch {
	case pending == nil || s.isFull():
		s.relay.heldBack(nil)
	case time.Since(pending.at) >= heldAfter && time.Since(s.watched) >= heldAfter:
		s.watched = time.Now()
		why := standbyWait(ctx, s.db, s.conn.PID())
		if why == nil {
			why = s.silenceError(pending)
		}
		s.relay.heldBack(why)
	}
}

// silenceError returns an error if the server has sent no part of its log for 2 * Relay.silence, although it has more log: the sample
// shows that. Then rows may wait in the server's log, and the relay does not know of them. A keepalive is no part of the log.
func (s *stream) silenceError(pending *sample) error {
	if s.sent.Load() >= uint64(pending.lsn) { // the rows up to the sample were sent, and are not published yet
		return nil
	}
	silent := min(time.Since(time.Unix(0, s.sentAt.Load())), time.Since(pending.at))
	if silent < 2*s.relay.silence {
		return nil
	}
	return fmt.Errorf("the server has sent no part of its log for %s: it decodes a large transaction, or its process %d waits, "+
		"see its wait_event in pg_stat_activity", silent.Round(time.Second), s.conn.PID())
}

// whileReading calls read, which reads the log in the session of tx. Meanwhile it checks every heldAfter whether the server holds the log
// back from that session.
func (r *Relay) whileReading(ctx context.Context, db querier, tx pgx.Tx, read func() error) error {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !sleep(ctx, heldAfter, done) && ctx.Err() == nil {
			r.heldBack(standbyWait(ctx, db, tx.Conn().PgConn().PID()))
		}
		r.heldBack(nil)
	}()
	err := read()
	close(done)
	<-ended
	return err
}
