package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

// idle returns a coordinator whose participant does not run: it decides nothing.
func (f *flow) idle(d *saga.Definition) *coordinator.Coordinator {
	f.t.Helper()
	c, err := coordinator.New(f.t.Context(), coordinator.Config{Participant: f.participant("order", f.pool), Pool: f.pool, Definitions: []*saga.Definition{d}})
	require.NoError(f.t, err)
	return c
}

// In TestASagasEndIsWaitedForInAnyProcess many calls wait for 20 sagas, in the process that decides and in one that does not.
func TestASagasEndIsWaitedForInAnyProcess(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flow) {
		f.set(f.refuse, "o-1 shipping/forward", "no carrier")
		other := f.idle(order(t))
		var waiting sync.WaitGroup
		for i := range 20 {
			key := fmt.Sprint("o-", i)
			f.start(key)
			for _, c := range []*coordinator.Coordinator{f.c, other, f.c} {
				waiting.Go(func() {
					s, err := c.Wait(t.Context(), "order", key)
					if err != nil || !s.Ended() {
						t.Errorf("%s is %s: %v", key, s.Status, err)
					}
					if want := map[bool]saga.Status{true: saga.Compensated, false: saga.Completed}[key == "o-1"]; s.Status != want {
						t.Errorf("%s is %s, want %s", key, s.Status, want)
					}
				})
			}
		}
		waiting.Wait()
		s, err := other.Wait(t.Context(), "order", "o-1")
		require.NoError(t, err)
		require.Equal(t, "no carrier", s.Reason)
		require.Equal(t, f.state("order/o-1"), s)
	})
}

// In TestAWaitThatIsCutShortShowsTheSagaAsItIs a saga is parked until an operator acts, here in a transaction of the caller: the
// hook of such an action runs before its commit.
func TestAWaitThatIsCutShortShowsTheSagaAsItIs(t *testing.T) {
	t.Parallel()
	f := newFlow(t, true)
	f.setFail("o-1 inventory/forward", errors.New("no forklift"))
	id := f.start("o-1")
	f.await(id, saga.Parked)
	patience := 10 * time.Millisecond
	testkit.Wait(t, "a call that has time to read the saga", func() (bool, error) {
		patience *= 2
		ctx, stop := context.WithTimeout(t.Context(), patience)
		defer stop()
		s, err := f.c.Wait(ctx, "order", "o-1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, f.c.Waiting(id))
		return s.Status == saga.Parked, nil
	})
	ended := make(chan saga.State, 1)
	cut := make(chan error, 1)

	go func() {
		s, err := f.c.Wait(t.Context(), "order", "o-1")
		ended <- s
		cut <- err
	}()
	testkit.Wait(t, "the call to wait", func() (bool, error) { return f.c.Waiting(id) == 1, nil })
	require.NoError(t, pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error {
		_, err := f.c.Act(t.Context(), tx, id, saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "a test"})
		return err
	}))
	require.NoError(t, <-cut)
	require.Equal(t, saga.Abandoned, (<-ended).Status)
}

func TestASagaThatIsNotThereIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFlow(t, true)
	_, err := f.c.Wait(t.Context(), "order", "o-none")
	require.ErrorIs(t, err, coordinator.ErrNotFound)
	_, err = f.c.Wait(t.Context(), "ordr", "o-1")
	require.ErrorContains(t, err, `there is no saga "ordr": there are order`)
	require.Zero(t, f.c.Waiting("order/o-none"))
}
