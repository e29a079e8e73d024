package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
)

const (
	blowWait   = 700 * time.Millisecond // average time from one fault to the next
	chaosLeast = 12 * time.Second       // minimum time of posting, so that faults hit a run in progress
)

// Chaos counts the injected faults of a run.
type Chaos struct {
	RelaysKilled    int64 `json:"relays_killed"`
	ServicesKilled  int64 `json:"services_killed"`
	ConnectionsCut  int64 `json:"connections_cut"`
	MessagesDoubled int64 `json:"messages_doubled"`
}

// A tormentor injects faults into a fleet. Kinds of faults and their targets are dealt from decks, so that a run of some seconds
// has had every kind of fault, and one of half a minute has hit every process.
type tormentor struct {
	proxy      *proxy
	duplicator *duplicator
	log        zerolog.Logger
	random     *rand.Rand
	relays     deck[*process]
	services   deck[*process]
	everybody  deck[*process]
	done       Chaos
}

func newTormentor(f *fleet, p *proxy, d *duplicator, seed int64, log zerolog.Logger) *tormentor {
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	return &tormentor{
		proxy: p, duplicator: d, log: log, random: random,
		relays:    deck[*process]{random: random, all: f.of(relay)},
		services:  deck[*process]{random: random, all: f.of(service)},
		everybody: deck[*process]{random: random, all: f.processes},
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
func (t *tormentor) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return t.duplicator.run(ctx) })
	group.Go(func() error {
		t.strike(ctx)
		return nil
	})
	return group.Wait()
}

func (t *tormentor) strike(ctx context.Context) {
	blows := deck[func()]{random: t.random, all: []func(){
		func() { t.done.RelaysKilled += t.kill(t.relays.deal()) },
		func() { t.done.ServicesKilled += t.kill(t.services.deal()) },
		t.cut,
	}}
	for {
		wait := blowWait/2 + time.Duration(t.random.Float64()*float64(blowWait))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		blows.deal()()
	}
}

func (t *tormentor) kill(p *process) int64 {
	if !p.kill() {
		return 0 // it is being started
	}
	t.log.Info().Str("process", p.name).Msg("killed")
	return 1
}

// cut resets all connections of the next process that has any.
func (t *tormentor) cut() {
	for range t.everybody.all {
		p := t.everybody.deal()
		if n := t.proxy.cut(p.name); n > 0 {
			t.done.ConnectionsCut += int64(n)
			t.log.Info().Str("process", p.name).Int("connections", n).Msg("cut")
			return
		}
	}
}

// report returns the counts. Call it only after run has returned.
func (t *tormentor) report() *Chaos {
	t.done.MessagesDoubled = t.duplicator.copied.Load()
	return &t.done
}

// check verifies that each kind of fault was injected: chaos without effect proves nothing.
func (c *Chaos) check() Check {
	v := verdict{name: "chaos hurt in every way", want: "4 of 4"}
	ways := 4
	for _, way := range []struct {
		count    int64
		complain string
	}{
		{c.RelaysKilled, "no relay was killed"},
		{c.ServicesKilled, "no service was killed"},
		{c.ConnectionsCut, "no connection was cut"},
		{c.MessagesDoubled, "no message was sent twice"},
	} {
		if way.count == 0 {
			ways--
			v.complain("%s", way.complain)
		}
	}
	v.got = fmt.Sprintf("%d of 4", ways)
	return v.check()
}
