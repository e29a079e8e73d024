package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/troupe-go/troupe/saga"
)

// Wait returns the state of a saga as soon as it has ended, in this process or another one. If name is not one of the coordinator's
// types, that is an error. If no saga of that key is committed, the error wraps ErrNotFound.
//
// A parked saga has not ended. If ctx is done before the saga has ended, Wait returns the state that it has read last, with an error
// that wraps ctx's. So the caller can answer that the saga is under way, or parked, and ask again later. If ctx was done before a state
// was read, the state is the zero State.
//
// Wait returns at once if this process decides the saga's end in a transaction of its own. It returns within 100 ms of the commit if Start or
// Act decides the end in a caller's transaction, or if another process does. All calls of Wait together send
// one query every 50 ms.
func (c *Coordinator) Wait(ctx context.Context, name, key string) (s saga.State, err error) {
	id := name + "/" + key
	if _, err := c.definitions.Named(name); err != nil {
		return s, fmt.Errorf("coordinator: wait for %s: %w", id, err)
	}
	for {
		ended := c.waits.join(id, c.pollEnds) // before the state is read, so that no end is missed
		last, err := c.state(ctx, id)
		if err == nil {
			s = last
		}
		if err == nil && !s.Ended() {
			select {
			case <-ended:
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		c.waits.leave(id, ended)
		if err != nil {
			err = fmt.Errorf("coordinator: wait for %s: %w", id, err)
		}
		return s, err
	}
}

func (c *Coordinator) state(ctx context.Context, id string) (saga.State, error) {
	var hash string
	var text []byte
	err := c.cfg.Pool.QueryRow(ctx, "SELECT definition, state FROM troupe.sagas WHERE id = $1", id).Scan(&hash, &text)
	if errors.Is(err, pgx.ErrNoRows) {
		return saga.State{}, ErrNotFound
	}
	if err != nil {
		return saga.State{}, err
	}
	d, err := c.definitions.Of(ctx, hash)
	if err != nil {
		return saga.State{}, err
	}
	return d.ReadState(text)
}

const (
	// endsEvery is the time between two queries for the ends of sagas that are waited for.
	endsEvery = 50 * time.Millisecond
	// endsWithin limits one such query.
	endsWithin = 10 * time.Second
)

// pollEnds notifies the calls of Wait whose sagas have ended, until there are no calls left. If the query fails, it notifies all calls:
// each of them then reads its own saga, and returns an error if that fails too.
func (c *Coordinator) pollEnds() {
	const ended = "SELECT id FROM troupe.sagas WHERE id = ANY ($1) AND status IN ('completed', 'compensated', 'abandoned')"
	tick := time.NewTicker(endsEvery)
	defer tick.Stop()
	for {
		<-tick.C
		ids := c.waits.open()
		if ids == nil {
			return
		}
		ctx, stop := context.WithTimeout(context.Background(), endsWithin)
		rows, err := c.cfg.Pool.Query(ctx, ended, ids)
		if err == nil {
			var some []string
			if some, err = pgx.CollectRows(rows, pgx.RowTo[string]); err == nil {
				ids = some
			}
		}
		stop()
		for _, id := range ids {
			c.waits.notify(id)
		}
	}
}

// waits holds the calls of Wait by the id of their saga. The zero value is ready for use.
type waits struct {
	mu     sync.Mutex
	calls  map[string][]chan struct{} // guarded by mu
	polled bool                       // whether the poll that join has started runs; guarded by mu
}

// join returns a channel that is closed when the saga may have ended. It starts poll in a goroutine, unless poll runs.
func (w *waits) join(id string, poll func()) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == nil {
		w.calls = make(map[string][]chan struct{})
	}
	ended := make(chan struct{})
	w.calls[id] = append(w.calls[id], ended)
	if !w.polled {
		w.polled = true
		go poll()
	}
	return ended
}

func (w *waits) leave(id string, ended chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls[id] = slices.DeleteFunc(w.calls[id], func(c chan struct{}) bool { return c == ended }); len(w.calls[id]) == 0 {
		delete(w.calls, id)
	}
}

// notify closes the channels of all calls for a saga.
func (w *waits) notify(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ended := range w.calls[id] {
		close(ended)
	}
	delete(w.calls, id)
}

// open returns the ids of the sagas for which calls wait. If there are none, it returns nil, and poll must end.
func (w *waits) open() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.calls {
		ids = append(ids, id)
	}
	w.polled = ids != nil
	return ids
}
