package coordinator_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// publishOwn publishes an event of the coordinator's hop.
func (f *flow) publishOwn(event, key, headers string) {
	f.t.Helper()
	topic := f.name + ".order.events"
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
