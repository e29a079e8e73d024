package console

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/door"
)

func TestGuessingTheTokenIsSlowedDown(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	at := time.Now()
	d.c.attempts.Now = func() time.Time { return at }
	ask := func(from, bearer string) int {
		r := httptest.NewRequest(http.MethodGet, "/relay", nil)
		r.Header.Set("Authorization", "Bearer "+bearer)
		r.RemoteAddr = from
		return d.serve(r).Code
	}
	signIn := func(from, given string) int {
		r := httptest.NewRequest(http.MethodPost, "/sign-in", strings.NewReader(form("name", "eve", "token", given).Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.RemoteAddr = from
		return d.serve(r).Code
	}
	for i := range door.AttemptsAtOnce { // by cookie and by header
		if i%2 == 0 {
			require.Equal(t, http.StatusUnauthorized, signIn("192.0.2.1:1", "wrong"))
		} else {
			require.Equal(t, http.StatusOK, ask("192.0.2.1:2", "wrong"), "this console needs no token for reading")
		}
	}
	require.Equal(t, http.StatusTooManyRequests, signIn("192.0.2.1:3", token))
	require.Equal(t, http.StatusTooManyRequests, ask("192.0.2.1:3", token))
	for i := range 20 {
		require.Equal(t, http.StatusSeeOther, signIn(fmt.Sprintf("198.51.100.%d:1", i), token), "another address")
	}
}

func TestWrongTokensAndSecretsAreLoggedAtMostEvery30Seconds(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	d := proxied(t)
	d.c.guesses.log = zerolog.New(&log)
	at := time.Now()
	now := func() time.Time { return at }
	d.c.guesses.now, d.c.attempts.Now, d.c.secrets.Now = now, now, now
	guess := func() {
		d.serveJSON(through(http.MethodGet, "/relay", "", "Authorization", "Bearer a guess of a token"))
		d.serve(through(http.MethodPost, "/sign-in", "token=a+guess+of+a+token"))
		r := through(http.MethodGet, "/relay", "")
		r.Header.Set(door.ProxySecret, "a guess of the secret")
		d.serveJSON(r)
	}
	lines := func() (all []string) {
		for line := range strings.Lines(log.String()) {
			one := decoded[struct {
				Message, From string
				Requests      int
			}](t, []byte(line))
			require.Equal(t, "192.0.2.10:4711", one.From)
			all = append(all, fmt.Sprint(one.Requests, " ", one.Message))
		}
		require.NotContains(t, log.String(), "a guess")
		log.Reset()
		return all
	}
	guess()
	require.Equal(t, []string{"1 console: wrong token", "1 console: wrong secret of the proxy"}, lines())
	at = at.Add(29 * time.Second)
	guess()
	require.Empty(t, lines())
	at = at.Add(time.Second)
	guess()
	require.Equal(t, []string{"4 console: wrong token", "2 console: wrong secret of the proxy"}, lines())
	for range 7 {
		guess()
	}
	require.Equal(t, []string{"1 console: too many wrong tokens or secrets from an address: requests refused"}, lines())
}
