package decisions

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// memoryOf returns a Memory with the sagas of the definition in text.
func memoryOf(t testing.TB, text string) *Memory {
	t.Helper()
	d, err := saga.Parse([]byte(text))
	require.NoError(t, err)
	m, err := NewMemory(time.Unix(1000, 0), d)
	require.NoError(t, err)
	return m
}

// takeBatch decides on ms in one transaction.
func takeBatch(t testing.TB, m *Memory, ms ...Message) {
	t.Helper()
	require.NoError(t, m.pass(func(p *pass) error { return p.messages(context.Background(), ms) }))
}

// nextVersion returns the current definition of visits with change, as version 2. m knows it.
func nextVersion(t testing.TB, m *Memory, change func(*saga.Spec)) *saga.Definition {
	t.Helper()
	spec := m.definitions.Current("visit").Spec()
	spec.Version, spec.Steps = 2, slices.Clone(spec.Steps)
	change(&spec)
	next, err := saga.Define(spec)
	require.NoError(t, err)
	m.definitions.Add(next.Hash(), next)
	return next
}

// moveTo moves saga id to the definition to.
func moveTo(t testing.TB, m *Memory, id string, to *saga.Definition) {
	t.Helper()
	require.NoError(t, m.pass(func(p *pass) error {
		return p.move(context.Background(), id, to, saga.Event{Kind: saga.Migrated, To: to.Hash()})
	}))
}

// abandon ends saga id as an operator does.
func abandon(t testing.TB, m *Memory, id string) {
	t.Helper()
	_, err := m.Act(id, saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "wrong guest"})
	require.NoError(t, err)
}

func phases(s saga.State) (all []saga.Phase) {
	for _, st := range s.Steps {
		all = append(all, st.Phase)
	}
	return all
}

// kept returns the ids of the stashed messages that saga id may use, in their order.
func kept(m *Memory, id string) (ids []string) {
	for _, e := range m.stash {
		if e.For == "" || e.For == id {
			ids = append(ids, e.Event.Message)
		}
	}
	return ids
}

// visits is a definition whose sagas of one guest run one after the other, and keep Arrived until the room is reserved.
const visits = `{"saga":"visit","version":1,"key":"id","data":{"id":"string","guest":"string"}LOCK,"steps":[
 {"name":"room","command":{"hop":"rooms","type":"Reserve"},"success":[{"event":"Reserved"}],"timeout":"1h","irreversible":"it ends by itself"},
 {"name":"arrival","needs":["room"],"success":[{"event":"Arrived","hop":"door","by":{"variable":"guest","field":"guest"}}],"timeout":"24h"}]}`

func visit(t *testing.T, lock string) (m *Memory, start, arrive, reserve func(id string)) {
	t.Helper()
	d, err := saga.Parse([]byte(strings.Replace(visits, "LOCK", lock, 1)))
	require.NoError(t, err)
	return visitOf(t, d)
}

func visitOf(t *testing.T, d *saga.Definition) (m *Memory, start, arrive, reserve func(id string)) {
	t.Helper()
	m, err := NewMemory(time.Unix(1000, 0), d)
	require.NoError(t, err)
	start = func(id string) {
		_, err := m.Start("visit", map[string]any{"id": id, "guest": "g-1"})
		require.NoError(t, err)
	}
	arrive = func(id string) {
		require.NoError(t, m.Take(Message{ID: id, Hop: "door", Type: "Arrived", Key: "x", Fields: map[string]any{"guest": "g-1"}}))
	}
	reserve = func(id string) {
		require.NoError(t, m.Take(Message{ID: "r " + id, Hop: "rooms", Type: "Reserved", Key: id, Outcome: "success", SagaID: "visit/" + id, SagaStep: "room"}))
	}
	return m, start, arrive, reserve
}
