package participant

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"
)

// acquire takes the lease and reads the held keys. work repeats it until it succeeds. It has a time limit, since a server that is cut off, or whose
// host hangs, answers nothing and keeps the connection.
//
// If the process ends right after the lease is committed, no message has run, but the next owner finds a lease that was not released: the first
// messages run in quarantine. An earlier take by this worker itself does not count as a crash: see ownTerms.
func (w *worker) acquire(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.p.statementTimeout+2*takeLimit)
	defer cancel()
	l, err := w.takeLease(ctx)
	if err != nil {
		return database(err)
	}
	w.lease = l
	w.storedWatermark = &lowMark{topicID: l.seen.topicID, offset: l.seen.watermark.offset, epoch: l.seen.watermark.epoch}
	w.term.Store(l.term)
	if !l.clean {
		if err := w.loadMarks(ctx); err != nil {
			return database(err)
		}
		w.quarantined.Store(int64(w.p.backlog()))
		w.logCrash()
	}
	return w.load(ctx)
}

// logCrash logs that the partition's last owner crashed. A process that was killed had several partitions: if no message is suspected, one warning in
// 30 s is enough for all of them. The number of suspected messages includes messages that had ended and whose marks were not deleted, as by a crash
// in between. Such marks are deleted after a day, and their messages do not run again.
func (w *worker) logCrash() {
	suspected := len(w.starts.of)
	level := zerolog.WarnLevel
	if now, last := time.Now().UnixNano(), w.p.crashLogged.Load(); suspected == 0 &&
		(now-last < int64(repeatEvery) || !w.p.crashLogged.CompareAndSwap(last, now)) {
		level = zerolog.DebugLevel
	}
	w.p.cfg.Log.WithLevel(level).Stringer("partition", w.at).Int("suspected", suspected).
		Msg("the last owner of a partition crashed: the first messages run in quarantine, and the suspected ones one by one")
}

// keep stores the watermark, reads the held keys, starts their turns and handles skipped batches, until w.stop is closed.
func (w *worker) keep() {
	move := time.NewTicker(w.p.tick)
	defer move.Stop()
	reload := time.NewTimer(w.p.tick)
	defer reload.Stop()
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		alarm.Reset(w.startTurns())
		select {
		case <-w.stop:
			return
		case <-w.wake:
		case <-alarm.C:
		case moved := <-w.moveNow:
			w.attend(func(ctx context.Context) error { return w.storeWatermark(ctx, false) })
			moved <- w.storedWatermark == w.low.Load()
		case <-move.C:
			w.attend(func(ctx context.Context) error { return w.storeWatermark(ctx, false) })
			w.attend(w.skipMarked)
		case <-reload.C:
			began, every := time.Now(), w.p.tick
			if w.holds.count() == 0 {
				every = quietTicks * w.p.tick
			}
			w.attend(w.load)
			reload.Reset(every + min(20*time.Since(began), longestRest))
		}
	}
}

// attend runs do, one step of keep, within statementLimit. If do fails, keep repeats it later; but errFenced and errLost end the membership.
func (w *worker) attend(do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(w.ctx, statementLimit)
	defer cancel()
	err := do(ctx)
	switch {
	case errors.Is(err, errFenced):
		w.fenced()
	case errors.Is(err, errLost):
		w.lane.Close()
		w.c.abandon(errLost)
	case w.ctx.Err() == nil:
		w.p.outage(theDatabase).report(err)
	}
}

// startTurns gives the held keys that are due their turns, and returns the wait until the next key is due.
func (w *worker) startTurns() time.Duration {
	due, wait := w.holds.due(time.Now(), w.p.backlog()/turnsShare)
	for _, t := range due {
		w.lane.PushAside(t.key.lane(), &message{due: true, turn: t.key, limits: t.limits})
	}
	return min(wait, w.release(time.Now()))
}

// fenced stops the partition, which has another owner. It also ends the membership, since the group still assigns the partition to this member.
func (w *worker) fenced() {
	w.lane.Close()
	w.c.abandon(errFenced)
}
