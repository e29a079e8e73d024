package coordinator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
)

// doneSteps returns the names of the steps of m's only saga that are done.
func doneSteps(m *decisions.Memory) (names []string) {
	for _, s := range m.Sagas()[0].Steps {
		if s.Phase == saga.Done {
			names = append(names, s.Name)
		}
	}
	return names
}

// TestAnEventIsTakenOnlyByTheStepThatItFindsTheSagaFor has two steps that await one type of event, each by another value.
func TestAnEventIsTakenOnlyByTheStepThatItFindsTheSagaFor(t *testing.T) {
	const first, second, byKey = `,"by":{"variable":"first","field":"parcel"}`, `,"by":{"variable":"second","field":"parcel"}`, ""
	for name, test := range map[string]struct {
		one, two, needs string
		events          [][2]string // key and parcel
		done            [][]string  // after each
	}{
		"side by side": {first, second, "", [][2]string{{"x", "p-1"}, {"x", "p-2"}}, [][]string{{"one"}, {"one", "two"}}},
		"one after the other": {first, second, `"needs":["one"],`, [][2]string{{"x", "p-1"}, {"x", "p-1"}, {"x", "p-2"}},
			[][]string{{"one"}, {"one"}, {"one", "two"}}},
		"the later one first":      {first, second, `"needs":["one"],`, [][2]string{{"x", "p-2"}, {"x", "p-1"}}, [][]string{nil, {"one", "two"}}},
		"by the key and a value":   {byKey, second, "", [][2]string{{"o-1", "p-9"}, {"x", "p-2"}}, [][]string{{"one"}, {"one", "two"}}},
		"by a value and the key":   {first, byKey, "", [][2]string{{"x", "p-1"}, {"o-1", "p-9"}}, [][]string{{"one"}, {"one", "two"}}},
		"by both":                  {first, byKey, "", [][2]string{{"o-1", "p-1"}}, [][]string{{"one", "two"}}},
		"a key that no text holds": {first, byKey, "", [][2]string{{"o-1\x00\xff", "p-1"}, {"o-1", "p-9"}}, [][]string{{"one"}, {"one", "two"}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := parsed(t, `{"saga":"parcels","version":1,"key":"id","data":{"id":"string","first":"string","second":"string"},"steps":[
				{"name":"one","success":[{"hop":"post","event":"Delivered"`+test.one+`}]},
				{"name":"two",`+test.needs+`"success":[{"hop":"post","event":"Delivered"`+test.two+`}]}]}`)
			m, err := decisions.NewMemory(noon, d)
			require.NoError(t, err)
			id, err := m.Start("parcels", map[string]any{"id": "o-1", "first": "p-1", "second": "p-2"})
			require.NoError(t, err)
			for i, e := range test.events {
				require.NoError(t, m.Take(decisions.Message{ID: string(rune('a' + i)), Hop: "post", Type: "Delivered", Key: e[0],
					Fields: map[string]any{"parcel": e[1]}}))
				require.Equal(t, test.done[i], doneSteps(m))
			}
			require.Equal(t, m.Sagas()[0], fold(t, d, m.Log(id)))
		})
	}
}

// TestAnEventOfAnEarlierVersionsLogIsTakenByEachStep replays a log that does not have the key of the event.
func TestAnEventOfAnEarlierVersionsLogIsTakenByEachStep(t *testing.T) {
	d := parsed(t, `{"saga":"parcels","version":1,"key":"id","data":{"id":"string","first":"string"},"steps":[
		{"name":"one","success":[{"hop":"post","event":"Delivered","by":{"variable":"first","field":"parcel"}}]},
		{"name":"two","success":[{"hop":"post","event":"Delivered"}]}]}`)
	s, _ := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1", "first": "p-1"}}, noon)
	s, _ = saga.Decide(d, s, saga.Event{Kind: saga.Observed, Hop: "post", Type: "Delivered"}, noon)
	require.Equal(t, saga.Completed, s.Status)
}

// TestEventsOfTwoHopsWithOneIDAreBothKept gives a saga events of two hops, whose ids are both the order's, before it awaits them.
func TestEventsOfTwoHopsWithOneIDAreBothKept(t *testing.T) {
	d := parsed(t, `{"saga":"order","version":1,"key":"id","data":{"id":"string"},"steps":[
		{"name":"open","success":[{"hop":"shop","event":"Opened"}]},
		{"name":"paid","needs":["open"],"success":[{"hop":"bank","event":"Paid"}]},
		{"name":"sent","needs":["open"],"success":[{"hop":"post","event":"Sent"}]}]}`)
	for name, early := range map[string]bool{"before the saga": false, "before the steps": true} {
		t.Run(name, func(t *testing.T) {
			m, err := decisions.NewMemory(noon, d)
			require.NoError(t, err)
			start := func() {
				_, err := m.Start("order", map[string]any{"id": "o-1"})
				require.NoError(t, err)
			}
			if early {
				start()
			}
			for hop, event := range map[string]string{"bank": "Paid", "post": "Sent"} {
				for range 2 {
					require.NoError(t, m.Take(decisions.Message{ID: "o-1", Hop: hop, Type: event, Key: "o-1"}))
				}
			}
			if !early {
				start()
			}
			require.NoError(t, m.Take(decisions.Message{ID: "o-1", Hop: "shop", Type: "Opened", Key: "o-1"}))
			require.Equal(t, []string{"open", "paid", "sent"}, doneSteps(m))
		})
	}
}

// TestASagasOwnAnswerIsNoAwaitedEventAlsoIfItWasStashed sets the variable by which the event finds the saga after the answer.
func TestASagasOwnAnswerIsNoAwaitedEventAlsoIfItWasStashed(t *testing.T) {
	d := parsed(t, `{"saga":"visit","version":1,"key":"id","data":{"id":"string","ref":"string"},"steps":[
		{"name":"pay","command":{"hop":"bank","type":"Charge"},"success":[{"event":"Charged"}],"irreversible":"cheap"},
		{"name":"look","needs":["pay"],"command":{"hop":"book","type":"Look"},"success":[{"event":"Looked","set":{"ref":"event.ref"}}],"irreversible":"cheap"},
		{"name":"again","needs":["look"],"success":[{"hop":"bank","event":"Charged","by":{"variable":"ref","field":"ref"}}]}]}`)
	m, err := decisions.NewMemory(noon, d)
	require.NoError(t, err)
	id, err := m.Start("visit", map[string]any{"id": "v-1"})
	require.NoError(t, err)
	answer := func(hop, event, step string) decisions.Message {
		return decisions.Message{ID: event, Hop: hop, Type: event, Key: "v-1", Outcome: "success", Fields: map[string]any{"ref": "r-1"},
			SagaID: id, SagaStep: step, SagaOperation: "forward"}
	}
	require.NoError(t, m.Take(answer("bank", "Charged", "pay")))
	require.NoError(t, m.Take(answer("book", "Looked", "look")))
	require.Equal(t, []string{"pay", "look"}, doneSteps(m))
	require.NoError(t, m.Take(decisions.Message{ID: "m-1", Hop: "bank", Type: "Charged", Key: "x", Fields: map[string]any{"ref": "r-1"}}))
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
}
