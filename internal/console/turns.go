package console

import (
	"context"
	"net/http"
	"sync"
)

// mostAtOnce is the number of requests of one client that are read or applied at the same time: a quarter of the connections that
// troupe console opens to a database (half of the ones of troupe demo), and half of mostPayloads.
const mostAtOnce = 2

// turns lets mostAtOnce requests of a client run, and makes its other requests wait, so that a client with many requests leaves connections,
// turns for payloads and processor time to others. A client is a user, or an address without a user: see clientOf. It may be used concurrently.
type turns struct {
	mu  sync.Mutex
	all map[string]*queue // by client
}

// A queue has the requests of one client.
type queue struct {
	running  chan struct{} // one for each request that has its turn
	requests int           // the running and the waiting ones; guarded by turns.mu
}

// take waits for the client's turn, until ctx ends, and returns the function that ends it.
func (t *turns) take(ctx context.Context, client string) (release func(), err error) {
	q := t.join(client)
	end := func() { <-q.running; t.leave(client, q) }
	select {
	case q.running <- struct{}{}:
		return end, nil
	default:
	}
	select {
	case q.running <- struct{}{}:
		return end, nil
	case <-ctx.Done():
		t.leave(client, q)
		return nil, refuse(http.StatusTooManyRequests, "%d other requests of this client are not answered yet: send fewer at the same time", mostAtOnce)
	}
}

func (t *turns) join(client string) *queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.all[client]
	if q == nil {
		q = &queue{running: make(chan struct{}, mostAtOnce)}
		if t.all == nil {
			t.all = make(map[string]*queue)
		}
		t.all[client] = q
	}
	q.requests++
	return q
}

func (t *turns) leave(client string, q *queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.requests--; q.requests == 0 {
		delete(t.all, client)
	}
}
