package relay_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// Every connection is lost in the moment between the publication of a row and the store of its checkpoint, and the next
// connections are refused, as while a pooler or a proxy starts again. The row must not be repeated.
func TestTheLastStoreOfAStreamIsTriedAgain(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	lost := &wire{}
	var refused atomic.Int64
	cfg := s.wal()
	config := s.pool.Config()
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if refused.Add(-1) >= 0 {
			return nil, errors.New("the connection is refused")
		}
		return lost.dial(ctx, network, address)
	}
	cfg.Pool = poolWith(t, config)
	var armed atomic.Bool
	cfg.Hooks.Deleted = func(int) {
		if armed.Swap(false) {
			refused.Store(6)
			lost.cut()
			lost.mend()
		}
	}
	s.start(cfg)
	s.waitStream()
	s.insert(s.topic, "k", "before")
	s.waitProven()
	armed.Store(true)
	s.insert(s.topic, "k", "at the cut")
	testkit.Wait(t, "the cut", func() (bool, error) { return !armed.Load(), nil })
	s.insert(s.topic, "k", "after")
	s.waitProven()
	var payloads []string
	for _, r := range s.gather(3, s.topic) {
		payloads = append(payloads, string(r.Value))
	}
	require.Equal(t, []string{"before", "at the cut", "after"}, payloads)
}
