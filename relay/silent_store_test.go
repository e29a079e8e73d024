package relay_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// A firewall or a router may stop forwarding one connection and still forward the others. If it is the connection on which checkpoints are stored,
// the statement fails only after the time-outs of TCP, a quarter of an hour.
func TestARelayWhoseCheckpointIsNotAnsweredIsNotReady(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var cut atomic.Bool
	config := s.pool.Config()
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &samplingConn{Conn: conn, cut: &cut}, err
	}
	cfg := s.wal()
	cfg.Lease, cfg.Pool = 2*time.Second, poolWith(t, config)
	made, err := relay.New(cfg)
	require.NoError(t, err)
	made.StoreTimeout(time.Second) // shorter than the time after which Ready returns the error
	r := s.run(made)
	s.waitStream()
	s.insert(s.topic, "k", "0")
	s.waitProven()
	cut.Store(true)
	s.insert(s.topic, "k", "1")
	require.Equal(t, []string{"0", "1"}, values(s.gather(2, s.topic)))
	testkit.Wait(t, "the reason", func() (bool, error) {
		err := r.Ready()
		return err != nil && strings.Contains(err.Error(), "the checkpoint was not stored") && strings.Contains(err.Error(), "does not answer"), nil
	})
}

// A samplingConn drops everything that is written once cut is set, if a sample was taken on it before.
type samplingConn struct {
	net.Conn
	cut     *atomic.Bool
	samples atomic.Bool
}

func (c *samplingConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("pg_logical_emit_message")) {
		c.samples.Store(true)
	}
	if c.samples.Load() && c.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}
