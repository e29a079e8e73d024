package run

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
)

const (
	faultWait  = 700 * time.Millisecond // average time from one fault to the next
	chaosLeast = 12 * time.Second       // minimum time of posting, so that faults hit a run in progress
)

// Chaos counts the injected faults of a run.
type Chaos struct {
	RelaysKilled    int64 `json:"relays_killed"`
	ServicesKilled  int64 `json:"services_killed"`
	ConnectionsCut  int64 `json:"connections_cut"`
	MessagesDoubled int64 `json:"messages_doubled"`
}

// faults injects faults into a fleet. Kinds of faults and their targets are dealt from decks, so that a run of some seconds
// has had every kind of fault, and one of half a minute has hit every process.
type faults struct {
	proxy      *proxy
	duplicator *duplicator
	log        zerolog.Logger
	random     *rand.Rand
	relays     deck[*process]
	services   deck[*process]
	processes  deck[*process]
	done       Chaos
}

func newFaults(f *fleet, p *proxy, d *duplicator, seed int64, log zerolog.Logger) *faults {
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	return &faults{
		proxy: p, duplicator: d, log: log, random: random,
		relays:    deck[*process]{random: random, all: f.of(relay)},
		services:  deck[*process]{random: random, all: f.of(service)},
		processes: deck[*process]{random: random, all: f.processes},
	}
}

// A deck deals all its cards in random order before it deals one again.
type deck[T any] struct {
	random *rand.Rand
	all    []T
	left   []int
}

func (d *deck[T]) deal() T {
	if len(d.left) == 0 {
		d.left = d.random.Perm(len(d.all))
	}
	card := d.all[d.left[0]]
	d.left = d.left[1:]
	return card
}

// run injects faults until ctx ends.
func (c *faults) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.duplicator.run(ctx) })
	group.Go(func() error {
		c.killAndCut(ctx)
		return nil
	})
	return group.Wait()
}

func (c *faults) killAndCut(ctx context.Context) {
	kinds := deck[func()]{random: c.random, all: []func(){
		func() { c.done.RelaysKilled += c.kill(c.relays.deal()) },
		func() { c.done.ServicesKilled += c.kill(c.services.deal()) },
		c.cut,
	}}
	for {
		wait := faultWait/2 + time.Duration(c.random.Float64()*float64(faultWait))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		kinds.deal()()
	}
}

func (c *faults) kill(p *process) int64 {
	if !p.kill() {
		return 0 // it is being started
	}
	c.log.Info().Str("process", p.name).Msg("killed")
	return 1
}

// cut resets all connections of the next process that has any.
func (c *faults) cut() {
	for range c.processes.all {
		p := c.processes.deal()
		if n := c.proxy.cut(p.name); n > 0 {
			c.done.ConnectionsCut += int64(n)
			c.log.Info().Str("process", p.name).Int("connections", n).Msg("cut")
			return
		}
	}
}

// report returns the counts. Call it only after run has returned.
func (c *faults) report() *Chaos {
	c.done.MessagesDoubled = c.duplicator.copied.Load()
	return &c.done
}

// check verifies that each kind of fault was injected: chaos without effect proves nothing.
func (c *Chaos) check() Check {
	return newCheck("every kind of fault happened", func(v *verdict) {
		for complaint, count := range map[string]int64{
			"no relay was killed": c.RelaysKilled, "no service was killed": c.ServicesKilled,
			"no connection was cut": c.ConnectionsCut, "no message was sent twice": c.MessagesDoubled,
		} {
			if count == 0 {
				v.complain("%s", complaint)
			}
		}
		v.equal("%d of 4", 4, 4-len(v.complaints))
	})
}
