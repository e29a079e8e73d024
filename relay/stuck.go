package relay

import (
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/wal"
)

var (
	// errUnreadable means that the relay cannot read the contents of the log.
	errUnreadable = errors.New("the log cannot be read")
	// errUnbound means that rows of the log lack a column that the mapping names. A relay with another mapping can read them.
	errUnbound = errors.New("rows in the log do not fit the mapping")
)

// stuckAfter is the number of times that a stream may end at one LSN with the same error of the log's contents. After that the relay no
// longer streams from this slot, see why.
const stuckAfter = 5

// A stuck counts how often the stream ended at the same LSN with the same error. Such an error has one of two causes. The log contains
// something that can never be streamed, such as a row from a time at which the publication did not exist or a column had another name. Or
// the log cannot be streamed now, with the present mapping or the present resources of the server. Errors of the connection do not count.
type stuck struct {
	mu    sync.Mutex
	at    wal.LSN // LSN at which the counted streams began
	cause error   // nil: none is counted
	times int
}

// countEnd counts the end of a stream that began at the LSN at and ended with err.
func (s *stuck) countEnd(at wal.LSN, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !comesAgain(err):
	case s.cause != nil && s.at == at && s.cause.Error() == err.Error():
		s.times++
	default:
		s.at, s.cause, s.times = at, err, 1
	}
}

// resetAfter resets the count if the log is published beyond the LSN of the count. at is the LSN up to which the log is published.
func (s *stuck) resetAfter(at wal.LSN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at > s.at {
		s.cause, s.times = nil, 0
	}
}

// why returns the reason why the slot can never be streamed from the LSN at. It returns nil if no such reason is known.
func (s *stuck) why(at wal.LSN) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times < stuckAfter || s.at != at || !ofContents(s.cause) {
		return nil
	}
	return fmt.Errorf("the stream ended %d times at %s: %w", s.times, s.at, s.cause)
}

// unready returns an error if the stream has ended at least twice with the same error at the same LSN, for Ready.
func (s *stuck) unready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times < 2 {
		return nil
	}
	return fmt.Errorf("the stream ended %d times at %s: %w", s.times, s.at, s.cause)
}

// comesAgain reports whether err, with which a stream ended, will end the next stream too, until an operator removes the cause.
func comesAgain(err error) bool {
	if errors.Is(err, errUnreadable) || errors.Is(err, errUnbound) {
		return true
	}
	switch class := refusalClass(err); class {
	case "", "08", "55", "57": // connection, slot in use, shutdown
		return false
	}
	return true
}

// ofContents reports whether a stream ended because of the log's contents. Then the slot can never be streamed.
func ofContents(err error) bool {
	return errors.Is(err, errUnreadable) || comesAgain(err) && !errors.Is(err, errUnbound) && refusalClass(err) != "53" // resources
}

// refusalClass returns the class of the SQLSTATE with which the server ended a stream: its first two characters. It returns "" if the
// server did not end the stream with an error.
func refusalClass(err error) string {
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) || len(refusal.Code) != 5 || !errors.Is(err, errStream) {
		return ""
	}
	return refusal.Code[:2]
}
