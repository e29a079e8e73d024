package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/door"
)

func TestWhoGuessesTheTokenIsMadeToWait(t *testing.T) {
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
			require.Equal(t, http.StatusOK, ask("192.0.2.1:2", "wrong"), "this console may be read by anybody")
		}
	}
	require.Equal(t, http.StatusTooManyRequests, signIn("192.0.2.1:3", token))
	require.Equal(t, http.StatusTooManyRequests, ask("192.0.2.1:3", token))
	free := 0
	for i := range 20 {
		if signIn(fmt.Sprintf("198.51.100.%d:1", i), token) == http.StatusSeeOther {
			free++
		}
	}
	require.GreaterOrEqual(t, free, 15, "others are held up only where they share a place")
}
