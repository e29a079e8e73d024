package saga_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestTheVariablesOfASagaHaveALimitOfBytes: a hop answers the items of a step with a megabyte each, and each decision reads all variables.
func TestTheVariablesOfASagaHaveALimitOfBytes(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"flight","version":1,"key":"id","data":{"id":"string","passengers":"any","seats":"any"},"steps":[
	 {"name":"seat","forEach":{"list":"data.passengers","as":"passenger","max":20},"command":{"hop":"seats","type":"Book"},"timeout":"1h",
	  "success":[{"event":"Booked","set":{"seats":"event.seat"}}],"irreversible":"cheap"}]}`))
	require.NoError(t, err)
	passengers := make([]any, 20)
	for i := range passengers {
		passengers[i] = fmt.Sprint(i)
	}
	s, _ := history(t, d, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "1", "passengers": passengers}})
	large := map[string]any{"seat": strings.Repeat("x", 1_000_000)}
	answered := 0
	for answered = range passengers {
		e := answer(fmt.Sprintf("seat[%d]", answered), "forward", "success", "Booked", large)
		if s, _ = saga.Decide(d, s, e, time.Unix(2000, 0)); s.Status == saga.Parked {
			break
		}
	}
	require.Equal(t, 8, answered)
	require.Contains(t, s.Reason, "more than 8 MiB")
}

// TestTheCommandsOfADecisionHaveALimitOfBytes: an order of two megabytes that each of 100 items sends took three gigabytes.
func TestTheCommandsOfADecisionHaveALimitOfBytes(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"flight","version":1,"key":"id","data":{"id":"string","passengers":"any","order":"any"},"steps":[
	 {"name":"seat","forEach":{"list":"data.passengers","as":"passenger","max":100},
	  "command":{"hop":"seats","type":"Book","input":{"order":"data.order"}},"timeout":"1h","success":[{"event":"Booked"}],"irreversible":"cheap"}]}`))
	require.NoError(t, err)
	passengers, order := make([]any, 100), make([]any, 100_000)
	for i := range passengers {
		passengers[i] = int64(i)
	}
	for i := range order {
		order[i] = int64(i)
	}
	started := saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "1", "passengers": passengers, "order": order}}
	s, fx := saga.Decide(d, saga.State{}, started, time.Unix(2000, 0))
	require.Equal(t, saga.Parked, s.Status)
	require.Contains(t, s.Reason, "more than 32 MiB")
	require.Less(t, len(fx.Commands), 50)
	started.Fields["order"] = order[:10_000]
	s, fx = saga.Decide(d, saga.State{}, started, time.Unix(2000, 0))
	require.Equal(t, saga.Running, s.Status, s.Reason)
	require.Len(t, fx.Commands, 100)
}

// TestASagaWithTooManyCommandsAtOnceGoesOnByTheNextAnswer: the limit parks it, and each answer to a command that was sent resumes it.
func TestASagaWithTooManyCommandsAtOnceGoesOnByTheNextAnswer(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"flight","version":1,"key":"id","data":{"id":"string","passengers":"any","order":"string"},"steps":[
	 {"name":"seat","forEach":{"list":"data.passengers","as":"passenger","max":100},
	  "command":{"hop":"seats","type":"Book","input":{"order":"data.order"}},"timeout":"1h","success":[{"event":"Booked"}],"irreversible":"cheap"}]}`))
	require.NoError(t, err)
	passengers := make([]any, 40)
	for i := range passengers {
		passengers[i] = int64(i)
	}
	fields := map[string]any{"id": "1", "passengers": passengers, "order": strings.Repeat("x", 2<<20)}
	s, fx := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: fields}, time.Unix(2000, 0))
	require.Equal(t, saga.Parked, s.Status)
	first := len(fx.Commands)
	require.Equal(t, 15, first)
	sent := fx.Commands
	for n, parked := range []saga.Status{saga.Parked, saga.Running} {
		c := sent[n]
		answer := saga.Event{Kind: saga.Answered, Hop: "seats", Type: "Booked", Outcome: "success", Step: c.Step, Operation: c.Operation, Epoch: c.Epoch}
		s, fx = saga.Decide(d, s, answer, time.Unix(2001, 0))
		require.Equal(t, parked, s.Status, s.Reason)
		sent = append(sent, fx.Commands...)
	}
	require.Len(t, sent, 40)
	for _, c := range sent[2:] {
		s, _ = saga.Decide(d, s, saga.Event{Kind: saga.Answered, Hop: "seats", Type: "Booked", Outcome: "success", Step: c.Step, Operation: c.Operation},
			time.Unix(2002, 0))
	}
	require.Equal(t, saga.Completed, s.Status)
}
