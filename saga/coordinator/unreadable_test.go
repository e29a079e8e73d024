package coordinator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// without is a Schemas without a schema for one type.
type without string

func (w without) FromValues(_ context.Context, name string, text []byte) (envelope.Encoded, error) {
	if name == string(w) {
		return envelope.Encoded{}, errors.New("there is no schema for " + name)
	}
	return envelope.Encoded{ContentType: envelope.JSON, Payload: text}, nil
}

func (w without) Values(_ context.Context, payload []byte) (name string, value any, err error) {
	value, err = saga.ReadFields(payload)
	return "", value, err
}

// An answer that cannot be read, and one after which the next command cannot be rendered, become dead letters of the
// coordinator's own hop. The saga does not stay running without progress: it is parked, with the reason.
func TestAnAnswerThatCannotBeDecidedParksItsSaga(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	p := f.participant("order", f.pool)
	parked := make(chan string, 10)
	var err error
	f.c, err = coordinator.New(t.Context(), coordinator.Config{
		Participant: p, Pool: f.pool, Definitions: []*saga.Definition{visitSaga(t)}, Schemas: without("TellGuest"), Log: testkit.Logger(t),
		Parked: func(s saga.State, reason string) { parked <- s.ID() },
	})
	require.NoError(t, err)
	stop := f.goOn(p)
	for key, payload := range map[string]string{"v-1": `{"slot": "9:15"`, "v-2": `{"slot": "9:15"}`} {
		id := f.startVisit(key)
		f.answerBook(id, key, payload)
		f.awaitParked(id)
	}
	stop()
	require.Len(t, parked, 2)
	for key, why := range map[string]string{"visit/v-1": "unexpected EOF", "visit/v-2": "there is no schema for TellGuest"} {
		require.Contains(t, f.reason(key), why)
	}
}

// TestAnEarlyAnswerThatCannotBeDecidedParksItsSaga: the answer came before its saga and is tried again. The message that the saga would send after it
// cannot be encoded. A command with the payload of such an answer parks no saga.
func TestAnEarlyAnswerThatCannotBeDecidedParksItsSaga(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	p, err := participant.New(participant.Config{
		Pool: f.pool, Hop: topics.MustHop(f.name, "order"), Local: true, UnknownTypeWait: -1, Log: testkit.Logger(t),
	})
	require.NoError(t, err)
	f.c, err = coordinator.New(t.Context(), coordinator.Config{
		Participant: p, Pool: f.pool, Definitions: []*saga.Definition{visitSaga(t)}, Schemas: without("TellGuest"), Log: testkit.Logger(t),
	})
	require.NoError(t, err)
	stop := f.goOn(p)
	other := f.startVisit("v-1")
	const made = `INSERT INTO troupe.outbox (topic, key, type, payload) VALUES ($1, $2, 'troupe.RetryEvent',
		'{"saga":"visit/v-1","event":{"kind":"answered","step":"book","operation":"forward","outcome":"success","hop":"hotel","type":"SlotBooked"}}')`
	_, err = f.pool.Exec(t.Context(), made, f.name+".order.commands", other)
	require.NoError(t, err)
	f.answerBook("visit/v-2", "v-2", `{"slot": "9:15"}`)
	f.waitCount("the answer to wait", 1, "SELECT count(*) FROM troupe.deadlines WHERE name = 'retry-event'")
	id := f.startVisit("v-2")
	f.awaitParked(id)
	f.waitCount("both dead letters", 2, "SELECT count(*) FROM troupe.dead_letters WHERE message_type = 'troupe.RetryEvent'")
	f.waitCount("their events to be handled", 2, "SELECT count(*) FROM troupe.local_work WHERE type = 'troupe.Exhausted' AND status = 'done'")
	stop()
	require.Contains(t, f.reason(id), "there is no schema for TellGuest")
	f.waitCount("the other saga to run", 1, "SELECT count(*) FROM troupe.sagas WHERE id = $1 AND status = 'running'", other)
}

// A process that begins no saga of the type decides for one that is under way. Its step reads no field of the answer.
func TestAnUnreadableAnswerParksASagaOfATypeThatTheProcessDoesNotBegin(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	spec := visitSaga(t).Spec()
	spec.Steps[0].Success[0].Set = nil
	old, err := saga.Define(spec)
	require.NoError(t, err)
	spec.Saga = "stay"
	next, err := saga.Define(spec)
	require.NoError(t, err)
	p := f.participant("order", f.pool)
	f.c, err = coordinator.New(t.Context(), coordinator.Config{Participant: p, Pool: f.pool, Definitions: []*saga.Definition{old}, Log: testkit.Logger(t)})
	require.NoError(t, err)
	id := f.startVisit("v-1")
	p = f.participant("order", f.pool)
	_, err = coordinator.New(t.Context(), coordinator.Config{Participant: p, Pool: f.pool, Definitions: []*saga.Definition{next}, Log: testkit.Logger(t)})
	require.NoError(t, err)
	stop := f.goOn(p)
	f.answerBook("visit/of-another-coordinator", "v-0", "{")
	f.answerBook(id, "v-1", "{")
	f.awaitParked(id)
	stop()
	require.Contains(t, f.reason(id), "unexpected EOF")
	var letters int
	require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT count(*) FROM troupe.dead_letters").Scan(&letters))
	require.Equal(t, 1, letters, "an answer to a saga that is not stored here is no dead letter")
}

