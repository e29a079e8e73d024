package ambassador_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/ambassador"
	"github.com/troupe-go/troupe/internal/ce"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// TestSagaAndAmbassadorMeanTheSameMessages: neither package imports the other, so their types must match.
func TestSagaAndAmbassadorMeanTheSameMessages(t *testing.T) {
	t.Parallel()
	require.Equal(t, saga.CallType, ambassador.Call{}.MessageType())
	require.Equal(t, saga.CallDone, ambassador.CallDone{}.MessageType())
	require.Equal(t, saga.CallRefused, ambassador.CallRefused{}.MessageType())

	d, err := saga.Define(saga.Spec{
		Saga: "trip", Version: 1, Key: "trip_id",
		Data: map[string]saga.Type{"trip_id": saga.String, "nights": saga.Int, "reservation": saga.String},
		Steps: []saga.Step{{
			Name:    "hotel",
			Call:    &saga.Call{Hop: "hotel", Method: "POST", Endpoint: "/trips/{trip_id}/rooms", Body: saga.Mapping{"nights": "data.nights"}},
			Success: []saga.Answer{{Event: saga.CallDone, Set: saga.Mapping{"reservation": "event.body.id"}}},
			Failure: []saga.Answer{{Event: saga.CallRefused, Reason: "event.reason"}},
			Compensation: &saga.Compensation{
				Call: &saga.Call{Hop: "hotel", Method: "DELETE", Endpoint: "/trips/{trip_id}/rooms"},
			},
		}},
	})
	require.NoError(t, err)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	begun, fx := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"trip_id": "a/b ä", "nights": 2}}, now)
	require.Empty(t, fx.Refused)
	require.Len(t, fx.Commands, 1)
	payload, err := json.Marshal(fx.Commands[0].Fields)
	require.NoError(t, err)

	hotel := serve(t, func(w http.ResponseWriter, r *http.Request, before int) {
		if before == 0 {
			_, _ = w.Write([]byte(`{"id": "r-7"}`))
			return
		}
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"reason": "no room"}`))
	})
	s := stage(t, hotel.URL)
	answers := func(typ string) saga.State {
		m := call(s, "GET", "/", "")
		m.Payload = payload
		s.Send(m)
		var fields map[string]any
		e := saga.Event{Kind: saga.Answered, Step: "hotel", Operation: "forward", Hop: "hotel", Type: typ}
		if typ == saga.CallDone {
			a := testkit.Await[ambassador.CallDone](s, m)
			e.Outcome = string(a.Message.Outcome)
			require.NoError(t, json.Unmarshal(a.Message.Payload, &fields))
		} else {
			a := testkit.Await[ambassador.CallRefused](s, m)
			e.Outcome = string(a.Message.Outcome)
			require.NoError(t, json.Unmarshal(a.Message.Payload, &fields))
		}
		e.Fields = fields
		after, fx := saga.Decide(d, begun, e, now)
		require.Empty(t, fx.Refused)
		return after
	}

	completed := answers(saga.CallDone)
	require.Equal(t, "POST /trips/a%2Fb%20%C3%A4/rooms", hotel.requests()[0].Method+" "+hotel.requests()[0].RequestURI)
	require.Equal(t, `{"nights":2}`, hotel.said[0])
	require.Equal(t, saga.Completed, completed.Status)
	require.Equal(t, "r-7", completed.Data["reservation"])

	back := answers(saga.CallRefused)
	require.Equal(t, saga.Compensated, back.Status)
	require.Contains(t, back.Reason, "no room")
}

// TestACompensationInDoubtIsPosted: the service has executed the POST, and the response was lost.
func TestACompensationInDoubtIsPosted(t *testing.T) {
	t.Parallel()
	hotel := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	s := stage(t, hotel.URL, func(_ *ambassador.Config, p *participant.Config) {
		p.Retry = retry.Policy{Initial: time.Hour, Cap: time.Hour, Attempts: 5, NoJitter: true}
	})
	forward := call(s, "POST", "/trips/1/rooms", `{}`)
	s.Send(forward)
	testkit.Wait(t, "the call is held", waiting(s, "1 min"))
	back := call(s, "DELETE", "/trips/1/rooms", "")
	back.SagaID, back.SagaOperation, back.IdempotencyKey = forward.SagaID, "compensate", "c:1"
	back.Extra = []envelope.Header{{Key: ce.HeaderDoubt, Value: []byte("true")}}
	s.Send(back)
	require.Equal(t, http.StatusOK, done(s, back).Status)
	require.Equal(t, http.MethodDelete, hotel.requests()[1].Method)
}
