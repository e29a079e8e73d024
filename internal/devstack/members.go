package devstack

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// members ends the sessions that kfake forgets. kfake starts a member's session timer when it has sent the answer to a join or
// sync, so a member whose connection breaks while it waits for an answer has no timer: in the next generation it owns partitions
// that no member reads, until another member joins. (kfake's group.reply, seen in v0.0.0-20260918054303.)
//
// It reads each request of a classic group, and removes a member that was silent for its session time-out plus the time that a
// rebalance may keep it waiting.
type members struct {
	client *kgo.Client
	stop   context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	seen map[member]sign
}

type member struct{ group, id string }

// A sign is the last request of a member.
type sign struct {
	at      time.Time
	silence time.Duration // how long the member may be silent
}

// watchMembers watches the groups of c until close is called.
func watchMembers(c *kfake.Cluster) (*members, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		return nil, fmt.Errorf("watch members: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &members{client: client, stop: stop, done: make(chan struct{}), seen: make(map[member]sign)}
	for _, key := range []kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat} {
		c.ControlKey(key.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
			m.note(req)
			return nil, nil, false
		})
	}
	go m.watch(ctx)
	return m, nil
}

func (m *members) close() {
	m.stop()
	<-m.done
	m.client.Close()
}

func (m *members) note(req kmsg.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch r := req.(type) {
	case *kmsg.JoinGroupRequest:
		if r.MemberID != "" {
			silence := r.SessionTimeoutMillis + max(r.RebalanceTimeoutMillis, 0)
			m.seen[member{r.Group, r.MemberID}] = sign{time.Now(), time.Duration(silence) * time.Millisecond}
		}
	case *kmsg.SyncGroupRequest:
		m.alive(member{r.Group, r.MemberID})
	case *kmsg.HeartbeatRequest:
		m.alive(member{r.Group, r.MemberID})
	}
}

func (m *members) alive(who member) {
	if s, ok := m.seen[who]; ok {
		s.at = time.Now()
		m.seen[who] = s
	}
}

func (m *members) watch(ctx context.Context) {
	defer close(m.done)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, who := range m.silent() {
			req := kmsg.NewPtrLeaveGroupRequest()
			req.Group = who.group
			leaver := kmsg.NewLeaveGroupRequestMember()
			leaver.MemberID = who.id
			req.Members = append(req.Members, leaver)
			// Most members have left already, and the answer is an error. Other errors mean that the broker has failed.
			_, _ = req.RequestWith(ctx, m.client)
		}
	}
}

// silent removes and returns the members that were silent for too long.
func (m *members) silent() (all []member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for who, s := range m.seen {
		if time.Since(s.at) > s.silence {
			delete(m.seen, who)
			all = append(all, who)
		}
	}
	return all
}
