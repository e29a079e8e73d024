package saga_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/moments"
	"github.com/troupe-go/troupe/saga"
)

// TestASagaWithTooManyCompensationsAtOnceGoesOnByTheNextAnswer: the compensations of 40 items have 80 MiB together. The limit parks the saga, and
// each answer to a compensation that was sent resumes it: no operator has to retry an item.
func TestASagaWithTooManyCompensationsAtOnceGoesOnByTheNextAnswer(t *testing.T) {
	for _, items := range []int{40, 1} {
		d, err := saga.Parse([]byte(`{"saga":"flight","version":1,"key":"id","data":{"id":"string","passengers":"any","order":"string"},"steps":[
	 {"name":"seat","forEach":{"list":"data.passengers","as":"passenger","max":100},
	  "command":{"hop":"seats","type":"Book"},"timeout":"1h","success":[{"event":"Booked"}],
	  "compensation":{"command":{"hop":"seats","type":"Release","input":{"order":"data.order"}},"success":[{"event":"Released"}]}},
	 {"name":"pay","needs":["seat"],"command":{"hop":"bank","type":"Pay"},"timeout":"1h","success":[{"event":"Paid"}],"failure":[{"event":"Refused"}],
	  "irreversible":"it is the last"}]}`))
		require.NoError(t, err)
		passengers := make([]any, items)
		for i := range passengers {
			passengers[i] = int64(i)
		}
		fields := map[string]any{"id": "1", "passengers": passengers, "order": strings.Repeat("x", 2<<20)}
		s, fx := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: fields}, time.Unix(2000, 0))
		require.Len(t, fx.Commands, items)
		var sent []saga.Send
		apply := func(c saga.Send, hop, typ, outcome string) {
			e := saga.Event{Kind: saga.Answered, Hop: hop, Type: typ, Outcome: outcome, Step: c.Step, Operation: c.Operation}
			s, fx = saga.Decide(d, s, e, time.Unix(2001, 0))
			sent = append(sent, fx.Commands...)
		}
		for _, c := range fx.Commands {
			apply(c, "seats", "Booked", "success")
		}
		require.Len(t, sent, 1)
		apply(sent[0], "bank", "Refused", "failure")
		for n := 1; n < len(sent); n++ {
			require.Empty(t, saga.Stuck(d, s), "after %d of %d answers", n-1, len(sent)-1)
			apply(sent[n], "seats", "Released", "success")
		}
		require.Equal(t, saga.Compensated, s.Status, s.Reason)
		require.Len(t, sent, items+1)
	}
}

// Optional items that were not answered in time while the saga was parked are compensated when it is resumed, all of them at once.
func TestASagaWithTooManyCompensationsOfOptionalItemsGoesOnByTheNextAnswer(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"flight","version":1,"key":"id","data":{"id":"string","passengers":"any","order":"string"},"steps":[
	 {"name":"seat","optional":true,"forEach":{"list":"data.passengers","as":"passenger","max":100},
	  "command":{"hop":"seats","type":"Book"},"timeout":"1h","success":[{"event":"Booked"}],
	  "compensation":{"command":{"hop":"seats","type":"Release","input":{"order":"data.order"}},"success":[{"event":"Released"}]}},
	 {"name":"pay","command":{"hop":"bank","type":"Pay"},"timeout":"2h","success":[{"event":"Paid"}],"irreversible":"it is the last"}]}`))
	require.NoError(t, err)
	passengers := make([]any, 40)
	for i := range passengers {
		passengers[i] = int64(i)
	}
	fields := map[string]any{"id": "1", "passengers": passengers, "order": strings.Repeat("x", 2<<20)}
	now := time.Unix(2000, 0)
	s, _ := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: fields}, now)
	gaveUp := saga.Event{Kind: saga.Answered, Hop: "bank", Type: "troupe.Exhausted", Outcome: "exhausted", Step: "pay", Operation: "forward"}
	s, _ = saga.Decide(d, s, gaveUp, now)
	require.Equal(t, saga.Parked, s.Status)
	now = now.Add(time.Hour)
	for _, due := range s.Deadlines {
		s, _ = saga.Decide(d, s, saga.Event{Kind: saga.Fired, Deadline: due.Name, Keep: true}, now)
	}
	s, fx := saga.Decide(d, s, saga.Event{Kind: saga.ActRetry, Step: "pay"}, now)
	sent := fx.Commands
	tolerated := make(map[string]int)
	count := func() {
		for _, m := range fx.Moments {
			if m.What == moments.StepTolerated {
				tolerated[m.Step]++
			}
		}
	}
	count()
	for n := 0; n < len(sent); n++ {
		require.Empty(t, saga.Stuck(d, s), "after %d of %d answers", n, len(sent))
		e := saga.Event{Kind: saga.Answered, Hop: "seats", Type: "Released", Outcome: "success", Step: sent[n].Step, Operation: sent[n].Operation, Epoch: sent[n].Epoch}
		if sent[n].Operation == "forward" {
			e.Hop, e.Type = "bank", "Paid"
		}
		s, fx = saga.Decide(d, s, e, now)
		sent = append(sent, fx.Commands...)
		count()
	}
	require.Equal(t, saga.Completed, s.Status, s.Reason)
	require.Len(t, sent, 41)
	require.Len(t, tolerated, 40)
	for step, n := range tolerated {
		require.Equal(t, 1, n, step)
	}
}
