package coordinator_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/kafka"
	"github.com/troupe-go/troupe/relay"
	"github.com/troupe-go/troupe/testkit"
)

// paidFor awaits an event for an hour, and finds its saga by a value.
const paidFor = `{"saga":"order","version":1,"key":"id","data":{"id":"string","ref":"string"},
 "start":[{"hop":"shop","event":"Ordered","set":{"id":"event.id","ref":"event.ref"}}],
 "steps":[{"name":"money","success":[{"event":"Paid","hop":"bank","by":{"field":"ref","variable":"ref"}}],"timeout":"1h"}]}`

// TestAnAwaitedEventThatCameInTimeCountsAfterAnOutageOfTheCoordinator: the coordinator did not run when the time of a step was
// over. The event that the step awaits had come before that, and waits behind another one in Kafka when the coordinator begins.
func TestAnAwaitedEventThatCameInTimeCountsAfterAnOutageOfTheCoordinator(t *testing.T) {
	t.Parallel()
	for name, local := range map[string]bool{"kafka": false, "local": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &flow{t: t, name: testkit.Flow(t), local: local, pool: testkit.Database(t)}
			send := f.sender()
			stop := f.runUntil(parsed(t, paidFor))
			for _, id := range []string{"1", "2", "3"} {
				send("shop", "o-"+id, "Ordered", `{"id":"o-`+id+`","ref":"r-`+id+`"}`)
			}
			f.waitCount("the sagas to begin", 3, "SELECT count(*) FROM troupe.sagas WHERE steps = 'money'")
			stop()
			send("bank", "account", "Paid", `{"ref":"r-1"}`)
			send("bank", "account", "Paid", `{"ref":"r-2"}`)
			_, err := f.pool.Exec(t.Context(), anHourLate)
			require.NoError(t, err)

			require.NoError(t, pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "SELECT FROM troupe.sagas WHERE id = 'order/o-1' FOR UPDATE")
				require.NoError(t, err)
				f.runUntil(parsed(t, paidFor))
				f.waitCount("the events to wait for the saga", 1, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
				f.waitCount("another deadline to be fired", 1, "SELECT count(*) FROM troupe.deadlines WHERE name = 'retry-event' AND fired_at IS NOT NULL")
				require.Equal(t, 3, f.count("SELECT count(*) FROM troupe.deadlines WHERE name = 'saga' AND fired_at IS NULL"))
				return nil
			}))
			f.waitCount("all sagas to end", 3, "SELECT count(*) FROM troupe.sagas WHERE ended_at IS NOT NULL")
			require.Equal(t, 2, f.count("SELECT count(*) FROM troupe.sagas WHERE status = 'completed' AND key IN ('o-1', 'o-2')"))
			require.Equal(t, 1, f.count("SELECT count(*) FROM troupe.sagas WHERE status = 'compensated' AND key = 'o-3'"))
		})
	}
}

// TestALockIsGrantedWhileTimeoutsWait: after an outage of the coordinator, the time-outs of sagas wait until earlier events are
// handled. A saga that gets its lock meanwhile goes on.
func TestALockIsGrantedWhileTimeoutsWait(t *testing.T) {
	t.Parallel()
	const queue = `{"saga":"queue","version":1,"key":"id","data":{"id":"string","ref":"string"},"lock":"'one'",
 "start":[{"hop":"shop","event":"Queued","set":{"id":"event.id","ref":"event.ref"}}],
 "steps":[{"name":"money","success":[{"event":"Paid","hop":"bank","by":{"field":"ref","variable":"ref"}}],"timeout":"1h"}]}`
	f := &flow{t: t, name: testkit.Flow(t), pool: testkit.Database(t), timeout: 10 * time.Minute} // the event waits until the lock is granted
	send := f.sender()
	stop := f.runUntil(parsed(t, paidFor), parsed(t, queue))
	send("shop", "o-1", "Ordered", `{"id":"o-1","ref":"r-1"}`)
	send("shop", "q-1", "Queued", `{"id":"q-1","ref":"q-1"}`)
	f.waitCount("two sagas to begin", 2, "SELECT count(*) FROM troupe.sagas WHERE steps = 'money'")
	send("shop", "q-2", "Queued", `{"id":"q-2","ref":"q-2"}`)
	f.waitCount("a saga to wait for its lock", 1, "SELECT count(*) FROM troupe.sagas WHERE status = 'waiting'")
	stop()
	send("bank", "account", "Paid", `{"ref":"r-1"}`)
	require.NoError(t, pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SELECT FROM troupe.sagas WHERE id = 'order/o-1' FOR UPDATE")
		require.NoError(t, err)
		f.runUntil(parsed(t, paidFor), parsed(t, queue))
		f.waitCount("the event to wait for the saga", 1, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		send("bank", "queue", "Paid", `{"ref":"q-1"}`)
		f.waitCount("the lock to be granted", 1, "SELECT count(*) FROM troupe.sagas WHERE id = 'queue/q-2' AND status = 'running'")
		return nil
	}))
}

