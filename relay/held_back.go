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

// heldAfter bounds the delay of the log before the relay checks whether the server holds it back, and the time between two checks.
const heldAfter = 5 * time.Second

// standbyWait returns the reason if the session pid waits until standbys have a part of the log. The server holds it back from a slot
// that standbys copy until the standbys in synchronized_standby_slots have it, however long they are absent.
func standbyWait(ctx context.Context, db querier, pid uint32) error {
	ctx, cancel := context.WithTimeout(ctx, heldAfter)
	defer cancel()
	var named string
	var streamed, idle []string
	err := db.QueryRow(ctx, readStandbyWait, pg.Args{"pid": int64(pid)}).Scan(&named, &streamed, &idle)
	if err != nil { // no row, or a broken connection, which is not the reason
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
	return fmt.Errorf("%s%s, whose standbys are behind: see why they do not receive the log, or take the slow one out of the setting", held, named)
}

// heldBack records why the server holds the log back; nil: it does not.
func (r *Relay) heldBack(why error) {
	r.state.holds(why)
	if why == nil {
		r.quiet.recovered("log")
		return
	}
	r.state.failed(why)
	r.quiet.failed("log", why)
}

// watchStandby looks whether the server holds the log back, if the stream has not passed a sample for long.
func (s *stream) watchStandby(ctx context.Context, pending *sample) {
	switch {
	case pending == nil || s.isFull():
		s.relay.heldBack(nil)
	case time.Since(pending.at) >= heldAfter && time.Since(s.watched) >= heldAfter:
		s.watched = time.Now()
		s.relay.heldBack(standbyWait(ctx, s.db, s.conn.PID()))
	}
}

// whileReading calls read and looks meanwhile whether the server holds the log back from the session of tx.
func (r *Relay) whileReading(ctx context.Context, db querier, tx pgx.Tx, read func() error) error {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !pause(ctx, heldAfter, done) && ctx.Err() == nil {
			r.heldBack(standbyWait(ctx, db, tx.Conn().PgConn().PID()))
		}
		r.heldBack(nil)
	}()
	err := read()
	close(done)
	<-ended
	return err
}
