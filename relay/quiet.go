package relay

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// quietFor is the time for which a repeated failure is not logged again.
const quietFor = 30 * time.Second

// maxKinds limits the kinds of failures that are logged by their name. A kind may contain the name of a topic, and writers choose topics.
// Failures of further kinds are logged together.
const maxKinds = 1000

// A quiet logs repeated failures of one kind: the first one, then at most one line per quietFor with their count, and one line on recovery.
type quiet struct {
	log zerolog.Logger

	mu    sync.Mutex
	kinds map[string]*repeated
}

// A repeated counts the failures of one kind since its last recovery.
type repeated struct {
	count  int // failures, including the first
	logged time.Time
}

func (q *quiet) failed(kind string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.kinds == nil {
		q.kinds = make(map[string]*repeated)
	}
	r := q.kinds[kind]
	if r == nil && len(q.kinds) >= maxKinds {
		kind = "other failures"
		r = q.kinds[kind]
	}
	if r == nil {
		r = &repeated{}
		q.kinds[kind] = r
	}
	r.count++
	if r.count > 1 && time.Since(r.logged) < quietFor {
		return
	}
	r.logged = time.Now()
	q.log.Warn().Err(err).Int("count", r.count).Msg(kind + ": failed, trying on")
}

func (q *quiet) recovered(kind string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r := q.kinds[kind]; r != nil {
		q.log.Info().Int("count", r.count).Msg(kind + ": works again")
		delete(q.kinds, kind)
	}
}
