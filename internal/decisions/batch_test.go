package decisions

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestAnEventBehindTheEndIsKeptAlsoInTheBatchThatEndsTheSaga: two events of one value come in one batch. The first one ends its saga, and the
// second one is for the next saga of that value.
func TestAnEventBehindTheEndIsKeptAlsoInTheBatchThatEndsTheSaga(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string"},
 "steps":[{"name":"arrival","success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"}]}`))
	require.NoError(t, err)
	arrived := func(id string) Message {
		return Message{ID: id, Hop: "door", Type: "Arrived", Key: "x", Fields: map[string]any{"guest": "g-1"}}
	}
	for name, batches := range map[string][][]Message{
		"one batch":   {{arrived("m-1"), arrived("m-2")}},
		"two batches": {{arrived("m-1")}, {arrived("m-2")}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := NewMemory(time.Unix(1000, 0), d)
			require.NoError(t, err)
			_, err = m.Start("visit", map[string]any{"id": "v-1", "guest": "g-1"})
			require.NoError(t, err)
			for _, batch := range batches {
				require.NoError(t, m.pass(func(p *pass) error { return p.messages(context.Background(), batch) }))
			}
			require.Equal(t, saga.Completed, m.Sagas()[0].Status)
			_, err = m.Start("visit", map[string]any{"id": "v-2", "guest": "g-1"})
			require.NoError(t, err)
			require.Equal(t, saga.Completed, m.Sagas()[1].Status)
		})
	}
}

// TestAnEventThatEndsItsSagaIsNotKeptForTheNextOne: the event finds its saga by two variables. It is used once.
func TestAnEventThatEndsItsSagaIsNotKeptForTheNextOne(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string","room":"string"},
 "steps":[{"name":"arrival","success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}},
  {"event":"Arrived","hop":"door","by":{"variable":"room","field":"room"}}],"timeout":"24h"}]}`))
	require.NoError(t, err)
	m, err := NewMemory(time.Unix(1000, 0), d)
	require.NoError(t, err)
	_, err = m.Start("visit", map[string]any{"id": "v-1", "guest": "g-1", "room": "r-1"})
	require.NoError(t, err)
	arrived := Message{ID: "m-1", Hop: "door", Type: "Arrived", Key: "x", Fields: map[string]any{"guest": "g-1", "room": "r-1"}}
	require.NoError(t, m.pass(func(p *pass) error { return p.messages(context.Background(), []Message{arrived}) }))
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
	_, err = m.Start("visit", map[string]any{"id": "v-2", "guest": "g-2", "room": "r-1"})
	require.NoError(t, err)
	require.Equal(t, saga.Running, m.Sagas()[1].Status)
}
