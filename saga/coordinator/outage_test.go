package coordinator_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

// approved begins by an event of one hop and awaits an event of another.
const approved = `{"saga":"approved","version":1,"key":"id","data":{"id":"string"},"start":[{"hop":"shop","event":"Ordered","set":{"id":"event.id"}}],
 "steps":[{"name":"approval","success":[{"event":"Approved","hop":"desk"}]}]}`

// runUntil runs a coordinator of f until the function that it returns is called.
func (f *flow) runUntil(defs ...*saga.Definition) (stop func()) {
	f.t.Helper()
	p := f.participant("order", f.pool)
	_, err := coordinator.New(f.t.Context(), coordinator.Config{Participant: p, Pool: f.pool, Definitions: defs, Log: testkit.Logger(f.t)})
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { require.NoError(f.t, p.Run(ctx)) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	f.t.Cleanup(stop)
	return stop
}

func (f *flow) event(hop, key, event string) {
	f.t.Helper()
	const insert = "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, $3, jsonb_build_object('id', $2::text)::text::bytea)"
	_, err := f.pool.Exec(f.t.Context(), insert, f.name+"."+hop+".events", key, event)
	require.NoError(f.t, err)
}

// TestAnEventThatIsKeptForItsSagaOutlivesAnOutage: an event came before its saga. Then the coordinator did not run for longer than events
// are kept, or its database was restored from a backup of that age, and the event that begins the saga comes after the others that waited.
func TestAnEventThatIsKeptForItsSagaOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	stop := f.runUntil(parsed(t, approved))
	f.event("desk", "o-1", "Approved")
	f.event("desk", "o-0", "Approved")
	f.waitCount("the events to be kept", 2, "SELECT count(*) FROM troupe.saga_stash")
	f.waitCount("the coordinator to be seen", 1, "SELECT count(*) FROM troupe.inbox_groups WHERE coordinated_at IS NOT NULL")
	stop()
	_, err := f.pool.Exec(t.Context(), `
UPDATE troupe.saga_stash SET expires_at = expires_at - interval '2 hours', kept_at = kept_at - interval '2 hours';
UPDATE troupe.inbox_groups SET coordinated_at = coordinated_at - interval '2 hours'`)
	require.NoError(t, err)
	f.runUntil(parsed(t, approved))
	for _, key := range []string{"o-2", "o-3"} { // each one that is kept deletes expired ones
		f.event("desk", key, "Approved")
	}
	f.waitCount("two more events to be kept", 2, "SELECT count(*) FROM troupe.saga_stash WHERE value IN ('o-2', 'o-3')")
	f.event("shop", "o-1", "Ordered")
	f.waitCount("the saga to end", 1, "SELECT count(*) FROM troupe.sagas WHERE status = 'completed'")
	f.waitCount("the outage to be over", 1, "SELECT count(*) FROM troupe.inbox_groups WHERE coordinated_at > clock_timestamp() - interval '30 minutes'")
	f.event("shop", "o-0", "Ordered")
	f.waitCount("the other saga to end", 2, "SELECT count(*) FROM troupe.sagas WHERE status = 'completed'")
	require.Equal(t, 2, f.count("SELECT count(*) FROM troupe.saga_stash WHERE expires_at < clock_timestamp() + interval '61 minutes'"))
}

// TestAnEventThatIsKeptForItsSagaExpiresWhileTheCoordinatorRuns checks that the outage is not taken for longer than it was.
func TestAnEventThatIsKeptForItsSagaExpiresWhileTheCoordinatorRuns(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.runUntil(parsed(t, approved))
	f.event("desk", "o-1", "Approved")
	f.waitCount("the event to be kept", 1, "SELECT count(*) FROM troupe.saga_stash")
	f.waitCount("the coordinator to be seen", 1, "SELECT count(*) FROM troupe.inbox_groups WHERE coordinated_at IS NOT NULL")
	_, err := f.pool.Exec(t.Context(), "UPDATE troupe.saga_stash SET expires_at = expires_at - interval '2 hours'")
	require.NoError(t, err)
	f.event("shop", "o-1", "Ordered")
	f.waitCount("the saga to begin", 1, "SELECT count(*) FROM troupe.sagas")
	f.event("desk", "o-2", "Approved")
	f.waitCount("the expired event to be deleted", 1, "SELECT count(*) FROM troupe.saga_stash WHERE value = 'o-2' AND NOT EXISTS (SELECT FROM troupe.saga_stash WHERE value = 'o-1')")
	require.Equal(t, 1, f.count("SELECT count(*) FROM troupe.sagas WHERE status = 'running'"))
}

// TestADefinitionThatTheDatabaseHasLostIsStoredAgain: the database was set back to before a process stored its definition, and the
// process runs on. Operators act on its sagas, and the next version begins.
func TestADefinitionThatTheDatabaseHasLostIsStoredAgain(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.runUntil(parsed(t, approved))
	f.event("shop", "o-1", "Ordered")
	f.waitCount("the saga to begin", 1, "SELECT count(*) FROM troupe.sagas")
	_, err := f.pool.Exec(t.Context(), "DELETE FROM troupe.saga_definitions")
	require.NoError(t, err)
	f.waitCount("the definition to be stored again", 1, "SELECT count(*) FROM troupe.saga_definitions")
}
