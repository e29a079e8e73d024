package console

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// open opens the stream of a live page, and returns a function that waits for its next event; the stream ends with the test.
func (d *desk) open(server *httptest.Server, page string) (next func() string) {
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, server.URL+"/live?page="+page, nil)
	require.NoError(d.t, err)
	live, err := server.Client().Do(r)
	require.NoError(d.t, err)
	d.t.Cleanup(func() { _ = live.Body.Close() })
	require.Equal(d.t, http.StatusOK, live.StatusCode)
	lines := bufio.NewScanner(live.Body)
	return func() string {
		for lines.Scan() {
			if event, is := strings.CutPrefix(lines.Text(), "event: "); is {
				return event
			}
		}
		require.NoError(d.t, lines.Err())
		return "end"
	}
}

// Streams with the same key share one look, a stream that joins waits for a look that begins after it, and the last one that leaves
// ends the look.
func TestStreamsOfAPageShareOneLook(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // each wait below ends without it, unless something is broken
	defer cancel()
	w := newWorks()
	defer w.close()
	l := newLooks(w)
	l.every = 1 // ns: the test decides when a look ends
	begins, ends := make(chan int), make(chan string)
	n := 0
	read := func(ctx context.Context) string {
		n++
		select {
		case begins <- n:
		case <-ctx.Done():
			return ""
		}
		select {
		case state := <-ends:
			return state
		case <-ctx.Done():
			return ""
		}
	}
	begun := func() int {
		t.Helper()
		select {
		case number := <-begins:
			return number
		case <-ctx.Done():
			require.FailNow(t, "no look begins")
			return 0
		}
	}
	end := func(state string) {
		t.Helper()
		select {
		case ends <- state:
		case <-ctx.Done():
			require.FailNow(t, "no look to end")
		}
	}
	first, leave, err := l.join("a", read)
	require.NoError(t, err)
	require.Equal(t, 1, begun())
	second, leaveToo, err := l.join("a", func(context.Context) string { return "a second look of the same page" })
	require.NoError(t, err)
	require.Same(t, first, second)
	joined := second.begun()
	require.Equal(t, 1, joined)
	end("older")
	state, number, ok := first.wait(ctx, 0)
	require.True(t, ok)
	require.Equal(t, "older", state)
	require.Equal(t, 1, number)
	require.Equal(t, 2, begun())
	end("newer")
	state, _, ok = second.wait(ctx, joined)
	require.True(t, ok)
	require.Equal(t, "newer", state, "the first look had begun before it joined")
	leave()
	require.Equal(t, 3, begun(), "one is left")
	leaveToo()
	_, _, ok = second.wait(ctx, 3)
	require.False(t, ok)
	require.NoError(t, ctx.Err(), "the look went on without a stream")
	require.Empty(t, l.all)
	other, leave, err := l.join("a", func(ctx context.Context) string { <-ctx.Done(); return "" })
	require.NoError(t, err)
	require.NotSame(t, first, other)
	leave()
}

// A look is shared by requests with the same facts only.
func TestRolesDoNotShareALook(t *testing.T) {
	t.Parallel()
	d := newDesk(t, twice(t), withUsers)
	key := func(user, page, query string) string {
		u, is := d.c.accounts.Load().ofToken(tokenOf(user))
		require.True(t, is)
		a, err := d.c.askOf(d.c.pages[page], form("q", query), u, Viewer)
		require.NoError(t, err)
		return lookKey(a)
	}
	require.Equal(t, key("viewer", "/held", "1"), key("viewer", "/held", "1"))
	for _, other := range []string{key("mixed", "/held", "1"), key("elsewhere", "/held", "1"), key("viewer", "/held", "2"), key("viewer", "/relay", "1")} {
		require.NotEqual(t, key("viewer", "/held", "1"), other)
	}
}

// One address, or one user, cannot take the streams of others; streams that are not signed in leave room for users.
func TestAClientHasSomeStreamsOnly(t *testing.T) {
	t.Parallel()
	var s streams
	var release func()
	for range mostOfClient {
		free, err := s.take("address a", false)
		require.NoError(t, err)
		release = free
	}
	_, err := s.take("address a", false)
	require.Equal(t, http.StatusTooManyRequests, statusOf(err))
	_, err = s.take("address b", false)
	require.NoError(t, err)
	release()
	_, err = s.take("address a", false)
	require.NoError(t, err, "one has ended")
	taken := mostOfClient + 1
	for i := 0; taken < mostStrangers; taken++ {
		_, err := s.take(strings.Repeat("c", 1+i/mostOfClient), false)
		require.NoError(t, err)
		i++
	}
	_, err = s.take("address d", false)
	require.Equal(t, http.StatusServiceUnavailable, statusOf(err))
	_, err = s.take("user ann", true)
	require.NoError(t, err, "a user has room")
}

func TestALivePageIsToldOfEachLookAndOfAChange(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(c *Config) { c.Path = "/console" })
	server := httptest.NewServer(d.c)
	t.Cleanup(server.Close)
	t.Cleanup(d.c.Close)
	server.URL += "/console"
	first, second := d.open(server, "/console/held"), d.open(server, "/console/held") // the address of a console below a path
	for _, next := range []func() string{first, second} {
		require.Equal(t, "changed", next(), "it had no state")
		require.Equal(t, "same", next())
	}
	testkit.Wait(t, "one look", func() (bool, error) {
		d.c.looks.mu.Lock()
		defer d.c.looks.mu.Unlock()
		return len(d.c.looks.all) == 1, nil
	})
	d.letters()
	for _, next := range []func() string{first, second} {
		event := next()
		for event == "same" {
			event = next()
		}
		require.Equal(t, "changed", event)
	}
}

// A server has a time-out for its responses, so that clients that do not read hold no pages in memory.
func TestALivePageOutlivesTheTimeOutOfItsServer(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	server := httptest.NewUnstartedServer(d.c)
	server.Config.WriteTimeout = liveEvery / 2
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(d.c.Close)
	next := d.open(server, "/held")
	require.Equal(t, "changed", next())
	require.Equal(t, "same", next())
	require.Equal(t, "same", next())
}
