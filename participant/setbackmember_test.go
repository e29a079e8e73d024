package participant_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/participant"
)

func (h *setBackHistory) running() bool {
	return slices.ContainsFunc(h.members, func(m *setBackMember) bool { return m.running })
}

func (h *setBackHistory) join() {
	m := &setBackMember{h: h, running: true, ended: make(chan error, 1)}
	m.away.Store(h.noDatabase)
	h.members = append(h.members, m)
	config := h.pool.Config()
	config.ConnConfig.DialFunc = m.dial(&m.away)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(h.t, err)
	var never atomic.Bool
	p := h.participant(func(c *participant.Config) {
		c.Partitions, c.Batch, c.Pool, c.Log = h.plan.Partitions, h.plan.Batch, pool, zerolog.New(&m.log).With().Timestamp().Logger()
		c.Retry.Attempts, c.Drain = 1_000_000, time.Second
		c.Kafka = append(quick(), kgo.Dialer(m.dial(&never)), kgo.MetadataMinAge(20*time.Millisecond))
		if h.plan.Forever {
			c.InboxRetention = -1
		}
		if !h.plan.Session {
			c.Kafka = append(c.Kafka, kgo.DisableFetchSessions())
		}
	})
	p.Tick(100 * time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = func() {
		cancel()
		if err := <-m.ended; err != nil {
			h.t.Logf("a member ended: %v", err)
		}
		pool.Close()
	}
	go func() { m.ended <- p.Run(ctx) }()
}

// leave ends a random member.
func (h *setBackHistory) leave(which int, kill bool) {
	var running []*setBackMember
	for _, m := range h.members {
		if m.running {
			running = append(running, m)
		}
	}
	if len(running) > 0 {
		h.cutOff = h.cutOff || kill && h.losses > 0
		running[which%len(running)].stop(kill)
	}
}

func (h *setBackHistory) away(away bool) {
	h.noDatabase = away
	for _, m := range h.members {
		if m.away.Store(away); away {
			m.cutConns(true)
		}
	}
}

// setBackMember is a member of the group in this process. A killed one loses its connections at once, and gets no other ones.
type setBackMember struct {
	h       *setBackHistory
	log     safeBuffer
	running bool
	cancel  func()
	ended   chan error
	killed  atomic.Bool
	away    atomic.Bool // it reaches no database

	mu    sync.Mutex
	conns []memberConn
}

type memberConn struct {
	net.Conn
	database bool
}

var errKilled = errors.New("the member was killed, or has no database")

func (m *setBackMember) dial(away *atomic.Bool) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if m.killed.Load() || away.Load() {
			return nil, errKilled
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		m.mu.Lock()
		m.conns = append(m.conns, memberConn{conn, away == &m.away})
		m.mu.Unlock()
		if m.killed.Load() || away.Load() {
			_ = conn.Close()
		}
		return conn, nil
	}
}

func (m *setBackMember) cutConns(database bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		if c.database || !database {
			_ = c.Close()
		}
	}
}

func (m *setBackMember) stop(kill bool) {
	if !m.running {
		return
	}
	m.running = false
	if kill {
		m.killed.Store(true)
		m.cutConns(false)
	}
	m.cancel()
}
