package relay_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// A backlogged connection delivers one keepalive of the server together with 20 earlier ones, as when the reader had to wait.
type backlogged struct {
	net.Conn
	once *atomic.Bool
}

func (c backlogged) Read(p []byte) (int, error) {
	const size = 1 + 4 + 18 // a CopyData message with a keepalive
	n, err := c.Conn.Read(p)
	if n == size && p[0] == 'd' && p[5] == 'k' && len(p) >= 21*size && !c.once.Swap(true) {
		p[size-1] = 1 // it requests a report
		copy(p[size:], bytes.Repeat(p[:size], 20))
		n = 21 * size
	}
	return n, err
}

// While the relay cannot publish, it does not read the stream. The server's keepalives gather meanwhile, one for each report, and
// arrive together. A server that stops also requests many reports within a second, but waits for each.
func TestKeepalivesThatGatheredDoNotEndTheStream(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	var once atomic.Bool
	config := s.pool.Config()
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return backlogged{conn, &once}, err
	}
	cfg := s.wal()
	cfg.Pool = poolWith(t, config)
	logs := &lines{}
	cfg.Log = logs.logger(t)
	s.start(cfg)
	s.waitStream()
	testkit.Wait(t, "keepalives", func() (bool, error) { return once.Load(), nil })
	s.insert(s.topic, "k", "after")
	s.waitProven()
	require.Equal(t, []string{"after"}, values(s.gather(1, s.topic)))
	require.NotContains(t, logs.String(), "the server is stopping")
	require.Equal(t, 1, strings.Count(logs.String(), `"streaming"`), "one stream")
}
