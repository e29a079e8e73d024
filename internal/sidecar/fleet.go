package sidecar

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/troupe-go/troupe/outbox"
)

// A fleet holds all outlets of the process.
type fleet struct {
	log     zerolog.Logger
	latency *prometheus.HistogramVec
	failed  chan error // the error of the only outlet

	traced func(outbox.PublishedRow) // makes spans; nil without an endpoint for them

	mu      sync.Mutex
	outlets []*outlet // in the file's order

	removed sync.WaitGroup // outlets that a reload removed, and that have not ended yet
}

func newFleet(log zerolog.Logger) *fleet {
	return &fleet{log: log, latency: publishLatency(), failed: make(chan error, 1)}
}

func (f *fleet) list() []*outlet {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.outlets)
}

// find returns the outlet of a name, or the only outlet if the name is empty. It returns nil if there is no such outlet.
func (f *fleet) find(name string) *outlet {
	all := f.list()
	if name == "" && len(all) == 1 {
		return all[0]
	}
	if n := slices.IndexFunc(all, func(o *outlet) bool { return o.plan.name == name }); n >= 0 {
		return all[n]
	}
	return nil
}

func (f *fleet) several() bool { return len(f.list()) > 1 }

// apply replaces the outlets of the fleet by the outlets of the plans. It checks all plans before it stops a relay. Then it stops
// the outlets whose settings changed or that have no plan, and starts new ones; outlets without a change keep running. It waits for no
// relay to end: a broker or a database that does not answer makes that last long.
func (f *fleet) apply(ctx context.Context, plans []outboxPlan) error {
	old := f.list()
	next := make([]*outlet, len(plans))
	fresh := make(map[*outlet]*outlet) // to the outlet that it replaces, or nil
	tables := make(map[string]bool)
	for _, plan := range plans {
		tables[plan.tableID()] = true
	}
	for n, plan := range plans {
		at := slices.IndexFunc(old, func(o *outlet) bool { return o.plan.tableID() == plan.tableID() })
		if at < 0 { // another table under the name: the former one is in no plan
			at = slices.IndexFunc(old, func(o *outlet) bool { return o.plan.name == plan.name && !tables[o.plan.tableID()] })
		}
		if at >= 0 {
			changed := plan.changed(old[at].plan)
			if plan.name != old[at].plan.name {
				changed = append(changed, "name")
			}
			if len(changed) == 0 {
				next[n] = old[at]
				continue
			}
			f.log.Info().Str("outbox", plan.name).Strs("changed", changed).Msg("reload: the outbox's relay is restarted")
		}
		o, err := newOutlet(plan, f.latency, f.traced, f.several)
		if err != nil {
			for made := range fresh {
				made.close()
			}
			return err
		}
		next[n] = o
		fresh[o] = nil
		if at >= 0 {
			fresh[o] = old[at]
		}
	}
	replaced := make(map[*outlet]bool)
	for o, from := range fresh {
		if from != nil {
			replaced[from] = true
			from.stop()
			from.replay.cancel()
			o.replaces(from)
		}
	}
	f.mu.Lock()
	f.outlets = next
	f.mu.Unlock()
	for o, from := range fresh {
		if from != nil {
			o.pauseAs(from) // a pause may have come to the former one meanwhile
		}
	}
	for o := range fresh {
		o.start(ctx)
		go f.watch(ctx, o)
	}
	for _, o := range old {
		if !slices.Contains(next, o) && !replaced[o] {
			o.stop()
			o.replay.cancel()
			f.removed.Go(o.waitAndLog)
		}
	}
	return nil
}

// watch reports the error of an outlet that ended by itself, if it is the only one and was not replaced.
func (f *fleet) watch(ctx context.Context, o *outlet) {
	<-o.ended
	if o.err != nil && ctx.Err() == nil && slices.Equal(f.list(), []*outlet{o}) {
		select {
		case f.failed <- o.err:
		default:
		}
	}
}

// end stops all outlets and waits for them. It is called when ctx has ended or the only outlet failed.
func (f *fleet) end() error {
	var mu sync.Mutex
	var errs []error
	var ends sync.WaitGroup
	for _, o := range f.list() {
		o.stop()
		ends.Go(func() {
			err := o.wait()
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	ends.Wait()
	f.removed.Wait()
	return errors.Join(errs...)
}
