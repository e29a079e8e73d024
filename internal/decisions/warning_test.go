package decisions

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

// TestAWarningAboutADecisionIsLoggedAfterItsCommit checks the line about an answer that is ignored. A transaction that is rolled
// back runs again, and must not have logged it.
func TestAWarningAboutADecisionIsLoggedAfterItsCommit(t *testing.T) {
	d, err := saga.Parse([]byte(`{"saga":"order","version":1,"key":"id","data":{"id":"string"},
	"steps":[{"name":"pay","command":{"hop":"payment","type":"Pay"},"success":[{"event":"Paid"}],"timeout":"1h","irreversible":"cheap"}]}`))
	require.NoError(t, err)
	ds, err := NewDefinitions([]*saga.Definition{d})
	require.NoError(t, err)
	pool := testkit.Database(t)
	p, err := participant.New(participant.Config{Pool: pool, Hop: topics.MustHop(testkit.Flow(t), "order"), Local: true, Log: zerolog.Nop()})
	require.NoError(t, err)
	var log bytes.Buffer
	decider := New(Config{Participant: p, Definitions: ds, Log: zerolog.New(&log)})
	old := envelope.WithCause(t.Context(), &envelope.Cause{At: time.Now().Add(-2 * earlyAge)})
	answer := Message{ID: "m-1", Hop: "payment", Type: "Paid", Outcome: "success", SagaID: "order/o-1", SagaStep: "pay", SagaOperation: "forward"}
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	w := decider.Begin(tx)
	require.NoError(t, w.Messages(old, []Message{answer}))
	require.NoError(t, w.End(old, nil))
	require.Empty(t, log.String())
	require.NoError(t, tx.Commit(t.Context()))
	w.CallHooks()
	require.Contains(t, log.String(), "answer ignored")
}
