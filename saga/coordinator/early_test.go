package coordinator_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// trip begins by an event, and compensates its first step if the second one is refused.
const trip = `{"saga":"trip","version":1,"key":"id","data":{"id":"string"},"start":[{"hop":"shop","event":"Ordered","set":{"id":"event.id"}}],
 "steps":[
  {"name":"hotel","command":{"hop":"hotel","type":"Book"},"success":[{"event":"Booked"}],"timeout":"1h","compensation":{"command":{"hop":"hotel","type":"Cancel"},"success":[{"event":"Cancelled"}],"timeout":"1h"}},
  {"name":"car","needs":["hotel"],"command":{"hop":"car","type":"Rent"},"success":[{"event":"Rented"}],"failure":[{"event":"Refused"}],"timeout":"1h","irreversible":"cheap"}]}`

// answer inserts an answer for a local flow.
func (f *flow) answer(id, hop, event, step, operation, outcome string) {
	f.t.Helper()
	const answer = `
INSERT INTO troupe.outbox (topic, key, type, payload, headers)
VALUES ($1, 'o-1', $2, '{}', jsonb_build_object('ce_sagaid', $3::text, 'ce_sagastep', $4::text,
        'ce_sagaoperation', $5::text, 'ce_outcome', $6::text, 'ce_idempotencykey', $3 || '/' || $4 || '/' || $5 || '/0'))`
	_, err := f.pool.Exec(f.t.Context(), answer, f.name+"."+hop+".events", event, id, step, operation, outcome)
	require.NoError(f.t, err)
}

func (f *flow) count(sql string, args ...any) (n int) {
	f.t.Helper()
	require.NoError(f.t, f.pool.QueryRow(f.t.Context(), sql, args...).Scan(&n))
	return n
}

func (f *flow) waitCount(what string, want int, sql string, args ...any) {
	f.t.Helper()
	testkit.Wait(f.t, what, func() (bool, error) {
		if n := f.count(sql, args...); n != want {
			return false, fmt.Errorf("%d", n)
		}
		return true, nil
	})
}

// TestAnswersThatComeBeforeTheirSagaAreTriedAgain gives a coordinator the answers before the event that begins the saga, the last
// one first.
func TestAnswersThatComeBeforeTheirSagaAreTriedAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		refused bool
		status  saga.Status
	}{"completed": {false, saga.Completed}, "compensated": {true, saga.Compensated}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
			f.c = f.coordinator(parsed(t, trip))
			early := 2
			if test.refused {
				f.answer("trip/o-1", "hotel", "Cancelled", "hotel", "compensate", "success")
				f.answer("trip/o-1", "car", "Refused", "car", "forward", "failure")
				early = 3
			} else {
				f.answer("trip/o-1", "car", "Rented", "car", "forward", "success")
			}
			f.answer("trip/o-1", "hotel", "Booked", "hotel", "forward", "success")
			f.waitCount("all answers to wait", early, "SELECT count(*) FROM troupe.deadlines WHERE name = 'retry-event'")
			_, err := f.pool.Exec(t.Context(), `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, 'o-1', 'Ordered', '{"id": "o-1"}')`,
				f.name+".shop.events")
			require.NoError(t, err)
			f.waitCount("the saga to end", 1, "SELECT count(*) FROM troupe.sagas WHERE id = 'trip/o-1' AND status = $1", string(test.status))
			require.Zero(t, f.count("SELECT count(*) FROM troupe.deadlines"))
			require.Zero(t, f.count("SELECT count(*) FROM troupe.dead_letters"))
		})
	}
}

// TestAnAnswerForNoSagaOfOursIsNotTriedAgain checks an answer to another coordinator, and one that is days old.
func TestAnAnswerForNoSagaOfOursIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	f := newHops(t, false)
	f.c = f.coordinator(parsed(t, trip))
	cl, err := kgo.NewClient(kgo.SeedBrokers(testkit.Kafka(t)...))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	answer := func(id string) *kgo.Record {
		return &kgo.Record{Topic: f.name + ".car.events", Key: []byte("o-1"), Value: []byte("{}"), Headers: []kgo.RecordHeader{
			{Key: "ce_id", Value: []byte(id)}, {Key: "ce_source", Value: []byte("car")}, {Key: "ce_type", Value: []byte("Rented")},
			{Key: "ce_outcome", Value: []byte("success")}, {Key: "ce_sagaid", Value: []byte(id)}, {Key: "ce_sagastep", Value: []byte("car")},
			{Key: "ce_sagaoperation", Value: []byte("forward")}, {Key: "content-type", Value: []byte("application/json")},
		}}
	}
	old := answer("trip/o-1")
	old.Timestamp = old.Timestamp.AddDate(2020, 0, 0)
	testkit.Topics(t, cl, 2, f.name+".car.events")
	require.NoError(t, cl.ProduceSync(t.Context(), old, answer("voyage/o-1"), answer("trip/o-2")).FirstErr())
	f.waitCount("the answers to be read", 3, "SELECT count(*) FROM troupe.inbox")
	require.Equal(t, 1, f.count("SELECT count(*) FROM troupe.deadlines WHERE scope LIKE 'trip/o-2/%'"))
	require.Equal(t, 1, f.count("SELECT count(*) FROM troupe.deadlines"))
}

