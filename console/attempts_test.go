package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWrongTokensAreBoundedByAddressAndTime(t *testing.T) {
	t.Parallel()
	a, now := newAttempts(), time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	looked := 0
	try := func(at time.Time, right bool) (ok, limited bool) {
		a.clock = func() time.Time { return at }
		return a.try("192.0.2.1", func() bool { looked++; return right })
	}
	for range attemptsAtOnce {
		ok, limited := try(now, false)
		require.False(t, ok || limited)
	}
	ok, limited := try(now, true)
	require.True(t, limited && !ok, "not even the right one")
	require.Equal(t, attemptsAtOnce, looked, "it was not looked at")
	ok, _ = try(now.Add(attemptEvery), true)
	require.True(t, ok)
	for range 1000 { // right ones count nothing
		ok, _ = try(now.Add(attemptEvery), true)
		require.True(t, ok)
	}
	require.Equal(t, "2001:db8:1:2::", addressOf(&http.Request{RemoteAddr: "[2001:db8:1:2:3:4:5:6]:443"}))
	require.Equal(t, "192.0.2.1", addressOf(&http.Request{RemoteAddr: "192.0.2.1:443"}))
}

func TestWhoGuessesTheTokenIsMadeToWait(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	at := time.Now()
	d.c.attempts.clock = func() time.Time { return at }
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
	for i := range attemptsAtOnce { // by either way
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
