package coordinator_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin"
	"github.com/troupe-go/troupe/internal/admin/erasure"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/internal/fixture"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// erases erases a key in all databases of the flow, as soon as nothing is in the way.
func (f *flow) erases(key string) {
	f.t.Helper()
	for _, pool := range append([]*pgxpool.Pool{f.pool}, slices.Collect(maps.Values(f.pools))...) {
		desk := erasure.Desk{Pool: pool}
		testkit.Wait(f.t, "nothing to be in the way", func() (bool, error) {
			// Other groups may get local work for an hour.
			_, err := pool.Exec(f.t.Context(), "UPDATE troupe.local_work SET ended_at = ended_at - interval '1 hour' WHERE ended_at > now() - interval '1 hour'")
			if err != nil {
				return false, err
			}
			plan, err := desk.Plan(f.t.Context(), key)
			if err == nil && len(plan.InTheWay) > 0 {
				err = fmt.Errorf("%+v", plan.InTheWay)
			}
			return err == nil, err
		})
		_, err := desk.Erase(f.t.Context(), key, admin.Actor{Name: "ann", Reason: "ticket 4711"})
		require.NoError(f.t, err)
	}
}

// TestAnErasedSagaHasNoDataAndNoSecondEffect: replay passes over it, and a start that is repeated finds it.
func TestAnErasedSagaHasNoDataAndNoSecondEffect(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, f *flow) {
		id := f.start("o-1")
		other := f.start("o-2")
		f.await(id, saga.Completed)
		whole := f.await(other, saga.Completed)
		first := f.effects("o-1")
		require.NotEmpty(t, first)
		f.erases("o-1")

		s := f.state(id)
		require.Empty(t, s.Data)
		require.NotZero(t, s.Erased)
		require.Equal(t, saga.Completed, s.Status)
		require.Equal(t, whole, f.state(other))
		for _, pool := range f.pools {
			var n int
			require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.answers WHERE idempotency_key = $1 AND payload IS NOT NULL", id).Scan(&n))
			require.Zero(t, n)
		}

		r, err := f.desk().Replay(t.Context(), id)
		require.NoError(t, err)
		require.True(t, r.Erased)
		require.Empty(t, r.Difference)
		require.Equal(t, s.Version, r.Events)
		f.equalsItsLog(other)
		_, err = fixture.Of(t.Context(), f.desk(), id)
		require.ErrorIs(t, err, fixture.ErrNone)
		_, err = f.desk().Act(t.Context(), id, annsEvent(saga.ActCompensate, ""))
		require.ErrorIs(t, err, decisions.ErrRefused)

		require.Equal(t, id, f.start("o-1"))
		f.await(f.start("o-3"), saga.Completed)
		require.Equal(t, first, f.effects("o-1"))
		require.Equal(t, s, f.state(id))

		_, err = f.pool.Exec(t.Context(), `UPDATE troupe.sagas SET state = state || '{"erased": "2026-01-01T00:00:00Z"}' WHERE id = $1`, other)
		require.NoError(t, err)
		r, err = f.desk().Replay(t.Context(), other)
		require.NoError(t, err)
		require.False(t, r.Erased, "it has its data")
		require.NotEmpty(t, r.Difference)
	})
}

// TestACommandOfAnErasedSagaThatComesAgainHasNoEffect: its hop repeats the answer without its content, and the saga ignores it.
func TestACommandOfAnErasedSagaThatComesAgainHasNoEffect(t *testing.T) {
	t.Parallel()
	f := newFlow(t, true)
	id := f.start("o-1")
	f.await(id, saga.Completed)
	first := f.effects("o-1")
	_, err := f.pool.Exec(t.Context(), "CREATE TABLE commands AS SELECT topic, key, type, headers, payload FROM troupe.local_work WHERE topic LIKE '%.commands' AND key = 'o-1'")
	require.NoError(t, err)
	f.erases("o-1")

	require.Equal(t, len(first), f.count("SELECT count(*) FROM commands"))
	_, err = f.pool.Exec(t.Context(), "INSERT INTO troupe.outbox (topic, key, type, headers, payload) SELECT topic, key, type, headers, payload FROM commands")
	require.NoError(t, err)
	f.waitCount("the answers to be handled", len(first), "SELECT count(*) FROM troupe.local_work WHERE topic LIKE '%.events' AND payload IS NULL AND status = 'done'")
	require.Equal(t, first, f.effects("o-1"))
	require.NotZero(t, f.state(id).Erased)
	require.Zero(t, f.count("SELECT count(*) FROM troupe.dead_letters"))

	// Retention keeps the saga as any other: until the answers of its steps are gone.
	f.waitCount("the deadlines to be handled", 0, "SELECT count(*) FROM troupe.deadlines WHERE scope = $1", id)
	f.ages("91 days")
	f.removes()
	require.NotZero(t, f.count(rowsOf, id))
	_, err = f.pool.Exec(t.Context(), "DELETE FROM troupe.answers")
	require.NoError(t, err)
	f.removes()
	f.waitCount("the saga to be removed", 0, rowsOf, id)
}