// TestAnAnswerToASagaThatExistsIsTriedAgainHoweverOldItIs restores an old backup: an answer of last month is read before the answer
// after which its saga sends the command again. The hop does not answer again.
func TestAnAnswerToASagaThatExistsIsTriedAgainHoweverOldItIs(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), pool: testkit.Database(t)}
	f.c = f.coordinator(parsed(t, trip))
	cl, err := kgo.NewClient(kgo.SeedBrokers(testkit.Kafka(t)...))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	testkit.Topics(t, cl, 2, f.name+".shop.events", f.name+".car.events", f.name+".hotel.events")
	publish := func(r *kgo.Record) { t.Helper(); require.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr()) }
	answer := func(hop, event string) *kgo.Record {
		r := f.ordered("o-1", hop+"-1", "o-1", time.Now().AddDate(0, -1, 0))
		r.Topic, r.Headers[2].Value = f.name+"."+hop+".events", []byte(event)
		for name, value := range map[string]string{"outcome": "success", "sagaid": "trip/o-1", "sagastep": hop, "sagaoperation": "forward"} {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "ce_" + name, Value: []byte(value)})
		}
		return r
	}
	publish(f.ordered("o-1", "order-1", "order-1", time.Now()))
	f.waitCount("the saga to begin", 1, "SELECT count(*) FROM troupe.sagas")
	publish(answer("car", "Rented"))
	f.waitCount("the answer to wait", 1, "SELECT count(*) FROM troupe.deadlines WHERE name = 'retry-event'")
	testkit.Wait(t, "the hundredth try", func() (bool, error) {
		tag, err := f.pool.Exec(t.Context(), `
UPDATE troupe.deadlines SET payload = convert_to(jsonb_set(convert_from(payload, 'UTF8')::jsonb, '{tries}', '100')::text, 'UTF8')
WHERE name = 'retry-event' AND fired_at IS NULL`)
		return tag.RowsAffected() == 1, err
	})
	f.waitCount("another try", 1, `
SELECT count(*) FROM troupe.deadlines WHERE name = 'retry-event' AND convert_from(payload, 'UTF8')::jsonb ->> 'tries' = '101'`)
	publish(answer("hotel", "Booked"))
	f.waitCount("the car to be rented", 1, "SELECT count(*) FROM troupe.sagas WHERE steps = 'car'")
	_, err = f.pool.Exec(t.Context(), "UPDATE troupe.deadlines SET due_at = now() WHERE name = 'retry-event'") // 10 minutes are too long for a test
	require.NoError(t, err)
	f.waitCount("the saga to end", 1, "SELECT count(*) FROM troupe.sagas WHERE status = 'completed'")
}

// TestAnOldAnswerToASagaThatARestoreHasLostIsTriedAgain restores a backup of two days ago: the answer of a saga that began since is read
// before the event that begins the saga.
func TestAnOldAnswerToASagaThatARestoreHasLostIsTriedAgain(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), pool: testkit.Database(t)}
	f.c = f.coordinator(parsed(t, trip))
	cl, err := kgo.NewClient(kgo.SeedBrokers(testkit.Kafka(t)...))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	testkit.Topics(t, cl, 2, f.name+".shop.events", f.name+".hotel.events")
	publish := func(r *kgo.Record) { t.Helper(); require.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr()) }
	const sagas = "SELECT count(*) FROM troupe.sagas"
	publish(f.ordered("o-0", "order-0", "order-0", time.Now()))
	f.waitCount("a saga to begin", 1, sagas)
	_, err = f.pool.Exec(t.Context(), "UPDATE troupe.sagas SET started_at = started_at - interval '3 days'")
	require.NoError(t, err)
	booked := f.ordered("o-1", "hotel-1", "o-1", time.Now().AddDate(0, 0, -2))
	booked.Topic, booked.Headers[2].Value = f.name+".hotel.events", []byte("Booked")
	for name, value := range map[string]string{"outcome": "success", "sagaid": "trip/o-1", "sagastep": "hotel", "sagaoperation": "forward"} {
		booked.Headers = append(booked.Headers, kgo.RecordHeader{Key: "ce_" + name, Value: []byte(value)})
	}
	publish(booked)
	f.waitCount("the answer to wait", 1, "SELECT count(*) FROM troupe.deadlines WHERE name = 'retry-event'")
	publish(f.ordered("o-1", "order-1", "order-1", time.Now().AddDate(0, 0, -2)))
	f.waitCount("the saga to have the answer", 1, sagas+" WHERE id = 'trip/o-1' AND steps = 'car'")
}

