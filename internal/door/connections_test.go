package door_test

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/door"
	"github.com/troupe-go/troupe/internal/door/doortest"
)

// TestManyConnectionsOfOneClientCloseNoOther: a connection takes memory before its request has a token, and an endpoint may be open to
// other machines.
func TestManyConnectionsOfOneClientCloseNoOther(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	endpoint := inner.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(door.Limit(inner)) }()
	t.Cleanup(func() {
		_ = server.Close()
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})

	other := doortest.Dial(t, "127.0.0.3", endpoint)
	other.Get("/")
	const more = 100
	var many []doortest.Connection
	for range door.MostConnections - 1 + more {
		c := doortest.Dial(t, "127.0.0.2", endpoint)
		c.Get("/")
		many = append(many, c)
	}
	for _, c := range many[:more] {
		c.RequireEnded()
	}
	many[more].Get("/")
	many[len(many)-1].Get("/")
	other.Get("/")

	for _, c := range many[more:] {
		require.NoError(t, c.Close())
	}
	for range more { // closed connections leave room
		doortest.Dial(t, "127.0.0.4", endpoint).Get("/")
	}
	other.Get("/")
}
