package participant_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

// TestMembersComeAndGoUnderLoad moves partitions: nothing is lost, doubled or out of its key's order, with members or the
// broker assigning them.
func TestMembersComeAndGoUnderLoad(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string][]kgo.Opt{
		"the members assign":          nil,
		"static membership":           {kgo.InstanceID("")}, // one each
		"the broker assigns, KIP-848": {kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newStage(t).comeAndGo(protocol)
		})
	}
}

func (s *stage) comeAndGo(protocol []kgo.Opt) {
	t := s.t
	s.provision(4)
	const keys = 20
	each := 60
	if len(protocol) == 1 {
		each = 3 // the group waits for a static member that leaves: fewer rounds
	}
	commands := s.commands(keys, each)
	members := 0
	join := func() (leave func()) {
		members++
		p := s.new(onlyOnce, func(c *participant.Config) {
			c.Batch = 10
			c.Kafka = append(c.Kafka, protocol...)
			if len(protocol) == 1 {
				c.Kafka = append(append(c.Kafka, quick()...), kgo.InstanceID(fmt.Sprintf("member-%d", members)))
			}
		})
		participant.Handle(p, count)
		leave = s.start(p)
		testkit.Wait(t, "a member", func() (bool, error) { return p.Ready() == nil, p.Ready() })
		return leave
	}
	leave := join()
	for len(commands) > 0 {
		s.send(commands[:len(commands)/2]...)
		commands = commands[len(commands)/2:]
		next := join()
		if len(commands) > 0 {
			s.send(commands[0])
			commands = commands[1:]
		}
		leave()
		leave = next
	}
	s.expectAll(keys, each)
}

// TestAPartitionMovesWhenItsHandlerHasEnded checks that its new owner begins after it, at the next offset.
func TestAPartitionMovesWhenItsHandlerHasEnded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.provision(2)
	b := newBlocking()
	// Drain is 10 s, since two thirds of the rebalance time-out are more.
	first := s.new(onlyOnce, func(c *participant.Config) { c.Kafka = append(c.Kafka, kgo.RebalanceTimeout(30*time.Second)) })
	participant.Handle(first, b.count)
	s.start(first)
	for _, key := range s.keys(2) {
		s.send(s.command(key, Count{N: 1}))
	}
	<-b.runs
	<-b.runs
	second := s.new(onlyOnce)
	participant.Handle(second, count)
	s.start(second)
	testkit.Wait(t, "a partition about to move", func() (bool, error) { return first.Assigned() == 1, nil })
	early := time.NewTimer(500 * time.Millisecond)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for waits := true; waits; {
		select {
		case <-early.C:
			waits = false
		case <-tick.C:
			require.Zero(t, second.Assigned(), "it moved while its handler ran")
		}
	}
	close(b.may)
	s.waitCount(2, "SELECT count(*) FROM done")
	testkit.Wait(t, "the partition moved", func() (bool, error) { return second.Assigned() == 1, nil })
	require.Equal(t, 2, s.count("SELECT count(*) FROM counters WHERE total = 1"))
}

// TestSoak kills and freezes members under load, for the duration TROUPE_SOAK.
func TestSoak(t *testing.T) {
	t.Parallel()
	length := soakLength(t)
	for _, batch := range []int{1, 50} {
		t.Run(fmt.Sprintf("%d at once", batch), func(t *testing.T) { // one after the other
			s := newStage(t)
			s.batch = batch
			s.soak(length)
		})
	}
}

func soakLength(t *testing.T) time.Duration {
	text := os.Getenv("TROUPE_SOAK")
	if text == "" {
		return 3 * time.Second
	}
	length, err := time.ParseDuration(text)
	require.NoError(t, err)
	return length
}

func (s *stage) soak(length time.Duration) {
	t := s.t
	s.provision(2)
	const keys = 16
	members := []*process{s.member("", 0), s.member("", 0), s.member("", 0)}
	each, kills, freezes := 0, 0, 0
	var frozen *process
	trouble := time.NewTicker(time.Second)
	defer trouble.Stop()
	load := time.NewTicker(50 * time.Millisecond)
	defer load.Stop()
	for end := time.After(length); ; {
		select {
		case <-end:
			if frozen != nil {
				require.NoError(t, frozen.Process.Signal(syscall.SIGCONT))
			}
			s.expectAll(keys, each)
			for _, m := range members {
				m.terminate(t)
			}
			t.Logf("%d commands, %d kills, %d freezes", keys*each, kills, freezes)
			return
		case <-trouble.C:
			victim := rand.IntN(len(members))
			switch {
			case frozen != nil && rand.IntN(8) == 0:
				require.NoError(t, frozen.Process.Signal(syscall.SIGCONT))
				frozen = nil
			case frozen == nil && rand.IntN(2) == 0:
				frozen = members[victim]
				require.NoError(t, frozen.Process.Signal(syscall.SIGSTOP))
				freezes++
			case members[victim] != frozen:
				require.NoError(t, members[victim].Process.Kill())
				members[victim].killed(t)
				members[victim] = s.member("", 0)
				kills++
			}
		case <-load.C:
			each++
			turn := make([]envelope.Message, keys)
			for k := range keys {
				turn[k] = s.command(fmt.Sprintf("k-%d", k), Count{N: each})
			}
			s.send(turn...)
		}
	}
}