// TestASagaWhoseDatabaseWasSetBackEnds lets a saga end over Kafka, and sets its database back to before it began. The answers are
// read before the event that begins it. The hops do nothing twice.
func TestASagaWhoseDatabaseWasSetBackEnds(t *testing.T) {
	t.Parallel()
	f := newHops(t, false)
	f.set(f.refuse, "o-1 inventory/forward", "sold out")
	f.c = f.coordinator(parsed(t, `{"saga":"trip","version":1,"key":"id","data":{"id":"string","payment":"string"},
 "start":[{"hop":"shop","event":"Ordered","set":{"id":"event.id"}}],
 "steps":[
  {"name":"pay","command":{"hop":"payment","type":"ChargePayment"},"success":[{"event":"PaymentCharged","set":{"payment":"event.payment_id"}}],"timeout":"1h",
   "compensation":{"command":{"hop":"payment","type":"RefundPayment"},"success":[{"event":"PaymentRefunded"}],"timeout":"1h"}},
  {"name":"reserve","needs":["pay"],"command":{"hop":"inventory","type":"ReserveStock"},"success":[{"event":"StockReserved"}],
   "failure":[{"event":"StockRefused"}],"timeout":"1h","irreversible":"cheap"}]}`))
	cl, err := kgo.NewClient(kgo.SeedBrokers(testkit.Kafka(t)...))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	began := time.Now() // it is in the ids of the commands
	ordered := func() *kgo.Record { return f.ordered("o-1", "order-1", "order-1", began) }
	testkit.Topics(t, cl, 2, f.name+".shop.events")
	answers := testkit.Consume(t, testkit.Kafka(t), f.name+".payment.events", f.name+".inventory.events")
	commands := testkit.Consume(t, testkit.Kafka(t), f.name+".payment.commands", f.name+".inventory.commands")
	require.NoError(t, cl.ProduceSync(t.Context(), ordered()).FirstErr())
	const ended = "SELECT count(*) FROM troupe.sagas WHERE id = 'trip/o-1' AND status = 'compensated'"
	f.waitCount("the saga to be compensated", 1, ended)

	given := answers.WaitN(3)
	ids := idsOf(commands.WaitN(3))
	_, err = f.pool.Exec(t.Context(), `DELETE FROM troupe.sagas; DELETE FROM troupe.saga_events; DELETE FROM troupe.deadlines;
		DELETE FROM troupe.outbox; DELETE FROM troupe.answers; DELETE FROM troupe.inbox; DELETE FROM troupe.inbox_recent`)
	require.NoError(t, err)
	for _, r := range given {
		again := kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp}
		require.NoError(t, cl.ProduceSync(t.Context(), &again).FirstErr())
	}
	f.waitCount("the answers to wait", 3, "SELECT count(*) FROM troupe.deadlines WHERE name = 'retry-event'")
	require.NoError(t, cl.ProduceSync(t.Context(), ordered()).FirstErr())
	f.waitCount("the saga to be compensated again", 1, ended)
	again := idsOf(commands.WaitN(6)[3:])
	require.True(t, slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(again, id) }), "the first command has its id again")
	require.Equal(t, []string{"payment/forward", "payment/compensate"}, f.effects("o-1"))
}

func idsOf(rs []*kgo.Record) (ids []string) {
	for _, r := range rs {
		for _, h := range r.Headers {
			if h.Key == "ce_id" {
				ids = append(ids, string(h.Value))
			}
		}
	}
	return ids
}

// ordered returns the event that begins a trip.
func (f *flow) ordered(key, id, correlation string, at time.Time) *kgo.Record {
	return &kgo.Record{
		Topic: f.name + ".shop.events", Key: []byte(key), Value: fmt.Appendf(nil, `{"id":%q}`, key), Timestamp: at,
		Headers: []kgo.RecordHeader{
			{Key: "ce_id", Value: []byte(id)}, {Key: "ce_source", Value: []byte("shop")}, {Key: "ce_type", Value: []byte("Ordered")},
			{Key: "ce_correlationid", Value: []byte(correlation)}, {Key: "content-type", Value: []byte("application/json")},
		},
	}
}