// The text goes through the log, the stored state and a command, and is the reason of a refusal.
func TestASagaTakesBytesThatPostgresCannotStore(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	spec := visitSaga(t).Spec()
	spec.Steps[1].Command.Input = saga.Mapping{"slot": "data.slot"}
	spec.Steps[1].Failure = []saga.Answer{{Event: "GuestGone", Reason: "event.why"}}
	d, err := saga.Define(spec)
	require.NoError(t, err)
	told := make(chan string, 1)
	hotel := f.participant("hotel", f.pool)
	participant.Handle(hotel, func(context.Context, pgx.Tx, participant.Command[BookSlot]) (participant.Outcome, error) {
		return participant.Succeed(SlotBooked{"9\x0015\uFDD00"}), nil
	})
	participant.Handle(hotel, func(_ context.Context, _ pgx.Tx, c participant.Command[TellGuest]) (participant.Outcome, error) {
		told <- c.Body.Slot
		return participant.Refuse(GuestGone{"left\x00town"}), nil
	})
	f.run(hotel, f.pool)
	f.process(d)
	id := f.startVisit("v-1")
	require.Equal(t, "9\x0015\uFDD00", <-told)
	testkit.Wait(t, "the refusal", func() (is bool, err error) {
		return is, f.pool.QueryRow(t.Context(), "SELECT reason LIKE '%left%town%' FROM troupe.sagas WHERE id = $1 AND reason IS NOT NULL UNION ALL SELECT false LIMIT 1", id).Scan(&is)
	})
	g, err := f.desk().Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "9\x0015\uFDD00", g.State.Data["slot"])
	r, err := f.desk().Replay(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, r.Difference)
}

// The messages of visitSaga.
type (
	BookSlot   struct{}
	SlotBooked struct {
		Slot string `json:"slot"`
	}
	TellGuest struct {
		Slot string `json:"slot"`
	}
	GuestGone struct {
		Why string `json:"why"`
	}
)

// visitSaga returns a saga of two steps, of which the first one's answer sets a variable.
func visitSaga(t *testing.T) *saga.Definition {
	t.Helper()
	d, err := saga.Define(saga.Spec{
		Saga: "visit", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String, "slot": saga.String},
		Steps: []saga.Step{
			{
				Name: "book", Command: &saga.Command{Hop: "hotel", Type: "BookSlot"}, Timeout: saga.Duration(time.Hour),
				Success: []saga.Answer{{Event: "SlotBooked", Set: saga.Mapping{"slot": "event.slot"}}},
			},
			{
				Name: "tell", Needs: []string{"book"}, Command: &saga.Command{Hop: "hotel", Type: "TellGuest"},
				Timeout: saga.Duration(time.Hour), Success: []saga.Answer{{Event: "GuestTold"}},
			},
		},
	})
	require.NoError(t, err)
	return d
}

func (f *flow) startVisit(key string) (id string) {
	f.t.Helper()
	require.NoError(f.t, pgx.BeginFunc(f.t.Context(), f.pool, func(tx pgx.Tx) error {
		is, err := f.c.Start(f.t.Context(), tx, "visit", map[string]any{"id": key})
		id = is.ID
		return err
	}))
	return id
}

func (f *flow) answerBook(id, key, payload string) {
	f.t.Helper()
	const answer = `
INSERT INTO troupe.outbox (topic, key, type, payload, headers)
VALUES ($1, $2, 'SlotBooked', $3, jsonb_build_object('ce_sagaid', $4::text, 'ce_sagastep', 'book', 'ce_sagaoperation', 'forward',
        'ce_outcome', 'success', 'ce_idempotencykey', $4 || '/book/forward/0'))`
	_, err := f.pool.Exec(f.t.Context(), answer, f.name+".hotel.events", key, payload, id)
	require.NoError(f.t, err)
}

func (f *flow) awaitParked(id string) {
	f.t.Helper()
	testkit.Wait(f.t, id+" to be parked", func() (is bool, err error) {
		return is, f.pool.QueryRow(f.t.Context(), "SELECT EXISTS (SELECT FROM troupe.sagas WHERE id = $1 AND status = 'parked')", id).Scan(&is)
	})
}

func (f *flow) reason(id string) (reason string) {
	f.t.Helper()
	require.NoError(f.t, f.pool.QueryRow(f.t.Context(), "SELECT reason FROM troupe.sagas WHERE id = $1", id).Scan(&reason))
	return reason
}