// TestAnErasedSagaWithItemsCanBeRead: its steps depend on the lengths of its lists.
func TestAnErasedSagaWithItemsCanBeRead(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.pools = map[string]*pgxpool.Pool{"seats": f.pool}
	_, err := f.pool.Exec(t.Context(), "CREATE TABLE taken (flight text, seat text, step text)")
	require.NoError(t, err)
	f.serveSeats(f.pool)
	f.c = f.coordinator(parsed(t, flightDefinition))
	for key, names := range map[string][]string{"none": {}, "some": {"Ann", "Bob"}} {
		f.startFlight(key, names)
		f.waitCount("the flight to end", 1, "SELECT count(*) FROM troupe.sagas WHERE key = $1 AND ended_at IS NOT NULL", key)
		f.erases(key)
		g, err := f.desk().Get(t.Context(), "flight/"+key)
		require.NoError(t, err)
		require.NotZero(t, g.State.Erased)
		require.Empty(t, g.State.Data)
		f.startFlight(key, names) // it is there already
	}
	require.Equal(t, 2, f.count("SELECT count(*) FROM troupe.sagas WHERE state::text NOT LIKE '%Ann%'"))
}

// TestAnEventThatNoSagaTookIsInTheWayOfAnErasure: its dead letter has the data of the event. It is of no saga, so it has the key of the event.
func TestAnEventThatNoSagaTookIsInTheWayOfAnErasure(t *testing.T) {
	t.Parallel()
	start := parsed(t, `{"saga":"visit","version":1,"key":"id","data":{"id":"string"},
 "start":[{"hop":"desk","event":"Signed","when":"event.cents > 100","set":{"id":"event.form"}}],
 "steps":[{"name":"met","success":[{"event":"Met","hop":"desk"}],"timeout":"24h"}]}`)
	for name, of := range map[string]struct {
		other           *saga.Definition
		events, letters int // no saga takes the last event
	}{
		"a start that fails":   {start, 1, 1},
		"no room in the stash": {approval(t, "consent", "Signed", true), 12, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
			f.c = f.coordinator(approval(t, "approval", "Signed", true), of.other)
			const publish = `
INSERT INTO troupe.outbox (topic, key, type, payload, headers)
SELECT $1, 'p', 'Signed', jsonb_build_object('form', 'f-1', 'note', repeat('x', 700000))::text::bytea, '{"ce_outcome": "success"}'
FROM generate_series(1, $2)`
			f.waitCount("the desk's topic to be local", 1, "SELECT count(*) FROM troupe.local_topics WHERE topic = $1", f.name+".desk.events")
			_, err := f.pool.Exec(t.Context(), publish, f.name+".desk.events", of.events)
			require.NoError(t, err)
			f.waitCount("the dead letters", of.letters, "SELECT count(*) FROM troupe.dead_letters WHERE message_type = 'troupe.RetryEvent'")
			plan, err := erasure.Desk{Pool: f.pool}.Plan(t.Context(), "p")
			require.NoError(t, err)
			require.Contains(t, plan.InTheWay, erasure.Obstacle{Table: "dead_letters", Rows: int64(of.letters), Remedy: "open dead letters: troupe dlq redrive or troupe dlq discard"})
		})
	}
}
