package order

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/outbox"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
	"github.com/troupe-go/troupe/testkit"
	"github.com/troupe-go/troupe/topics"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// onStage is the service without Kafka: the messages that it sends stay in the outbox, as JSON, and the answers of hops are local
// work.
type onStage struct {
	*service
	p *participant.Participant
}

func newService(t *testing.T) *onStage {
	t.Helper()
	pool := testkit.Database(t)
	_, err := pool.Exec(t.Context(), schema)
	require.NoError(t, err)
	p, err := participant.New(participant.Config{
		Pool: pool, Local: true, Hop: topics.MustHop("order", hop), Batch: 10, Log: testkit.Logger(t),
	})
	require.NoError(t, err)
	s, _, err := newOrchestrator(t.Context(), coordinator.Config{Participant: p, Pool: pool, Log: testkit.Logger(t)})
	require.NoError(t, err)
	return &onStage{s, p}
}

// running returns a service that handles answers until the test ends.
func running(t *testing.T) *onStage {
	t.Helper()
	s := newService(t)
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { require.NoError(t, s.p.Run(ctx)) })
	t.Cleanup(func() { stop(); done.Wait() })
	testkit.Wait(t, "the service to take answers", func() (bool, error) { return s.p.Ready() == nil, nil })
	return s
}

func newOrder(id string) Order {
	return Order{
		ID: id, CustomerID: "c-1", PlacedAt: time.Date(1997, 1, 31, 0, 0, 0, 0, time.UTC), Title: 7, Quantity: 2, AmountCents: 2933,
	}
}

func (s *onStage) mustPlace(t *testing.T, o Order) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error { return s.placeOrder(t.Context(), tx, o, "") }))
}

// send sends answers of the hops.
func (s *onStage) send(t *testing.T, id string, answers ...saga.Event) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		for _, a := range answers {
			body, err := json.Marshal(a.Fields)
			require.NoError(t, err)
			err = s.p.Outbox().Write(t.Context(), tx, outbox.Entry{
				Topic: topics.MustHop("order", a.Hop).Events(), Key: id, Type: a.Type, Payload: body, ContentType: envelope.JSON,
				Outcome: envelope.Outcome(a.Outcome), SagaID: "order/" + id, SagaStep: a.Step, SagaOperation: a.Operation,
			})
			require.NoError(t, err)
		}
		return nil
	}))
}

// take sends answers of the hops, each after the decision on the last one.
func (s *onStage) take(t *testing.T, id string, answers ...saga.Event) {
	t.Helper()
	for _, a := range answers {
		was := s.mustRead(t, id).Version
		s.send(t, id, a)
		testkit.Wait(t, fmt.Sprintf("%s to be decided on", a.Type), func() (bool, error) {
			return s.mustRead(t, id).Version > was, nil
		})
	}
}

// settled waits until every answer that was sent is handled.
func (s *onStage) settled(t *testing.T) {
	t.Helper()
	testkit.Wait(t, "every answer to be handled", func() (done bool, err error) {
		err = s.pool.QueryRow(t.Context(), "SELECT NOT EXISTS (SELECT FROM troupe.local_work WHERE status IN ('pending', 'in progress'))").Scan(&done)
		return done, err
	})
}

func (s *onStage) mustRead(t *testing.T, id string) view {
	t.Helper()
	v, err := readView(t.Context(), s.pool, id)
	require.NoError(t, err)
	return v
}

// sent holds the parts of an outbox row that these tests read.
type sent struct {
	Topic, Key, Type        string
	Outcome, IdempotencyKey string
	Step, Operation         string
}

func readOutbox(t *testing.T, pool *pgxpool.Pool) []sent {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		SELECT topic, key, type, coalesce(headers->>'ce_outcome', ''), coalesce(headers->>'ce_idempotencykey', ''),
		       coalesce(headers->>'ce_sagastep', ''), coalesce(headers->>'ce_sagaoperation', '')
		FROM troupe.outbox ORDER BY position`)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[sent])
	require.NoError(t, err)
	return all
}
