package door

import (
	"hash/maphash"
	"net"
	"net/http"
	"sync"
	"time"
)

// Attempts limits the wrong tokens from an address: AttemptsAtOnce at once, then one each AttemptEvery. The table of addresses
// has a fixed size, so two addresses may share an entry, and then the wrong tokens of one delay the other.
type Attempts struct {
	Now func() time.Time // nil: time.Now

	mu     sync.Mutex
	seed   maphash.Seed
	places [1024]struct {
		wrong float64 // wrong attempts, minus the forgiven ones
		at    time.Time
	}
}

const (
	AttemptsAtOnce = 10
	AttemptEvery   = 6 * time.Second

	// Explanation is the text for the client; it goes with status 429.
	Explanation = "too many wrong tokens came from this address: wait a minute, and then bring the right one"
)

// Try compares a token by calling right. If limited is true, right was not called, since the request's address sent too many
// wrong tokens.
func (a *Attempts) Try(r *http.Request, right func() bool) (ok, limited bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seed == (maphash.Seed{}) {
		a.seed = maphash.MakeSeed()
	}
	now := time.Now()
	if a.Now != nil {
		now = a.Now()
	}
	p := &a.places[maphash.String(a.seed, AddressOf(r))%uint64(len(a.places))]
	p.wrong = max(0, p.wrong-float64(now.Sub(p.at))/float64(AttemptEvery))
	p.at = now
	if p.wrong > AttemptsAtOnce-1 {
		return false, true
	}
	if ok = right(); !ok {
		p.wrong++
	}
	return ok, false
}

// AddressOf returns the request's address without port; of an IPv6 address the first 64 bits, since one customer has all of the
// rest.
func AddressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip := net.ParseIP(host)
	if ip != nil && ip.To4() == nil {
		return ip.Mask(net.CIDRMask(64, 128)).String()
	}
	return host
}
