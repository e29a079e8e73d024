// Package doortest tests endpoints as a client on the network that has no token.
package doortest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/door"
)

// A Connection is a connection of a client. It fails after a minute.
type Connection struct {
	net.Conn
	t *testing.T
}

// Dial opens a connection to an endpoint from a loopback address.
func Dial(t *testing.T, from, endpoint string) Connection {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.DialContext(t.Context(), "tcp", endpoint)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return Connection{c, t}
}

// Get sends a request, and reads the response. The connection stays open.
func (c Connection) Get(path string) {
	c.t.Helper()
	_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	require.NoError(c.t, err)
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(c.t, err)
	require.NoError(c.t, response.Body.Close())
	require.Equal(c.t, http.StatusOK, response.StatusCode)
}

// RequireEnded waits until the endpoint has closed the connection.
func (c Connection) RequireEnded() {
	c.t.Helper()
	var b [1]byte
	_, err := c.Read(b[:])
	var network net.Error
	require.False(c.t, err == nil || errors.As(err, &network) && network.Timeout(), "the connection is open: %v", err)
}

// RequireLimit requires that an endpoint closes connections of a client that has too many, and none of another client. The path is one that
// needs no token.
func RequireLimit(t *testing.T, endpoint, path string) {
	t.Helper()
	other := Dial(t, "127.0.0.3", endpoint)
	other.Get(path)
	var first, last Connection
	for i := range door.MostConnections {
		if last = Dial(t, "127.0.0.2", endpoint); i == 0 {
			first = last
		}
		last.Get(path)
	}
	first.RequireEnded()
	last.Get(path)
	other.Get(path)
}