// TestEarlyAnswersOfTwoHopsWithOneIDAreBothTriedAgain gives answers whose ids are both the order's, as services that are no
// participants may give them.
func TestEarlyAnswersOfTwoHopsWithOneIDAreBothTriedAgain(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), pool: testkit.Database(t)}
	f.c = f.coordinator(parsed(t, trip))
	cl, err := kgo.NewClient(kgo.SeedBrokers(testkit.Kafka(t)...))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	for hop, event := range map[string]string{"hotel": "Booked", "car": "Rented"} {
		r := f.ordered("o-1", "o-1", "o-1", time.Now())
		r.Topic = f.name + "." + hop + ".events"
		r.Headers = append(r.Headers[2:], kgo.RecordHeader{Key: "ce_id", Value: []byte("o-1")}, kgo.RecordHeader{Key: "ce_source", Value: []byte(hop)})
		for name, value := range map[string]string{"type": event, "outcome": "success", "sagaid": "trip/o-1", "sagastep": hop, "sagaoperation": "forward"} {
			r.Headers = slices.DeleteFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == "ce_"+name })
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "ce_" + name, Value: []byte(value)})
		}
		testkit.Topics(t, cl, 2, r.Topic)
		require.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr())
	}
	f.waitCount("the answers to be read", 2, "SELECT count(*) FROM troupe.inbox")
	require.Equal(t, 2, f.count("SELECT count(*) FROM troupe.deadlines WHERE name = 'retry-event'"))
}

// TestAnotherCommandAfterADatabaseWasSetBackHasAnIDOfItsOwn sets a saga's database back, and gives it the messages again in another
// order: the message that led to one command leads to another one now, of the same hop.
func TestAnotherCommandAfterADatabaseWasSetBackHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	f := newHops(t, false)
	f.c = f.coordinator(parsed(t, `{"saga":"trip","version":1,"key":"id","data":{"id":"string","vip":"bool"},
 "start":[{"hop":"shop","event":"Ordered","set":{"id":"event.id"}}],
 "steps":[
  {"name":"vip","success":[{"hop":"desk","event":"Vip","set":{"vip":"true"}}],"timeout":"1h"},
  {"name":"pay","command":{"hop":"payment","type":"ChargePayment"},"success":[{"event":"PaymentCharged"}],"timeout":"1h","irreversible":"cheap"},
  {"name":"fast","needs":["pay"],"when":"has(data.vip)","command":{"hop":"inventory","type":"ReserveStock"},"success":[{"event":"StockReserved"}],"timeout":"1h","irreversible":"cheap"},
  {"name":"slow","needs":["pay"],"when":"!has(data.vip)","command":{"hop":"inventory","type":"ReserveStock"},"success":[{"event":"StockReserved"}],"timeout":"1h","irreversible":"cheap"}]}`))
	cl, err := kgo.NewClient(kgo.SeedBrokers(testkit.Kafka(t)...))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	began := time.Now()
	publish := func(r *kgo.Record) { t.Helper(); require.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr()) }
	vip := func() *kgo.Record {
		r := f.ordered("o-1", "vip-1", "order-1", began)
		r.Topic, r.Headers[2].Value = f.name+".desk.events", []byte("Vip")
		return r
	}
	testkit.Topics(t, cl, 2, f.name+".shop.events", f.name+".desk.events")
	answers := testkit.Consume(t, testkit.Kafka(t), f.name+".payment.events")
	publish(vip())
	f.waitCount("the event to be kept", 1, "SELECT count(*) FROM troupe.saga_stash")
	publish(f.ordered("o-1", "order-1", "order-1", began))
	const done = "SELECT count(*) FROM troupe.sagas WHERE status = 'completed' AND state -> 'steps' @> jsonb_build_array(jsonb_build_object('name', $1::text, 'phase', 'done'))"
	f.waitCount("the fast step", 1, done, "fast")

	charged := answers.WaitN(1)[0]
	_, err = f.pool.Exec(t.Context(), `DELETE FROM troupe.sagas; DELETE FROM troupe.saga_events; DELETE FROM troupe.deadlines;
		DELETE FROM troupe.outbox; DELETE FROM troupe.answers; DELETE FROM troupe.inbox; DELETE FROM troupe.inbox_recent`)
	require.NoError(t, err)
	publish(f.ordered("o-1", "order-1", "order-1", began))
	publish(&kgo.Record{Topic: charged.Topic, Key: charged.Key, Value: charged.Value, Headers: charged.Headers, Timestamp: charged.Timestamp})
	f.waitCount("the slow step to begin", 1, "SELECT count(*) FROM troupe.sagas WHERE steps = 'vip slow'")
	publish(vip())
	f.waitCount("the slow step", 1, done, "slow")
	require.Equal(t, []string{"payment/forward", "inventory/forward", "inventory/forward"}, f.effects("o-1"))
}
