package coordinator_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// publishOwn publishes an event of the coordinator's hop.
func (f *flow) publishOwn(event, key, headers string) {
	f.t.Helper()
	f.publishOf("order", event, key, headers)
}

// publishOf publishes an event of a hop that is consumed.
func (f *flow) publishOf(hop, event, key, headers string) {
	f.t.Helper()
	topic := f.name + "." + hop + ".events"
	if f.local {
		testkit.Wait(f.t, topic+" to be local", func() (is bool, err error) {
			return is, f.pool.QueryRow(f.t.Context(), "SELECT EXISTS (SELECT FROM troupe.local_topics WHERE topic = $1)", topic).Scan(&is)
		})
	}
	const publish = "INSERT INTO troupe.outbox (topic, key, type, payload, headers) VALUES ($1, $2, $3, '{}', $4)"
	_, err := f.pool.Exec(f.t.Context(), publish, topic, key, event, headers)
	require.NoError(f.t, err)
}

// TestAnEventOfTheOwnHopFindsASagaOfALaterVersion: the running process begins sagas of a version that reads no event of the coordinator's
// own hop, and a version that was stored later reads one: an event that its step awaits, or the answer to a command.
func TestAnEventOfTheOwnHopFindsASagaOfALaterVersion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ step, key, headers string }{
		"an awaited event": {`"success":[{"event":"Signed","hop":"order"}]`, "a-1", `{"ce_outcome": "success"}`},
		// of another key, since the command waits for a member that handles it, and other local work of its key too
		"an answer": {`"command":{"hop":"order","type":"Sign","input":{"id":"data.id"}},"success":[{"event":"Signed"}],"irreversible":"nothing"`, "a-2",
			`{"ce_outcome": "success", "ce_sagaid": "approval/a-1", "ce_sagastep": "sign", "ce_sagaoperation": "forward"}`},
	} {
		for _, local := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, local %v", name, local), func(t *testing.T) {
				t.Parallel()
				f := &flow{t: t, name: testkit.Flow(t), local: local, pool: testkit.Database(t)}
				f.coordinator(approval(t, "approval", "Approved", false))
				f.c = f.notRunning(parsed(t, `{"saga":"approval","version":2,"key":"id","data":{"id":"string"},"steps":[{"name":"sign",`+c.step+`}]}`))
				id := f.begun("approval", map[string]any{"id": "a-1"})
				f.publishOwn("Signed", c.key, c.headers)
				f.completes(id)
			})
		}
	}
}

// TestAnEventOfTheOwnHopIsADeadLetterIfTheSagaCannotBeRead: after a rollback, the older program cannot read the definition of the saga that
// awaits the event.
func TestAnEventOfTheOwnHopIsADeadLetterIfTheSagaCannotBeRead(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.insertUnreadable("approval", saga.Running, `{"saga":"approval","version":9,"key":"id","data":{"id":"string"},"novelty":1,
 "steps":[{"name":"sign","success":[{"event":"Signed","hop":"order"}]}]}`)
	f.coordinator(approval(t, "approval", "Approved", false))
	f.publishOwn("Signed", "o-9", `{"ce_outcome": "success"}`)
	testkit.Wait(t, "a dead letter", func() (is bool, err error) {
		return is, f.pool.QueryRow(t.Context(), "SELECT count(*) = 1 FROM troupe.dead_letters WHERE message_type = 'Signed'").Scan(&is)
	})
}

// Signed is an event that the service handles itself, too.
type Signed struct{}

// TestAnEventThatTheServiceHandlesTooFindsASagaOfALaterVersion: a later version awaits the event, and no longer handles it itself. The version was
// stored while this process ran, or before it began, as when it begins again during a rollout or after a rollback.
func TestAnEventThatTheServiceHandlesTooFindsASagaOfALaterVersion(t *testing.T) {
	t.Parallel()
	const header = `{"ce_outcome": "success", "ce_sagaid": "approval/a-1", "ce_sagastep": "sign", "ce_sagaoperation": "forward"}`
	for handler, hop := range map[string]string{"On[order]": "order", "On[desk]": "desk", "OnAll": "desk"} {
		for name, c := range map[string]struct{ step, key, headers string }{
			"an awaited event": {`"success":[{"event":"Signed","hop":"` + hop + `"}]`, "a-1", `{"ce_outcome": "success"}`},
			"an answer":        {`"command":{"hop":"` + hop + `","type":"Sign","input":{"id":"data.id"}},"success":[{"event":"Signed"}],"irreversible":"nothing"`, "a-2", header},
		} {
			for when, before := range map[string]bool{"while the process runs": false, "before the process began": true} {
				t.Run(fmt.Sprintf("%s, stored %s, %s", name, when, handler), func(t *testing.T) {
					t.Parallel()
					f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
					_, err := f.pool.Exec(t.Context(), "CREATE TABLE signed (key text)")
					require.NoError(t, err)
					later := parsed(t, `{"saga":"approval","version":2,"key":"id","data":{"id":"string"},"steps":[{"name":"sign",`+c.step+`}]}`)
					if before {
						f.c = f.notRunning(later)
					}
					p := f.participant("order", f.pool)
					earlier := parsed(t, `{"saga":"approval","version":1,"key":"id","data":{"id":"string"},
 "steps":[{"name":"pay","command":{"hop":"payment","type":"Pay"},"success":[{"event":"Paid"}],"irreversible":"a test"}]}`)
					_, err = coordinator.New(t.Context(), coordinator.Config{
						Participant: p, Pool: f.pool, Definitions: []*saga.Definition{earlier}, Log: testkit.Logger(t),
					})
					require.NoError(t, err)
					sign := func(ctx context.Context, tx pgx.Tx, m envelope.Message) error {
						_, err := tx.Exec(ctx, "INSERT INTO signed (key) VALUES ($1)", string(m.Key))
						return err
					}
					if handler == "OnAll" {
						participant.OnAll(p, []topics.Hop{topics.MustHop(f.name, hop)}, func(ctx context.Context, tx pgx.Tx, ms []participant.Taken) error {
							return sign(ctx, tx, ms[0].Message)
						})
					} else {
						participant.On(p, topics.MustHop(f.name, hop), func(ctx context.Context, tx pgx.Tx, e participant.Event[Signed]) error {
							return sign(ctx, tx, e.Message)
						})
					}
					f.run(p, f.pool)
					f.publishOf("order", "Noted", "unread", `{"ce_outcome": "success"}`)
					if !before {
						f.c = f.notRunning(later)
					}
					id := f.begun("approval", map[string]any{"id": "a-1"})
					f.publishOf("order", "Noted", "unread-2", `{"ce_outcome": "success"}`) // the process learns the later version by it
					testkit.Wait(t, "the process to know the version", func() (is bool, err error) {
						return is, f.pool.QueryRow(t.Context(), "SELECT count(*) = 1 AND bool_and(status = 'done') FROM troupe.local_work WHERE key = 'unread-2'").Scan(&is)
					})
					f.publishOf(hop, "Signed", c.key, c.headers)
					f.completes(id)
					var signed int
					require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT count(*) FROM signed WHERE key = $1", c.key).Scan(&signed))
					require.Equal(t, 1, signed, "the service's own handler has run once")
				})
			}
		}
	}
}
