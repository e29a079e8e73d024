package coordinator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
)

// without is a Schemas without a schema for one type.
type without string

func (w without) FromJSON(_ context.Context, name string, text []byte) ([]byte, error) {
	if name == string(w) {
		return nil, errors.New("there is no schema for " + name)
	}
	return text, nil
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
	p := f.participant("order", f.pool)
	parked := make(chan string, 10)
	f.c, err = coordinator.New(t.Context(), coordinator.Config{
		Participant: p, Pool: f.pool, Definitions: []*saga.Definition{d}, Schemas: without("TellGuest"), Log: testkit.Logger(t),
		Parked: func(s saga.State, reason string) { parked <- s.ID() },
	})
	require.NoError(t, err)
	stop := f.goOn(p)
	for key, payload := range map[string]string{"v-1": `{"slot": "9:15"`, "v-2": `{"slot": "9:15"}`} {
		tx, err := f.pool.Begin(t.Context())
		require.NoError(t, err)
		is, err := f.c.Start(t.Context(), tx, "visit", map[string]any{"id": key})
		require.NoError(t, err)
		id := is.ID
		require.NoError(t, tx.Commit(t.Context()))
		const answer = `
INSERT INTO troupe.outbox (topic, key, type, payload, headers)
VALUES ($1, $2, 'SlotBooked', $3, jsonb_build_object('ce_sagaid', $4::text, 'ce_sagastep', 'book', 'ce_sagaoperation', 'forward',
        'ce_outcome', 'success', 'ce_idempotencykey', $4 || '/book/forward/0'))`
		_, err = f.pool.Exec(t.Context(), answer, f.name+".hotel.events", key, payload, id)
		require.NoError(t, err)
		testkit.Wait(t, id+" to be parked", func() (is bool, err error) {
			return is, f.pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM troupe.sagas WHERE id = $1 AND status = 'parked')", id).Scan(&is)
		})
	}
	stop()
	require.Len(t, parked, 2)
	for key, why := range map[string]string{"visit/v-1": "unexpected EOF", "visit/v-2": "there is no schema for TellGuest"} {
		var reason string
		require.NoError(t, f.pool.QueryRow(t.Context(), "SELECT reason FROM troupe.sagas WHERE id = $1", key).Scan(&reason))
		require.Contains(t, reason, why)
	}
}
