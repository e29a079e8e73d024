package coordinator_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/saga"
)

// kinds are the kinds of orders: which failure, and at which hop.
var kinds = []string{
	"fine", "refuse-payment", "fine", "refuse-inventory", "fail-payment", "fine", "refuse-shipping", "fail-inventory", "fine",
	"slow-payment", "fail-shipping", "fine", "slow-inventory", "refund-refuse-shipping", "undo-fail-payment", "broken-shipping",
}

func broken(s saga.State) bool { return strings.Contains(s.Key, "-broken-") && !s.Back }

// TestSoak kills and freezes coordinators and participants, with their relays, while sagas begin, fail, time out and are
// repaired; TROUPE_SOAK sets for how long.
func TestSoak(t *testing.T) {
	t.Parallel()
	length, pause := 4*time.Second, 400*time.Millisecond
	if text := os.Getenv("TROUPE_SOAK"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
		pause = time.Second
	}
	s := newCrew(t, awaiting(t, 3*session()))
	s.spawn(2, hops...)
	l := load{crew: s}
	trouble := time.NewTicker(pause)
	defer trouble.Stop()
	turn := time.NewTicker(50 * time.Millisecond)
	defer turn.Stop()
	c := chaos{crew: s}
	for end := time.After(length); ; {
		select {
		case <-end:
			l.last()
			c.thaw()
			s.mend()
			s.settle(len(l.keys), broken)
			s.redrive(repair.Filter{}) // also dead letters of sagas that have ended: this has no effect
			s.settle(len(l.keys), broken)
			v := s.judge(l.keys) // how many of them complete within their time-outs depends on the machine
			t.Logf("%d sagas: %s; %d kills, %d freezes, %d helped meanwhile", len(l.keys), v, c.kills, c.freezes, c.helped)
			s.dismiss()
			return
		case <-trouble.C:
			c.strike()
		case <-turn.C:
			l.some(4)
		}
	}
}

// load starts orders: by a call, by an event, by both, by an event that comes twice. The events that they await come before,
// with or after the start.
type load struct {
	*crew
	keys  []string
	later []OrderPlaced // orders whose awaited events are not sent yet
}

func (l *load) some(n int) {
	l.t.Helper()
	await := func(o OrderPlaced) {
		l.emit(l.entry("desk", o.OrderID, OrderApproved{}), l.entry("desk", "r/"+o.OrderID, OrderCleared{o.Reference}))
	}
	for _, o := range l.later {
		await(o)
	}
	l.later = nil
	for range n {
		i := len(l.keys)
		kind := kinds[i%len(kinds)]
		key := fmt.Sprintf("%d-%s", i, kind)
		o := OrderPlaced{OrderID: key, Customer: key, Reference: "ref " + key}
		if kind == "fine" {
			o.Customer = fmt.Sprint("c-", i/8) // about three wait for each other
		}
		l.keys = append(l.keys, key)
		if i%3 == 0 {
			await(o)
		}
		if i%4 < 2 {
			l.call(o)
		}
		if i%4 > 0 {
			l.emit(l.entry("shop", key, o))
		}
		if i%4 == 3 {
			l.emit(l.entry("shop", key, o))
		}
		switch i % 3 {
		case 1:
			await(o)
		case 2:
			l.later = append(l.later, o)
		}
	}
}

// last sends the events that are not sent yet.
func (l *load) last() { l.some(0) }

// chaos simulates operators and failing machines.
type chaos struct {
	*crew
	frozen                 *process
	kills, freezes, helped int
}

func (c *chaos) strike() {
	c.t.Helper()
	if parked := c.parked(); len(parked) > 0 {
		c.help(parked[rand.IntN(len(parked))], rand.N(remedies))
		c.helped++
	}
	victim := rand.IntN(len(c.members))
	switch {
	case c.frozen != nil && rand.IntN(3) == 0:
		c.thaw()
	case c.frozen == nil && rand.IntN(3) == 0:
		c.frozen = c.members[victim]
		require.NoError(c.t, c.frozen.Process.Signal(syscall.SIGSTOP))
		c.freezes++
	case c.members[victim] != c.frozen:
		require.NoError(c.t, c.members[victim].Process.Kill())
		c.members[victim].killed(c.t)
		c.members[victim] = spawn(c.t, c.members[victim].task)
		c.kills++
	}
}

func (c *chaos) thaw() {
	if c.frozen != nil {
		require.NoError(c.t, c.frozen.Process.Signal(syscall.SIGCONT))
	}
	c.frozen = nil
}
