package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/troupe-go/troupe/internal/wal"
)

// read reads the log into windows until the connection or the stream ends. It runs in a goroutine of its own.
func (s *stream) read() {
	layouts := make(map[uint32]knownLayout) // by the table's OID: each Relation message is another *Relation
	texts := make(words)
	open, rows := false, false // open: within a transaction; rows: it has rows of the outbox
	published := false         // its rows were published before; their column xid does not show that, since it may be of another cluster
	var asked requests
	for {
		e, err := s.conn.Next()
		if err != nil {
			s.endWith(err)
			return
		}
		news := e.Kind != wal.Keepalive // a part of the log
		switch e.Kind {
		case wal.Begin:
			open, s.commit, s.commitAt, s.number = true, e.LSN, e.At, 0
			// The snapshot sees no later transaction. After 2³¹ transactions the low bits of one are equal to the bits of an old one.
			published = e.LSN < s.repeatsUpTo && s.skip.seesLow(e.XID)
		case wal.Update:
			if s.mapped != nil {
				if err = s.mapped.update(s.relay, e.Relation); err != nil {
					s.endWith(err)
					return
				}
			}
		case wal.Insert:
			if s.mapped != nil {
				ours, err := s.mapped.insert(s, e)
				if err != nil {
					s.endWith(err)
					return
				}
				rows = rows || ours
				break
			}
			known, seen := layouts[e.Relation.ID]
			l := known.layout
			if seen = seen && known.relation == e.Relation; !seen {
				l = nil
			}
			if !seen && e.Relation.Namespace == "troupe" && e.Relation.Name == "outbox" {
				if l, err = layoutOf(e.Relation); err != nil {
					s.endWith(fmt.Errorf("%w: %w", errUnreadable, err))
					return
				}
				if err = s.checkPublication(); err != nil {
					s.endWith(err)
					return
				}
			}
			if !seen {
				layouts[e.Relation.ID] = knownLayout{e.Relation, l}
			}
			if l == nil || published { // l == nil: a row of another table, which a wider publication may contain
				break
			}
			tuple, reason := e.Tuple, error(nil)
			if s.converter != nil {
				if tuple, reason, err = s.converter.tuple(l, tuple); err != nil {
					s.endWith(err)
					return
				}
			}
			w := s.roomy()
			if w == nil {
				return
			}
			if err = w.add(l, tuple, texts); err != nil {
				err = fmt.Errorf("%w: row of %s: %w", errUnreadable, e.Relation.Name, err)
			} else if reason != nil {
				i := &w.items[len(w.items)-1]
				i.unreadable, i.row.Topic = reason, asciiText(i.row.Topic)
			}
			rows = true
			s.mu.Unlock()
			if err != nil {
				s.endWith(err)
				return
			}
		case wal.Message:
			if e.Prefix == pausePrefix {
				tell(s.relay.gate.readRequested())
			}
		case wal.Commit:
			open = false
			s.advanceRead(e.LSN, rows)
			rows = false
		case wal.Keepalive:
			if !open {
				news = uint64(e.LSN) > s.sent.Load()
				s.advanceRead(e.LSN, false)
			}
			if e.ReplyNow {
				if !s.conn.Buffered() && asked.urgent(time.Now()) {
					s.endWith(errStopping)
					s.conn.Close() // at once, since the publisher may wait for a broker
					return
				}
				tell(s.hurry)
			}
		}
		// For each message: on a slow connection a part of the next one may always be buffered. The rest of one that is skipped may take longer than
		// maxSilence.
		s.receivedNow(news)
		if !s.conn.Buffered() {
			tell(s.ready)
		}
	}
}

// receivedNow records that the server has sent something. news: a part of the log.
func (s *stream) receivedNow(news bool) {
	now := time.Now().UnixNano()
	s.received.Store(now)
	if news {
		s.sentAt.Store(now)
	}
}

// A knownLayout is the last Relation message of a table, with the table's layout; nil: another table.
type knownLayout struct {
	relation *wal.Relation
	layout   layout
}

// errStopping means that the server is shutting down. It waits until the relay has confirmed all of the log, and requests a report after
// each report. But it accepts no statement any more. So the relay cannot store a checkpoint, and can confirm nothing: the server would wait
// for ever. Therefore the relay ends the stream.
var errStopping = errors.New("the server is stopping")

// A requests counts the server's requests for a report, to recognise a server that is shutting down. Such a server sends many requests
// within a second, and any other server sends one in several seconds. A request with data behind it in the buffer does not count, since
// such requests accumulate while the reader waits for room.
type requests struct {
	first time.Time
	n     int
}

// urgent counts a request, and reports whether there were more than 10 within a second.
func (r *requests) urgent(now time.Time) bool {
	if r.n++; now.Sub(r.first) > time.Second {
		r.first, r.n = now, 1
	}
	return r.n > 10
}

// roomy waits until the window that is being filled has room. It returns the window with s.mu locked. If the stream has ended, it returns
// nil, with s.mu unlocked.
func (s *stream) roomy() *window {
	for {
		s.mu.Lock()
		if s.err != nil {
			s.mu.Unlock()
			return nil
		}
		if !s.filling.full() {
			s.filling.commit = s.commit
			return s.filling
		}
		s.mu.Unlock()
		tell(s.ready)
		<-s.room
		s.receivedNow(true) // nothing was read meanwhile
	}
}

// isFull reports whether the window that is being filled has no room.
func (s *stream) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.filling.full()
}

// advanceRead records in the window that all rows of the log up to upTo were read. If rows is true, a transaction with rows of the outbox
// ends at upTo.
func (s *stream) advanceRead(upTo wal.LSN, rows bool) {
	s.mu.Lock()
	if rows {
		s.filling.end = commitEnd{upTo, s.commitAt}
	}
	s.filling.upTo = max(s.filling.upTo, upTo)
	s.sent.Store(max(s.sent.Load(), uint64(upTo)))
	s.filling.whole = len(s.filling.items)
	s.mu.Unlock()
}

// endWith ends the stream with err, unless it has ended before. It wakes the publisher and the reader.
func (s *stream) endWith(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
		close(s.over)
	}
	s.mu.Unlock()
	tell(s.ready)
	tell(s.room)
}

// endError returns the error with which the stream has ended.
func (s *stream) endError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("%w: %w", errStream, s.err)
}

// tell signals on c, which is buffered for one signal. It does not wait.
func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
