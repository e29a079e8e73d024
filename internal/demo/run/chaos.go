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

// A tormentor hurts a fleet. The kinds of blows come in rounds, each once a round in an order of chance, so that a run of
// some seconds has had them all.
type tormentor struct {
	fleet      *fleet
	proxy      *proxy
	duplicator *duplicator
	random     *rand.Rand
	log        zerolog.Logger
	done       Chaos
}

func newTormentor(f *fleet, p *proxy, d *duplicator, seed int64, log zerolog.Logger) *tormentor {
	return &tormentor{fleet: f, proxy: p, duplicator: d, random: rand.New(rand.NewPCG(uint64(seed), 1)), log: log}
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
	blows := []func(){
		func() { t.done.RelaysKilled += t.kill(relay) },
		func() { t.done.ServicesKilled += t.kill(service) },
		t.cut,
	}
	for round := []int(nil); ; round = round[1:] {
		if len(round) == 0 {
			round = t.random.Perm(len(blows))
		}
		wait := blowWait/2 + time.Duration(t.random.Float64()*float64(blowWait))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		blows[round[0]]()
	}
}

func (t *tormentor) kill(k kind) int64 {
	all := t.fleet.of(k)
	p := all[t.random.IntN(len(all))]
	if !p.kill() {
		return 0 // it is being started
	}
	t.log.Info().Str("process", p.name).Msg("killed")
	return 1
}

// cut resets all connections of one process that has any.
func (t *tormentor) cut() {
	all := t.fleet.processes
	for _, i := range t.random.Perm(len(all)) {
		if n := t.proxy.cut(all[i].name); n > 0 {
			t.done.ConnectionsCut += int64(n)
			t.log.Info().Str("process", all[i].name).Int("connections", n).Msg("cut")
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
