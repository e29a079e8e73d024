package relay_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/testkit"
)

// frugal is a proxy to a server whose connections end after a number of bytes, another number each time.
type frugal struct {
	mu    sync.Mutex
	whole bool // connections are no longer cut
	dials int
}

type frugalConn struct {
	net.Conn
	of   *frugal
	left int
}

func (f *frugal) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dials++
	return &frugalConn{conn, f, 1500 + f.dials*397%9000}, nil
}

func (f *frugal) mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.whole = true
}

func (c *frugalConn) Read(b []byte) (int, error) {
	c.of.mu.Lock()
	whole := c.of.whole
	c.of.mu.Unlock()
	if whole {
		return c.Conn.Read(b)
	}
	if c.left <= 0 {
		_ = c.Close()
		return 0, &net.OpError{Op: "read", Err: errors.New("cut")}
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// Connections are cut wherever a message may be: in the middle of one, between two, within a transaction.
func TestAConnectionThatIsCutAnywhereLosesNothing(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	way := &frugal{whole: true}
	config := s.pool.Config()
	config.ConnConfig.DialFunc = way.dial
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	cfg := s.wal()
	cfg.Pool = pool
	r := s.start(cfg)
	s.waitStream()
	way.mu.Lock()
	way.whole = false
	way.mu.Unlock()
	s.replaceSlot() // ends the existing stream
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	committed := s.hardLoad(ctx, 3)
	way.mend()
	v := judge(s.gather(total(committed), s.topic), committed)
	way.mu.Lock() // the connections that were cut last may be replaced only now
	t.Logf("%d rows, %d connections", total(committed), way.dials)
	way.mu.Unlock()
	v.requireSound(t)
	testkit.Wait(t, "readiness", func() (bool, error) { return r.Ready() == nil, nil })
}

// The table may change while its rows are streamed.
func TestTheTableChangesWhileItIsStreamed(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	s.start(s.wal())
	s.waitStream()
	n := 0
	row := func() {
		s.insert(s.topic, "k", string(rune('0'+n)))
		n++
	}
	row()
	s.exec("ALTER TABLE troupe.outbox ADD COLUMN tenant text DEFAULT 'none'")
	row()
	s.exec("CREATE TABLE troupe.outbox_far PARTITION OF troupe.outbox FOR VALUES FROM (9000000000) TO (9000000100)")
	s.exec("SELECT setval('troupe.outbox_position_seq', 9000000000)")
	row()
	s.exec("ALTER TABLE troupe.outbox DROP COLUMN tenant")
	row()
	require.Equal(t, []string{"0", "1", "2", "3"}, values(s.gather(4, s.topic)))
}

// A row that fits no batch is parked, and its key waits; rows of other keys are published.
func TestARowOfTwoMegabytesIsParked(t *testing.T) {
	t.Parallel()
	needsLog(t)
	s, _ := newServer(t, nil)
	cfg := s.wal()
	seen := publishFailures(&cfg)
	s.start(cfg)
	s.waitStream()
	s.insert(s.topic, "big", "first")
	s.exec(`INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'big', 'Thing', $2)`, s.topic, incompressible(2_000_000))
	s.insert(s.topic, "big", "behind")
	s.insert(s.topic, "small", "0")
	require.True(t, (<-seen).Parked)
	s.gather(2, s.topic)
	require.Equal(t, 1, s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'parked'"))
	testkit.Wait(t, "the row behind it", func() (bool, error) {
		return s.count("SELECT count(*) FROM troupe.outbox_failures WHERE status = 'waiting'") == 1, nil
	})
	// The line is deleted, and with it the row is given up.
	s.exec("DELETE FROM troupe.outbox_failures WHERE status = 'parked'")
	var big []string
	for _, r := range s.gather(3, s.topic) {
		if string(r.Key) == "big" {
			big = append(big, string(r.Value))
		}
	}
	require.Equal(t, []string{"first", "behind"}, big)
}