// TestAnAnswerWaitsForASagaThatTheBacklogBegins: a restored database has lost a saga, and it takes the coordinator more than an hour to come to the
// event that begins the saga again. The saga's answer, which is read first, has been tried for an hour.
func TestAnAnswerWaitsForASagaThatTheBacklogBegins(t *testing.T) {
	t.Parallel()
	for name, local := range map[string]bool{"kafka": false, "local": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &flow{t: t, name: testkit.Flow(t), local: local, pool: testkit.Database(t), timeout: 10 * time.Minute} // the start waits for the test
			send := f.sender()
			stop := f.runUntil(parsed(t, trip))
			send("shop", "o-1", "Ordered", `{"id":"o-1"}`)
			f.waitCount("a saga to begin", 1, "SELECT count(*) FROM troupe.sagas")
			stop()
			send("shop", "o-2", "Ordered", `{"id":"o-2"}`)

			require.NoError(t, pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(x'74727573'::integer, hashtext('trip//o-2'))") // as insert_sagas.sql
				require.NoError(t, err)
				f.runUntil(parsed(t, trip))
				f.waitCount("the start to wait", 1, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
				for _, id := range []string{"trip/o-2", "trip/o-3"} {
					_, err = f.pool.Exec(t.Context(), anHourTried, f.name+".order", id)
					require.NoError(t, err)
					f.waitCount("the answer to be tried", 0, "SELECT count(*) FROM troupe.deadlines WHERE name = 'retry-event'")
				}
				require.Equal(t, 1, f.count("SELECT count(*) FROM troupe.deadlines WHERE key = 'trip/o-2' AND fired_at IS NULL"))
				return nil
			}))
			f.waitCount("the saga to have the answer", 1, "SELECT count(*) FROM troupe.sagas WHERE id = 'trip/o-2' AND steps = 'car'")
			f.waitCount("the answer without a saga to be ignored", 0, "SELECT count(*) FROM troupe.deadlines WHERE key LIKE 'trip/%'")
		})
	}
}

// anHourTried adds the deadline of an answer to the saga $2, as it is after an hour. $1 is the coordinator's group.
const anHourTried = `
INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, key, type, headers, payload)
VALUES ($1, $2, 'retry-event', gen_random_uuid(), now(), $2, 'troupe.RetryEvent',
  jsonb_build_object('__troupe.deadline', $1 || '/retry-event', '__troupe.deadline.scope', $2::text, 'content-type', 'application/json'),
  convert_to(jsonb_build_object('saga', $2::text, 'tries', 16, 'event', jsonb_build_object('kind', 'answered', 'step', 'hotel',
    'operation', 'forward', 'outcome', 'success', 'hop', 'hotel', 'type', 'Booked', 'message', 'm-1'))::text, 'UTF8'))`

// anHourLate makes the time of each step have passed an hour ago, and adds a deadline of another name.
const anHourLate = `
UPDATE troupe.sagas SET wake_at = wake_at - interval '2 hours', started_at = started_at - interval '2 hours',
  state = jsonb_set(state, '{deadlines,0,at}', to_jsonb(clock_timestamp() - interval '1 hour'));
UPDATE troupe.deadlines SET due_at = due_at - interval '2 hours';
INSERT INTO troupe.deadlines (consumer_group, scope, name, id, due_at, key, type, headers, payload)
SELECT consumer_group, 'other', 'retry-event', gen_random_uuid(), clock_timestamp(), 'other', type, headers, payload FROM troupe.deadlines LIMIT 1`

// sender returns a function that sends an event of a hop: as a row of the outbox to a local flow, and else to Kafka. It runs a
// relay for the coordinator.
func (f *flow) sender() func(hop, key, event, payload string) {
	if f.local {
		return func(hop, key, event, payload string) {
			f.t.Helper()
			const insert = "INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, $3, convert_to($4, 'UTF8'))"
			_, err := f.pool.Exec(f.t.Context(), insert, f.name+"."+hop+".events", key, event, payload)
			require.NoError(f.t, err)
		}
	}
	r, err := relay.New(relay.Config{Source: relay.Poll, Pool: f.pool, Brokers: testkit.Kafka(f.t), Service: "order", Log: testkit.Logger(f.t)})
	require.NoError(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { require.NoError(f.t, r.Run(ctx)) })
	f.t.Cleanup(func() { cancel(); running.Wait() })
	cl, err := kgo.NewClient(kgo.SeedBrokers(testkit.Kafka(f.t)...))
	require.NoError(f.t, err)
	f.t.Cleanup(cl.Close)
	testkit.Topics(f.t, cl, 2, f.name+".shop.events", f.name+".bank.events")
	return func(hop, key, event, payload string) {
		f.t.Helper()
		require.NoError(f.t, cl.ProduceSync(f.t.Context(), kafka.Record(envelope.Message{
			Topic: f.name + "." + hop + ".events", Key: []byte(key), ID: envelope.NewID(), Type: event, Source: hop, Outcome: envelope.Success,
			ContentType: envelope.JSON, Payload: []byte(payload),
		})).FirstErr())
	}
}
