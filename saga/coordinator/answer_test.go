package coordinator_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

// byPerson is an order that an operator, or the desk, approves before it is paid.
func byPerson(t testing.TB, timeout time.Duration) *saga.Definition {
	t.Helper()
	spec := order(t).Spec()
	approval := saga.Step{
		Name: "approval", Timeout: saga.Duration(timeout),
		Success: []saga.Answer{{Hop: "desk", Event: "OrderApproved", Form: &saga.Form{Fields: []saga.Field{{Name: "note", Type: saga.String, Optional: true}}}}},
		Failure: []saga.Answer{{Hop: "desk", Event: "OrderDeclined", Form: &saga.Form{}}},
	}
	spec.Steps = append([]saga.Step{approval}, spec.Steps...)
	spec.Steps[1].Needs = []string{"approval"}
	spec.Cancel = &saga.Cancel{Operator: true}
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

func approvedBy(actor string) saga.Event {
	return saga.Event{Kind: saga.ActAnswer, Step: "approval", Type: "OrderApproved", Fields: map[string]any{"note": "fine"}, Actor: actor, Reason: "ticket 7"}
}

// untilDecided repeats an action after a conflict, of which nothing is stored.
func untilDecided(do func() error) error {
	for {
		if err := do(); !errors.Is(err, coordinator.ErrConflict) {
			return err
		}
	}
}

// actsOnce applies an action in a transaction of its own, as a service's handler does.
func (f *flow) actsOnce(id string, e saga.Event) error {
	return untilDecided(func() error {
		return pgx.BeginFunc(f.t.Context(), f.pool, func(tx pgx.Tx) error {
			_, err := f.c.Act(f.t.Context(), tx, id, e)
			return err
		})
	})
}

// Two operators, the event of the desk and the time-out of the step meet, with two coordinators. Each saga takes one of them.
// It is paid once if that was an approval, and not at all otherwise.
func TestAnswersTheEventAndTheTimeoutMeet(t *testing.T) {
	t.Parallel()
	for name, local := range map[string]bool{"Kafka": false, "Postgres alone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := byPerson(t, 400*time.Millisecond)
			f := newFlow(t, local, d)
			f.coordinator(d)
			const orders = 24
			accepted := make([]atomic.Int32, orders)
			var people errgroup.Group
			people.SetLimit(12)
			for i := range orders {
				id := f.start(fmt.Sprint("o-", i))
				take := func(do func() error) {
					people.Go(func() error {
						if i%2 == 1 { // at the time-out
							if _, err := f.pool.Exec(t.Context(), "SELECT pg_sleep_until(wake_at) FROM troupe.sagas WHERE id = $1", id); err != nil {
								return err
							}
						}
						err := untilDecided(do)
						switch {
						case err == nil:
							accepted[i].Add(1)
						case !errors.Is(err, coordinator.ErrRefused):
							return err
						}
						return nil
					})
				}
				take(func() error { _, err := f.desk().Act(t.Context(), id, approvedBy("ann")); return err })
				take(func() error { return f.actsOnce(id, approvedBy("bob")) })
				if i%3 == 0 {
					f.event("desk", fmt.Sprint("o-", i), "OrderApproved")
				}
			}
			require.NoError(t, people.Wait())
			testkit.Wait(t, "the orders to end", func() (bool, error) {
				var ended int
				err := f.pool.QueryRow(t.Context(), endedSagas).Scan(&ended)
				return ended == orders, err
			})
			ends := make(map[saga.Status]int)
			for i := range orders {
				key := fmt.Sprint("o-", i)
				id := "order/" + key
				g, err := f.desk().Get(t.Context(), id)
				require.NoError(t, err)
				ends[g.Status]++
				answers := f.count("SELECT count(*) FROM troupe.saga_events WHERE saga_id = $1 AND kind = 'answer'", id)
				events := f.count("SELECT count(*) FROM troupe.saga_events WHERE saga_id = $1 AND kind = 'observed'", id)
				require.EqualValues(t, answers, accepted[i].Load(), id)
				require.LessOrEqual(t, answers+events, 1, id)
				require.Equal(t, answers+events, f.count("SELECT count(*) FROM troupe.saga_log WHERE saga_id = $1 AND what = 'StepCompleted' AND step = 'approval'", id), id)
				want := []string(nil)
				if answers+events == 1 {
					want = []string{"payment/forward", "inventory/forward", "shipping/forward"}
				}
				require.Equal(t, want, f.effects(key), "%s is %s", id, g.Status)
				f.equalsItsLogOf(id)
			}
			t.Log(ends)
			require.Positive(t, ends[saga.Completed])
		})
	}
}

// An answer after the cancel and one after the time-out change nothing, and the error has the reason.
func TestALateAnswerIsRefused(t *testing.T) {
	t.Parallel()
	f := newFlow(t, true, byPerson(t, time.Hour))
	cancelled := f.start("o-1")
	require.NoError(t, f.actsOnce(cancelled, saga.Event{Kind: saga.ActCancel, Actor: "ann", Reason: "withdrawn"}))
	require.ErrorContains(t, f.actsOnce(cancelled, approvedBy("bob")), "the saga has ended: compensated")
	require.Empty(t, f.effects("o-1"))

	f = newFlow(t, true, byPerson(t, time.Millisecond))
	late := f.start("o-2")
	f.becomesStatus(late, saga.Compensated)
	require.ErrorContains(t, f.actsOnce(late, approvedBy("bob")), "the saga has ended: compensated")
	require.Empty(t, f.effects("o-2"))
}

// becomesStatus waits until a saga of any definition has a status.
func (f *flow) becomesStatus(id string, want saga.Status) {
	f.t.Helper()
	testkit.Wait(f.t, id+" to be "+string(want), func() (bool, error) {
		g, err := f.desk().Get(f.t.Context(), id)
		return err == nil && g.Status == want, err
	})
}
