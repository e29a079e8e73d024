package door

import (
	"net/http"
	"sync"
	"time"
)

// Attempts limits the wrong tokens from an address: AttemptsAtOnce at once, then one each AttemptEvery. Wrong tokens of other addresses,
// however many these are, do not delay an address. It counts the wrong tokens of mostAddresses addresses. A new address evicts
// a random one, whose count begins at zero again: a client with more addresses than that is not slowed down.
type Attempts struct {
	Now func() time.Time // nil: time.Now

	mu    sync.Mutex
	wrong map[string]tally // by address
}

// A tally counts the wrong tokens of an address.
type tally struct {
	count float64 // wrong attempts, minus the forgiven ones
	at    time.Time
}

const (
	AttemptsAtOnce = 10
	AttemptEvery   = 6 * time.Second

	// Explanation is the text for the client; it goes with status 429.
	Explanation = "too many wrong tokens came from this address: wait a minute, and then bring the right one"

	mostAddresses = 4096
)

// Try compares a token by calling right. If limited is true, right was not called, since the request's address sent too many
// wrong tokens.
func (a *Attempts) Try(r *http.Request, right func() bool) (ok, limited bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.Now != nil {
		now = a.Now()
	}
	address := AddressOf(r)
	before, counted := a.wrong[address]
	current := tally{max(0, before.count-float64(now.Sub(before.at))/float64(AttemptEvery)), now}
	if limited = current.count > AttemptsAtOnce-1; !limited {
		if ok = right(); !ok {
			current.count++
		}
	}
	if counted || !ok {
		a.put(address, current)
	}
	return ok, limited
}

// put stores the tally of an address. If there are too many, it removes another one.
func (a *Attempts) put(address string, counts tally) {
	if _, counted := a.wrong[address]; !counted && len(a.wrong) >= mostAddresses {
		for other := range a.wrong {
			delete(a.wrong, other)
			break
		}
	}
	if a.wrong == nil {
		a.wrong = make(map[string]tally)
	}
	a.wrong[address] = counts
}

// AddressOf returns the request's address without port; of an IPv6 address the first 64 bits, since one customer has all of the
// rest.
func AddressOf(r *http.Request) string { return networkOf(r.RemoteAddr) }
