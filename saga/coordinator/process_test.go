package coordinator_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

// process is a coordinator of its own, which runs until it is stopped.
func (f *flow) process(d *saga.Definition) (stop func()) {
	f.t.Helper()
	p := f.participant("order", f.pool)
	c, err := coordinator.New(f.t.Context(), coordinator.Config{
		Participant: p, Pool: f.pool, Definitions: []*saga.Definition{d}, Log: testkit.Logger(f.t),
	})
	require.NoError(f.t, err)
	f.c = c
	return f.goOn(p)
}

// goOn runs p without a relay until it is stopped.
func (f *flow) goOn(p *participant.Participant) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(f.t, <-done)
	})
	f.t.Cleanup(stop)
	return stop
}

// Each decision is made by another process. Some of them have a version that would not release the stock, and some do not
// have the type at all: the saga's progress and its definition are in the database alone.
func TestEachMomentMayBeAnotherProcess(t *testing.T) {
	t.Parallel()
	f := newStepwise(t, "o-1")
	spec := order(t).Spec()
	spec.Version = 2
	spec.Steps[1].Compensation, spec.Steps[1].Irreversible = nil, "it is kept for the next order"
	next, err := saga.Define(spec)
	require.NoError(t, err)
	spec.Saga = "gift" // this process does not have the order's type, no longer or not yet
	other, err := saga.Define(spec)
	require.NoError(t, err)

	stop := f.process(order(t))
	id := f.start("o-1")
	stop()
	for i, hop := range []string{"payment", "inventory", "shipping", "inventory", "payment"} {
		f.publish("order")
		f.publish(hop)
		stop := f.process([]*saga.Definition{next, other, order(t)}[i%3])
		testkit.Wait(t, fmt.Sprint("version ", i+2), func() (bool, error) { return f.state(id).Version == i+2, nil })
		stop()
	}
	s := f.state(id)
	require.Equal(t, saga.Compensated, s.Status)
	require.Equal(t, order(t).Hash(), s.Definition)
	require.Equal(t, []string{"payment/forward", "payment/compensate", "inventory/forward", "inventory/compensate"}, f.effects("o-1"))

	f.process(next)
	var definition string
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT definition FROM troupe.sagas WHERE id = $1", f.start("o-2")).Scan(&definition))
	require.Equal(t, next.Hash(), definition)
}
