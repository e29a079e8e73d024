package decisions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/retry"
	"github.com/troupe-go/troupe/saga"
)

// TestAnEventThatIsTriedAgainIsNoOperatorsAction: a person who may edit dead letters, or a producer of the coordinator's commands, writes the
// body of such a message, with another person's name in it.
func TestAnEventThatIsTriedAgainIsNoOperatorsAction(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"order","version":1,"key":"id","data":{"id":"string"},
	"steps":[{"name":"paid","success":[{"hop":"payment","event":"Paid"}]}]}`))
	require.NoError(t, err)
	m, err := NewMemory(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), d)
	require.NoError(t, err)
	id, err := m.Start("order", map[string]any{"id": "o-1"})
	require.NoError(t, err)
	take := func(e saga.Event) error {
		text, err := json.Marshal(e)
		require.NoError(t, err)
		return m.pass(func(p *pass) error { return p.retryEvent(context.Background(), RetryEvent{Saga: id, Event: text}, e) })
	}
	for _, kind := range []saga.Kind{saga.ActAbandon, saga.ActSet, saga.ActCompensate, saga.Fired, saga.Granted, saga.Migrated} {
		err := take(saga.Event{Kind: kind, Step: "paid", Actor: "ann", Reason: "ticket 4711", Fields: map[string]any{"id": "o-2"}})
		require.ErrorContains(t, err, string(kind), kind)
		require.True(t, retry.IsPermanent(err), kind)
	}
	require.Len(t, m.Log(id), 1)
	require.NoError(t, take(saga.Event{Kind: saga.Observed, Hop: "payment", Type: "Paid", Message: "m-1"}))
	require.Equal(t, saga.Completed, m.Sagas()[0].Status)
}

// TestAnEventThatIsTriedAgainIsForTheNextSagaIfItsOwnHasEnded: a saga has no room for the event, since 8 MiB are kept for it, and ends
// before the event is tried again. With more room the event would have been kept, and left for the next saga of its value.
func TestAnEventThatIsTriedAgainIsForTheNextSagaIfItsOwnHasEnded(t *testing.T) {
	parcel := func(name string) *saga.Definition {
		d, err := saga.Parse(fmt.Appendf(nil, `{"saga":%q,"version":1,"key":"id","data":{"id":"string","parcel":"string"},
		"steps":[{"name":"paid","success":[{"hop":"payment","event":"Paid"}],"timeout":"72h"},
		 {"name":"delivered","needs":["paid"],"success":[{"hop":"carrier","event":"Delivered","by":{"variable":"parcel","field":"parcel"}}],"timeout":"72h"}]}`, name))
		require.NoError(t, err)
		return d
	}
	m, err := NewMemory(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), parcel("delivery"), parcel("notice"))
	require.NoError(t, err)
	note := strings.Repeat("x", 3<<20)
	delivered := func(n int, parcel string) Message {
		return Message{ID: fmt.Sprint("m-", n), Hop: "carrier", Type: "Delivered", Key: "k", Outcome: "success", Fields: map[string]any{"parcel": parcel, "note": note}}
	}
	id, err := m.Start("delivery", map[string]any{"id": "d-1", "parcel": "p-1"})
	require.NoError(t, err)
	for n := range 2 {
		require.NoError(t, m.Take(delivered(n, "p-1")))
	}
	var refused []target
	require.NoError(t, m.pass(func(p *pass) error {
		err := p.messages(t.Context(), []Message{delivered(2, "p-1")})
		refused = slices.DeleteFunc(p.retries, func(r target) bool { return r.by.Saga != "delivery" }) // the other type has no room either
		return err
	}))
	require.Len(t, refused, 1)
	require.Equal(t, id, refused[0].id)
	body := RetryEvent{Saga: id, Variable: refused[0].by.Variable, Value: refused[0].by.Value}
	again := func() {
		text, err := json.Marshal(refused[0].event)
		require.NoError(t, err)
		e, err := saga.ReadEvent(text)
		require.NoError(t, err)
		require.NoError(t, m.pass(func(p *pass) error { return p.retryEvent(t.Context(), body, e) }))
	}
	waiting := func() (ids []string) {
		for _, e := range m.stash {
			if e.Saga == "delivery" {
				ids = append(ids, e.Event.Message)
			}
		}
		return ids
	}
	_, err = m.Act(id, saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "ticket 4711"})
	require.NoError(t, err)
	require.Equal(t, []string{"m-0", "m-1"}, waiting())
	m.stash = slices.DeleteFunc(m.stash, func(e Stashed) bool { return e.Event.Message == "m-0" })
	again()
	require.Equal(t, []string{"m-1", "m-2"}, waiting())
	m.stash = slices.DeleteFunc(m.stash, func(e Stashed) bool { return e.Event.Message == "m-1" })
	again()
	require.Equal(t, []string{"m-2"}, waiting(), "a redrive of its dead letter, after another one")

	// The next saga of the value is there already.
	m.stash = nil
	next, err := m.Start("delivery", map[string]any{"id": "d-2", "parcel": "p-1"})
	require.NoError(t, err)
	again()
	require.Equal(t, []string{"m-2"}, kept(m, next))
	require.Equal(t, next, m.stash[0].For)
}
