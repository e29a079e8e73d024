package console

import (
	"hash/maphash"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// attempts bound how often an address may show a wrong token: some at once, then one in a while. Addresses share places of a
// table that does not grow, so who is refused for another's attempts waits as long as he.
type attempts struct {
	seed  maphash.Seed
	clock func() time.Time

	mu     sync.Mutex
	places [1024]struct {
		wrong float64 // attempts, less what time has forgiven
		at    time.Time
	}
}

const (
	attemptsAtOnce = 10
	attemptEvery   = 6 * time.Second
)

func newAttempts() *attempts { return &attempts{seed: maphash.MakeSeed(), clock: time.Now} }

// try is whether the token is right. Limited: it was not even looked at, and will not be for a while.
func (a *attempts) try(from string, right func() bool) (ok, limited bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, p := a.clock(), &a.places[maphash.String(a.seed, from)%uint64(len(a.places))]
	p.wrong = max(0, p.wrong-float64(now.Sub(p.at))/float64(attemptEvery))
	p.at = now
	if p.wrong > attemptsAtOnce-1 {
		return false, true
	}
	if ok = right(); !ok {
		p.wrong++
	}
	return ok, false
}

// addressOf is who asks, as far as the network says; of IPv6 the half that a customer is given.
func addressOf(r *http.Request) string {
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

// tooOften refuses a request with a token in its header where too many wrong ones came from there.
func (c *Console) tooOften(w http.ResponseWriter, r *http.Request) bool {
	bearer, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !is || c.cfg.Token == "" {
		return false
	}
	_, limited := c.attempts.try(addressOf(r), func() bool { return c.sessions.is(bearer) })
	if limited {
		w.Header().Set("Retry-After", "6")
		answer(w, http.StatusTooManyRequests, map[string]string{"error": tooManyAttempts})
	}
	return limited
}

const tooManyAttempts = "too many wrong tokens came from this address: wait a minute, and then show the right one"
