package coordinator_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// insertUnreadable inserts the saga o-9 of a type. This program cannot read its definition, as after a rollback from a newer program. If text is
// "", the database does not have the definition.
func (f *flow) insertUnreadable(of string, status saga.Status, text string) {
	f.t.Helper()
	if text != "" {
		_, err := f.pool.Exec(f.t.Context(), "INSERT INTO troupe.saga_definitions (hash, saga, version, definition) VALUES ('newer', $1, 9, $2)", of, text)
		require.NoError(f.t, err)
	}
	_, err := f.pool.Exec(f.t.Context(), `
		INSERT INTO troupe.sagas (id, saga, key, hop, consumer_group, definition, version, status, steps, state, started_at)
		VALUES ($1 || '/o-9', $1, 'o-9', $2, $2, 'newer', 1, $3, '', jsonb_build_object('saga', $1::text, 'key', 'o-9', 'definition', 'newer', 'version', 1,
			'status', $3::text, 'data', '{}'::jsonb, 'steps', '[]'::jsonb, 'started_at', '2026-11-01T00:00:00Z'), now())`,
		of, f.name+".order", string(status))
	require.NoError(f.t, err)
}

func TestACoordinatorBeginsAlthoughItCannotReadTheDefinitionOfASaga(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"of a newer program": `{"saga":"order","version":9,"key":"id","data":{"id":"string"},"novelty":1}`,
		"lost":               "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newHops(t, true)
			f.insertUnreadable("order", saga.Running, text)
			f.c = f.coordinator(order(t))
			f.await(f.start("o-1"), saga.Completed)
		})
	}
}

func TestASagaThatCannotBeReadKeepsNoOtherFromBeingMoved(t *testing.T) {
	t.Parallel()
	f := newHops(t, true)
	f.c = f.notRunning(order(t))
	f.start("o-1")
	f.insertUnreadable("order", saga.Running, "")
	f.start("o-99")
	obstacles := make(map[string]string)
	require.NoError(t, f.desk().Migrate(t.Context(), sagadesk.Migration{To: withInsurance(t), Actor: "ann", Reason: "insure"}, func(m sagadesk.Move) error {
		obstacles[m.ID] = m.Obstacle
		return nil
	}))
	require.Equal(t, map[string]string{"order/o-1": "", "order/o-9": "definition newer is not stored", "order/o-99": ""}, obstacles)
}

// TestASagaEndsAlthoughTheNextOneForItsLockCannotBeRead: the next one is woken, by whichever program can read it.
func TestASagaEndsAlthoughTheNextOneForItsLockCannotBeRead(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	d := parsed(t, `{"saga":"transfer","version":1,"key":"id","data":{"id":"string","account":"string"},"lock":"data.account",
 "steps":[{"name":"approval","success":[{"event":"Signed","hop":"desk"}],"timeout":"24h"}]}`)
	f.process(d)
	f.handled("Signed", "nobody")
	f.c = f.notRunning(d)
	id := f.begun("transfer", map[string]any{"id": "t-1", "account": "a-1"})
	f.insertUnreadable("transfer", saga.Waiting, "")
	_, err := f.pool.Exec(t.Context(), "INSERT INTO troupe.saga_locks (name, saga_id) VALUES ('transfer/a-1', 'transfer/o-9')")
	require.NoError(t, err)
	f.publishEvent("Signed", "t-1")
	f.completes(id)
	testkit.Wait(t, "the next saga to be woken", func() (is bool, err error) {
		const woken = "SELECT EXISTS (SELECT FROM troupe.dead_letters WHERE key = 'o-9' AND message_type = 'troupe.Wake')"
		return is, f.pool.QueryRow(t.Context(), woken).Scan(&is)
	})
}

// TestNoEventOfASagaThatCannotBeReadIsLost: only the newer definition, of a saga under way, awaits the event. It was stored before this
// process began, or later.
func TestNoEventOfASagaThatCannotBeReadIsLost(t *testing.T) {
	t.Parallel()
	const newer = `{"saga":"transfer","version":9,"key":"id","data":{"id":"string","account":"string"},"novelty":1,"stash":"2h",
 "steps":[{"name":"consent","success":[{"event":"Consented","hop":"desk","by":{"variable":"account","field":"form"}}],"timeout":"24h"}],
 "cancel":{"events":[{"event":"Withdrawn","hop":"desk"}]}}`
	d := parsed(t, `{"saga":"transfer","version":1,"key":"id","data":{"id":"string"},
 "steps":[{"name":"approval","success":[{"event":"Signed","hop":"desk"}],"timeout":"24h"}]}`)
	for name, later := range map[string]bool{"stored before": false, "stored later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
			if !later {
				f.insertUnreadable("transfer", saga.Running, newer)
			}
			f.process(d)
			f.handled("Signed", "nobody")
			if later {
				f.insertUnreadable("transfer", saga.Running, newer)
			}
			const associate = "INSERT INTO troupe.saga_associations (saga, variable, value, saga_id) VALUES ('transfer', 'account', 'f-1', 'transfer/o-9')"
			_, err := f.pool.Exec(t.Context(), associate)
			require.NoError(t, err)
			f.publishEvent("Consented", "x-1")
			f.publishEvent("Withdrawn", "o-9")
			f.handled("Withdrawn", "o-10") // its saga has not started
			testkit.Wait(t, "two dead letters", func() (is bool, err error) {
				const dead = "SELECT count(*) = 2 FROM troupe.dead_letters WHERE message_type IN ('Consented', 'Withdrawn')"
				return is, f.pool.QueryRow(t.Context(), dead).Scan(&is)
			})
			f.waitCount("the event before its saga", 1, `SELECT count(*) FROM troupe.saga_stash
				WHERE value = 'o-10' AND event ->> 'type' = 'Withdrawn' AND expires_at > now() + interval '100 minutes'`)
		})
	}
}

// TestAPlanEndsWithTheErrorOfTheDatabase: an error that is not about the saga is not an obstacle of it.
func TestAPlanEndsWithTheErrorOfTheDatabase(t *testing.T) {
	t.Parallel()
	f := newHops(t, true)
	f.c = f.notRunning(order(t))
	f.start("o-1")
	f.insertUnreadable("order", saga.Running, "")
	ctx, cancel := context.WithCancel(t.Context())
	var planned []string
	err := f.desk().Plan(ctx, sagadesk.Migration{To: withInsurance(t)}, func(m sagadesk.Move) error {
		planned = append(planned, m.ID)
		cancel() // the definition of the next one is read from the database
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"order/o-1"}, planned)
}
