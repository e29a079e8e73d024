package console

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/console/stage"
	"github.com/troupe-go/troupe/testkit"
)

// A client that reads slowly keeps its answer in the console's memory.
func TestSlowReadersOfLargeAnswersHoldSomeMegabytes(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	payload := `{"text": "` + strings.Repeat("x", 12<<20) + `"}`
	id := d.Dead(1, stage.Letter{Key: "o-1", Type: "ChargeCard", Class: "permanent", Error: "e", Payload: payload}).String()
	server := httptest.NewServer(d.c)
	t.Cleanup(server.Close)
	for _, address := range []string{at("/dead-letter/payload", "db", "order", "id", id), at("/dead-letter", "db", "order", "id", id)} {
		// ask requests an answer, and reads its beginning only.
		ask := func() (status int, end func()) {
			t.Helper()
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
			_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\n\r\n", address, conn.RemoteAddr())
			require.NoError(t, err)
			got, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			return got.StatusCode, func() { require.NoError(t, conn.Close()) }
		}
		var ends []func()
		for range 2 {
			status, end := ask()
			require.Equal(t, http.StatusOK, status)
			ends = append(ends, end)
		}
		status, _ := ask()
		require.Equal(t, http.StatusTooManyRequests, status, "two answers of 12 MB are not read yet")
		require.Equal(t, http.StatusOK, d.get(at("/dead-letters", "db", "order")).Code, "a small one")
		for _, end := range ends {
			end()
		}
		testkit.Wait(t, "the answers to end", func() (bool, error) {
			status, end := ask()
			end()
			return status == http.StatusOK, nil
		})
	}
}

// One client cannot take the room of others, and clients that are not signed in leave room for users.
func TestLargeAnswersAreCountedByClient(t *testing.T) {
	t.Parallel()
	var s sending
	take := func(client string, signedIn bool, n int) (status int, release func()) {
		release, err := s.take(client, signedIn, n)
		if err != nil {
			return statusOf(err), nil
		}
		return http.StatusOK, release
	}
	status, release := take("user ann", true, mostSent)
	require.Equal(t, http.StatusOK, status, "a single answer of any size")
	status, _ = take("user bob", true, smallAnswer+1)
	require.Equal(t, http.StatusServiceUnavailable, status)
	status, _ = take("user bob", true, smallAnswer)
	require.Equal(t, http.StatusOK, status, "a small one")
	release()

	for i := range mostSentStrangers / mostSentClient {
		client := fmt.Sprint("address ", i)
		status, _ = take(client, false, mostSentClient)
		require.Equal(t, http.StatusOK, status)
		status, _ = take(client, false, smallAnswer+1)
		require.Equal(t, http.StatusTooManyRequests, status)
	}
	status, _ = take("address z", false, smallAnswer+1)
	require.Equal(t, http.StatusServiceUnavailable, status)
	status, release = take("user ann", true, mostSentClient)
	require.Equal(t, http.StatusOK, status, "a user has room")
	release()
	require.NotContains(t, s.clients, "user ann")
}
