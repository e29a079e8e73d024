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
	blowWait   = 700 * time.Millisecond // from one blow to the next, on average
	chaosLeast = 12 * time.Second       // that posting takes, so that there is a run to hurt
)

// Chaos is what was done to a run.
type Chaos struct {
	RelaysKilled    int64 `json:"relays_killed"`
	ServicesKilled  int64 `json:"services_killed"`
	ConnectionsCut  int64 `json:"connections_cut"`
	MessagesDoubled int64 `json:"messages_doubled"`
}

// A tormentor hurts a fleet. Kinds of blows and whom they hit are dealt from decks, so that a run of some seconds has had
// every kind, and one of half a minute has hit everybody.
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

// A deck deals all its cards in an order of chance before it deals one again.
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

// run goes on until ctx ends.
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

// report is what was done. Only after run has ended.
func (t *tormentor) report() *Chaos {
	t.done.MessagesDoubled = t.duplicator.copied.Load()
	return &t.done
}

// check: chaos that did nothing proves nothing.
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
