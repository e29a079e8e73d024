package console

import (
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const guessesEvery = 30 * time.Second

// guesses logs wrong tokens, wrong secrets and requests with status 429: each kind at the first request, then at most every 30 s
// with the count since its last line. So a client that guesses cannot fill the log. It may be used concurrently.
type guesses struct {
	log zerolog.Logger
	now func() time.Time

	mu    sync.Mutex
	kinds map[string]*guessed
}

type guessed struct {
	count  int // since the last line
	logged time.Time
}

func newGuesses(log zerolog.Logger) *guesses {
	return &guesses{log: log, now: time.Now, kinds: make(map[string]*guessed)}
}

// The kinds of guesses.
const (
	wrongToken  = "wrong token"
	wrongSecret = "wrong secret of the proxy"
	tooMany     = "too many wrong tokens or secrets from an address: requests refused"
)

// report counts a request of a kind.
func (g *guesses) report(kind string, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.kinds[kind]
	if k == nil {
		k = new(guessed)
		g.kinds[kind] = k
	}
	k.count++
	now := g.now()
	if now.Sub(k.logged) < guessesEvery {
		return
	}
	g.log.Warn().Int("requests", k.count).Str("from", r.RemoteAddr).Msg("console: " + kind)
	k.count, k.logged = 0, now
}
