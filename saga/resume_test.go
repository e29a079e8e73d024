package saga_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestAnOperatorsValuesHaveTheLimitOfTheVariables: set, skip and resolve are refused if the variables would become too large.
func TestAnOperatorsValuesHaveTheLimitOfTheVariables(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"flight","version":1,"key":"id","data":{"id":"string","a":"string","b":"string"},"steps":[
	 {"name":"seat","command":{"hop":"seats","type":"Book"},"timeout":"1h","success":[{"event":"Booked","set":{"b":"event.b"}}],"irreversible":"cheap"}]}`))
	require.NoError(t, err)
	large := map[string]any{"b": strings.Repeat("x", 5<<20)}
	s, _ := history(t, d, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "1", "a": large["b"]}},
		saga.Event{Kind: saga.Fired, Deadline: "seat.timeout"})
	for _, kind := range []saga.Kind{saga.ActSet, saga.ActSkip, saga.ActResolve} {
		s.Steps[0].Phase = saga.Doubt
		e := action(kind, "seat")
		e.Fields = large
		_, fx := saga.Decide(d, s, e, time.Unix(2000, 0))
		require.Contains(t, fx.Refused, "more than 8 MiB", kind)
		e.Fields = map[string]any{"b": "short"}
		_, fx = saga.Decide(d, s, e, time.Unix(2000, 0))
		require.Empty(t, fx.Refused, kind)
	}
}

// TestASagaWithTooManyCommandsAtOnceGoesOnByATimeout: the answers to the commands that were sent do not come.
func TestASagaWithTooManyCommandsAtOnceGoesOnByATimeout(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"flight","version":1,"key":"id","data":{"id":"string","passengers":"any","order":"string"},"steps":[
	 {"name":"seat","forEach":{"list":"data.passengers","as":"passenger","max":100},"optional":true,
	  "command":{"hop":"seats","type":"Book","input":{"order":"data.order"}},"timeout":"1h","success":[{"event":"Booked"}],"irreversible":"cheap"}]}`))
	require.NoError(t, err)
	passengers := make([]any, 20)
	for i := range passengers {
		passengers[i] = int64(i)
	}
	begin := saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "1", "passengers": passengers, "order": strings.Repeat("x", 2<<20)}}
	for name, ends := range map[string]func(saga.Send) saga.Event{
		"timeout": func(c saga.Send) saga.Event { return saga.Event{Kind: saga.Fired, Deadline: c.Step + ".timeout"} },
		"given up": func(c saga.Send) saga.Event {
			return saga.Event{Kind: saga.Answered, Hop: "seats", Type: "troupe.Exhausted", Outcome: "exhausted", Step: c.Step, Operation: c.Operation}
		},
	} {
		s, fx := saga.Decide(d, saga.State{}, begin, time.Unix(2000, 0))
		require.Equal(t, saga.Parked, s.Status, name)
		sent := fx.Commands
		require.Less(t, len(sent), 20)
		for i := 0; i < len(sent); i++ {
			s, fx = saga.Decide(d, s, ends(sent[i]), time.Unix(int64(100_000*(i+1)), 0))
			require.Empty(t, fx.Ignored+fx.Refused, name)
			sent = append(sent, fx.Commands...)
		}
		require.Len(t, sent, 20, name)
		require.Equal(t, saga.Completed, s.Status, name)
	}
}

// TestAnEndThatCannotCompensateAnyMoreParksOnce: its pivot is done. An operator who resumes the saga has seen the condition.
func TestAnEndThatCannotCompensateAnyMoreParksOnce(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"order","version":1,"key":"id","data":{"id":"string","fraud":"bool"},"steps":[
	 {"name":"pay","pivot":true,"command":{"hop":"bank","type":"Pay"},"timeout":"1h","success":[{"event":"Paid","set":{"fraud":"event.fraud"}}]},
	 {"name":"ship","needs":["pay"],"command":{"hop":"store","type":"Ship"},"timeout":"1h","success":[{"event":"Shipped"}]}],
	 "ends":[{"when":"data.fraud","then":"compensate"}]}`))
	require.NoError(t, err)
	s, fx := history(t, d, begun, answer("pay", "forward", "success", "Paid", map[string]any{"fraud": true}))
	require.Equal(t, saga.Parked, s.Status)
	require.Contains(t, s.Reason, "there is no way back")
	require.Empty(t, fx.Commands)
	s, fx = saga.Decide(d, s, action(saga.ActResume, ""), time.Unix(2000, 0))
	require.Equal(t, saga.Running, s.Status, s.Reason)
	require.Equal(t, []string{"ship/forward"}, sent(fx))
	s, _ = saga.Decide(d, s, answer("ship", "forward", "success", "Shipped", nil), time.Unix(2001, 0))
	require.Equal(t, saga.Completed, s.Status)
}
