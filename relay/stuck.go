package relay

import (
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/troupe-go/troupe/internal/wal"
)

// errUnreadable marks what the log holds and the relay cannot read.
var errUnreadable = errors.New("the log cannot be read")

// stuckAfter is how often a stream may end at one place with one error of the log's contents before the slot is given up.
const stuckAfter = 5

// A stuck counts how often the stream ended at the same place for the same reason: what the log holds there can never be
// streamed, such as a row of a time at which the publication did not exist or a column had another name. Errors of the
// connection and of the server's resources do not count.
type stuck struct {
	mu    sync.Mutex
	at    wal.LSN
	cause error
	times int
}

// ended counts the end of a stream that began at a place.
func (s *stuck) ended(at wal.LSN, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !ofContents(err):
	case s.cause != nil && s.at == at && s.cause.Error() == err.Error():
		s.times++
	default:
		s.at, s.cause, s.times = at, err, 1
	}
}

// passed forgets what the stream has got past.
func (s *stuck) passed(at wal.LSN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at > s.at {
		s.cause, s.times = nil, 0
	}
}

// why says why the slot cannot be streamed on from a place; nil: it may be.
func (s *stuck) why(at wal.LSN) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times < stuckAfter || s.at != at {
		return nil
	}
	return fmt.Errorf("the stream ended %d times at %s: %w", s.times, s.at, s.cause)
}

// unready is why nothing gets past the place, as soon as one error came twice there.
func (s *stuck) unready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times < 2 {
		return nil
	}
	return fmt.Errorf("the stream ended %d times at %s: %w", s.times, s.at, s.cause)
}

// ofContents says whether a stream ended for what the log holds, and would end so again.
func ofContents(err error) bool {
	if errors.Is(err, errUnreadable) {
		return true
	}
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) || len(refusal.Code) != 5 || !errors.Is(err, errStream) {
		return false
	}
	switch refusal.Code[:2] {
	case "08", "53", "55", "57": // connection, resources, slot in use, shutdown
		return false
	}
	return true
}
