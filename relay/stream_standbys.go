package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/troupe-go/troupe/internal/pg"
	"github.com/troupe-go/troupe/internal/wal"
)

// A heldConfirm is a stored checkpoint that is not confirmed to the server yet, since connected standbys may lack a part of the log. The zero
// value holds nothing.
type heldConfirm struct {
	lsn    wal.LSN
	needed wal.LSN // the log up to here contains the stored checkpoint, and the records of the failed rows before lsn
	since  time.Time
	looked time.Time // when the standbys were last looked at
}

// lookAgain is the least time between two looks at the standbys. While many rows are published, confirm is called some hundred times a second.
const lookAgain = 100 * time.Millisecond

// holdLimit is the longest time for which a checkpoint is held. A physical slot may belong to a program that moves it rarely, such as
// pg_receivewal, and not to a standby.
const holdLimit = time.Minute

// confirm lets report confirm the stored checkpoint to the server. If standbys copy the slot, confirm first waits, over several calls, until
// each connected standby has the log up to the end of the statement that stored the checkpoint. A standby copies the slot's LSN as soon as it
// has the log up to there, but the checkpoint and the records of failed rows are later in the log. Without this wait a failover may keep the
// slot's LSN and lose these: the slot has passed a failed row then, of which there is no record.
func (s *stream) confirm(ctx context.Context) {
	stored := wal.LSN(s.storedLSN.Load())
	if s.held.lsn == 0 && stored == wal.LSN(s.confirmedLSN.Load()) {
		return
	}
	if !s.copied {
		s.release(stored)
		return
	}
	if s.held.lsn == 0 {
		s.held = heldConfirm{lsn: stored, since: time.Now()}
	}
	if time.Since(s.held.looked) < lookAgain {
		return
	}
	s.held.looked = time.Now()
	lacks, err := s.standbyLacks(ctx)
	if err != nil {
		s.failed(ctx, "standbys", err)
		lacks = true
	} else {
		s.relay.quiet.recovered("standbys")
	}
	if !lacks || time.Since(s.held.since) >= s.relay.holding {
		s.release(s.held.lsn)
		s.held = heldConfirm{}
	}
}

// standbyLacks reports whether a connected standby does not have the log up to s.held.needed. It first sets s.held.needed if it is not set.
func (s *stream) standbyLacks(ctx context.Context) (lacks bool, err error) {
	var needed *string
	if s.held.needed > 0 {
		text := s.held.needed.String()
		needed = &text
	}
	var text string
	if err := s.db.QueryRow(ctx, standbyLacks, pg.Args{"needed": needed}).Scan(&text, &lacks); err != nil {
		return false, fmt.Errorf("look how far the standbys are: %w", err)
	}
	s.held.needed, err = wal.ParseLSN(text)
	return lacks, err
}

// release makes report confirm lsn at once.
func (s *stream) release(lsn wal.LSN) {
	s.confirmedLSN.Store(uint64(lsn))
	tell(s.hurry)
}
