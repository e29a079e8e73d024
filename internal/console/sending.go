package console

import (
	"net/http"
	"sync"
)

// holdings counts what clients hold at the same time.
type holdings struct {
	mu        sync.Mutex
	clients   map[string]int
	all       int
	strangers int // the part of clients that are not signed in
}

// take counts n for a client until release is called, unless full returns an error for what the client, all clients, and the ones that are
// not signed in hold already.
func (h *holdings) take(client string, signedIn bool, n int, full func(own, all, strangers int) error) (release func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := full(h.clients[client], h.all, h.strangers); err != nil {
		return nil, err
	}
	if h.clients == nil {
		h.clients = make(map[string]int)
	}
	h.count(client, signedIn, n)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.count(client, signedIn, -n)
	}, nil
}

func (h *holdings) count(client string, signedIn bool, n int) {
	h.all += n
	if !signedIn {
		h.strangers += n
	}
	if h.clients[client] += n; h.clients[client] == 0 {
		delete(h.clients, client)
	}
}

const (
	smallAnswer       = 64 << 10  // bytes of an answer that is not counted
	mostSent          = 256 << 20 // bytes of the answers that clients receive at the same time
	mostSentStrangers = 64 << 20  // the ones among them to clients that are not signed in
	mostSentClient    = 32 << 20  // the ones to one user, or to one address that is not signed in
)

// sending counts the bytes of the large answers that clients are receiving: each is in memory until its client has it, and a client may
// read slowly. A client that receives no other answer has room for one of any size.
type sending struct{ holdings }

func (s *sending) take(client string, signedIn bool, n int) (release func(), err error) {
	if n <= smallAnswer {
		return func() {}, nil
	}
	return s.holdings.take(client, signedIn, n, func(own, all, strangers int) error {
		switch {
		case own > 0 && own+n > mostSentClient:
			return refuse(http.StatusTooManyRequests, "this client receives other large answers: read them first")
		case all > 0 && all+n > mostSent, !signedIn && strangers > 0 && strangers+n > mostSentStrangers:
			return refuse(http.StatusServiceUnavailable, "other clients receive large answers: try again")
		}
		return nil
	})
}

// send writes an answer to a user, or the reason why there is no room for it.
func (c *Console) send(w http.ResponseWriter, r *http.Request, u user, a *rendered) {
	release, err := c.sending.take(clientOf(r, u), u.name != "", a.text.Len())
	if err != nil {
		w.Header().Set("Retry-After", "1")
		answer(w, statusOf(err), map[string]string{"error": err.Error()})
		return
	}
	defer release()
	a.writeTo(w)
}
