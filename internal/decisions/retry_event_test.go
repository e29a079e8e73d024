package decisions

import (
	"context"
	"encoding/json"
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
