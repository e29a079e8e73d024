package sidecar

import (
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// The file of authorities changes its contents under the same name while the program runs: the next connection uses the new ones.
func TestAuthoritiesAreReadForEachConnection(t *testing.T) {
	t.Parallel()
	before, after := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	file := before.write(t, dir)
	issued := t.TempDir()
	pair, err := tls.LoadX509KeyPair(after.issue(t, issued, "server", "127.0.0.1"))
	require.NoError(t, err)
	address := tlsServer(t, pair)
	v := values{text: map[string]string{kafkaCA.name: file}, from: map[string]string{}}
	e, err := v.tls(toKafka)
	require.NoError(t, err)
	connect := func() error {
		conn, err := e.dial(context.Background(), "tcp", address)
		if err == nil {
			require.NoError(t, conn.Close())
		}
		return err
	}
	require.ErrorContains(t, connect(), "certificate signed by unknown authority")
	writeFile(t, file, "half written")
	require.ErrorContains(t, connect(), file)
	copyFile(t, after.write(t, t.TempDir()), file)
	require.NoError(t, connect())

	// The server's name is still verified.
	v.text[kafkaName.name] = "another.test"
	e, err = v.tls(toKafka)
	require.NoError(t, err)
	require.ErrorContains(t, connect(), "another.test")
}

// tlsServer does a TLS handshake with every client that connects.
func tlsServer(t *testing.T, pair tls.Certificate) (address string) {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	require.NoError(t, err)
	ended := make(chan struct{})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func(c net.Conn) {
				_ = c.(*tls.Conn).Handshake()
				_ = c.Close()
			}(conn)
		}
	}()
	return listener.Addr().String()
}
