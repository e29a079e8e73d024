package coordinator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

// fewer returns version 2 of the order's saga, which reads the events of one hop.
func fewer(t *testing.T) *saga.Definition {
	t.Helper()
	spec := order(t).Spec()
	spec.Version, spec.Steps = 2, spec.Steps[:1]
	spec.Completed, spec.Compensated = nil, nil
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

// A rolling deployment: the new version reads fewer hops, and it started when no saga was under way. A process of the old
// version begins one more saga, and is stopped.
func TestTheNewVersionGoesOnWithSagasThatTheOldOneBeganLast(t *testing.T) {
	t.Parallel()
	f := newHops(t, false)
	f.process(order(t))()
	f.coordinator(fewer(t))
	stop := f.process(order(t))
	id := f.start("o-1")
	stop()
	f.await(id, saga.Completed)
	require.Equal(t, []string{"payment/forward", "inventory/forward", "shipping/forward"}, f.effects("o-1"))
}

// A deployment that is rolled back: a process of another version, whose definition reads more hops, is the first to store it,
// begins a saga, and is stopped.
func TestARunningProcessGoesOnWithSagasOfADefinitionThatIsStoredLater(t *testing.T) {
	t.Parallel()
	for _, local := range []bool{false, true} {
		t.Run(fmt.Sprintf("local %v", local), func(t *testing.T) {
			t.Parallel()
			f := newHops(t, local)
			f.coordinator(fewer(t))
			stop := f.process(order(t))
			id := f.start("o-1")
			stop()
			f.await(id, saga.Completed)
			require.Equal(t, []string{"payment/forward", "inventory/forward", "shipping/forward"}, f.effects("o-1"))
		})
	}
}

// approval returns a saga that awaits an event of the desk, which is found by the key or by the form's number.
func approval(t *testing.T, name, event string, byForm bool) *saga.Definition {
	t.Helper()
	await := saga.Answer{Event: event, Hop: "desk"}
	spec := saga.Spec{
		Saga: name, Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String, "form": saga.String},
		Steps: []saga.Step{{Name: "approval", Success: []saga.Answer{await}, Timeout: saga.Duration(100 * time.Hour)}},
	}
	if byForm {
		spec.Steps[0].Success[0].By = &saga.Association{Field: "form", Variable: "form"}
	}
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

// A process that takes an event knows each definition that any process has stored before.
func TestAnEventOfADefinitionThatIsStoredLaterFindsItsSaga(t *testing.T) {
	t.Parallel()
	for name, stored := range map[string]*saga.Definition{
		"of its type, by the key": approval(t, "approval", "Signed", false), "of its type, by a variable": approval(t, "approval", "Signed", true),
		"of a type that it does not begin": approval(t, "consent", "Signed", false),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
			f.process(approval(t, "approval", "Approved", false))
			f.handled("Approved", "nobody") // it runs, and has looked for definitions
			f.c = f.notRunning(stored)
			id := f.begun(stored.Spec().Saga, map[string]any{"id": "a-1", "form": "f-1"})
			f.publishEvent("Signed", "a-1")
			f.completes(id)
		})
	}
}

// The older version's definition was stored before the process began, and no saga of it was under way then.
func TestAnEventThatOnlyAnOlderVersionAwaitsFindsItsSaga(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.c = f.notRunning(approval(t, "approval", "Signed", false))
	old := f.c
	f.process(approval(t, "approval", "Approved", false))
	f.handled("Signed", "nobody")
	var kept int
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.saga_stash").Scan(&kept))
	require.Zero(t, kept, "an event that only a retired version awaits is not stashed")
	f.c = old
	id := f.begun("approval", map[string]any{"id": "a-1"})
	f.publishEvent("Signed", "a-1")
	f.completes(id)
	f.handled("Signed", "a-2")
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.saga_stash").Scan(&kept))
	require.Equal(t, 1, kept, "a saga of that version was begun, so another one may be")
}

// notRunning returns a coordinator that has stored d and does not run.
func (f *flow) notRunning(d *saga.Definition) *coordinator.Coordinator {
	f.t.Helper()
	c, err := coordinator.New(f.t.Context(), coordinator.Config{
		Participant: f.participant("order", f.pool), Pool: f.pool, Definitions: []*saga.Definition{d}, Log: testkit.Logger(f.t),
	})
	require.NoError(f.t, err)
	return c
}

func (f *flow) publishEvent(event, key string) {
	f.t.Helper()
	const publish = "INSERT INTO troupe.outbox (topic, key, type, payload, headers) VALUES ($1, $2, $3, $4, '{\"ce_outcome\": \"success\"}')"
	_, err := f.pool.Exec(f.t.Context(), publish, f.name+".desk.events", key, event, `{"form": "f-1"}`)
	require.NoError(f.t, err)
}

// handled publishes an event, and waits until a process has handled it.
func (f *flow) handled(event, key string) {
	f.t.Helper()
	testkit.Wait(f.t, "the desk's topic to be local", func() (is bool, err error) {
		return is, f.pool.QueryRow(f.t.Context(), "SELECT EXISTS (SELECT FROM troupe.local_topics WHERE topic = $1)", f.name+".desk.events").Scan(&is)
	})
	f.publishEvent(event, key)
	testkit.Wait(f.t, event+" to be handled", func() (is bool, err error) {
		return is, f.pool.QueryRow(f.t.Context(), "SELECT count(*) > 0 AND bool_and(status = 'done') FROM troupe.local_work WHERE key = $1", key).Scan(&is)
	})
}

func (f *flow) completes(id string) {
	f.t.Helper()
	testkit.Wait(f.t, id+" to be completed", func() (is bool, err error) {
		return is, f.pool.QueryRow(f.t.Context(), "SELECT status = 'completed' FROM troupe.sagas WHERE id = $1", id).Scan(&is)
	})
}
