package coordinator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/testkit"
)

// sent returns the commands and events of a saga, in their order.
type sent struct{ ID, Type, Correlation, Causation string }

func (f *flow) sent(id string) []sent {
	f.t.Helper()
	rows, err := f.pool.Query(f.t.Context(), `
		SELECT id::text, type, headers ->> 'ce_correlationid', coalesce(headers ->> 'ce_causationid', '')
		FROM troupe.local_work
		WHERE headers ->> 'ce_sagaid' = $1 AND topic LIKE '%.commands'
		ORDER BY position`, id)
	require.NoError(f.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[sent])
	require.NoError(f.t, err)
	return all
}

// TestASagaIsOneFlow: all messages have the id of the first command as correlation id, also those after an operator's action
// from another process, which is the cause of the messages that follow from it.
func TestASagaIsOneFlow(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*flow, string, saga.Event) error{
		"from the desk": func(f *flow, id string, e saga.Event) error {
			_, err := f.desk().Act(t.Context(), id, e)
			return err
		},
		"in a transaction of one's own": func(f *flow, id string, e saga.Event) error {
			_, err := f.act(id, e)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFlow(t, true)
			f.await(f.start("o-0"), saga.Completed) // the topics are local from here on
			f.setFail("o-1 inventory/forward", errors.New("no forklift"))
			id := f.start("o-1")
			f.await(id, saga.Parked)
			f.setFail("o-1 inventory/forward", nil)
			require.NoError(t, act(f, id, annsEvent(saga.ActRetry, "inventory")))
			f.await(id, saga.Completed)
			all := f.sent(id)
			require.Len(t, all, 4)
			for _, m := range all {
				require.Equal(t, all[0].ID, m.Correlation, m.Type)
			}
			require.Equal(t, all[0].ID, f.state(id).Correlation)
			require.Empty(t, all[0].Causation)
			var action string
			require.NoError(t, f.pool.QueryRow(t.Context(),
				"SELECT event ->> 'message' FROM troupe.saga_events WHERE saga_id = $1 AND kind = 'retry'", id).Scan(&action))
			require.NotEmpty(t, action)
			require.Equal(t, "ReserveStock", all[2].Type)
			require.Equal(t, action, all[2].Causation)
			f.equalsItsLog(id)
		})
	}
}

// TestSagasOfOneFlowSendCommandsOfTheirOwn begins sagas by events of one correlation id, in one batch.
func TestSagasOfOneFlowSendCommandsOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, correlation := range []string{envelope.NewID(), "import 17"} {
		t.Run(correlation, func(t *testing.T) {
			t.Parallel()
			f := newHops(t, false)
			f.c = f.coordinator(parsed(t, trip))
			cl, err := kgo.NewClient(kgo.SeedBrokers(testkit.Kafka(t)...))
			require.NoError(t, err)
			t.Cleanup(cl.Close)
			testkit.Topics(t, cl, 2, f.name+".shop.events", f.name+".hotel.commands")
			commands := testkit.Consume(t, testkit.Kafka(t), f.name+".hotel.commands")
			require.NoError(t, cl.ProduceSync(t.Context(),
				f.ordered("o-1", envelope.NewID(), correlation, time.Now()), f.ordered("o-2", "order-2", correlation, time.Now())).FirstErr())
			ids := idsOf(commands.WaitN(2))
			require.NotEqual(t, ids[0], ids[1])
			require.NotContains(t, ids, correlation)
		})
	}
}

// TestSagasThatOneHandlerBeginsSendCommandsOfTheirOwn begins two sagas in a transaction of a handler, and two by Submit.
func TestSagasThatOneHandlerBeginsSendCommandsOfTheirOwn(t *testing.T) {
	t.Parallel()
	f := &flow{t: t, name: testkit.Flow(t), local: true, pool: testkit.Database(t)}
	f.c = f.coordinator(parsed(t, trip))
	ctx := envelope.WithCause(t.Context(), &envelope.Cause{Handler: "shop/Import", Message: envelope.Message{ID: envelope.NewID()}})
	require.NoError(t, pgx.BeginFunc(ctx, f.pool, func(tx pgx.Tx) error {
		for _, key := range []string{"o-1", "o-2"} {
			if _, err := f.c.Start(ctx, tx, "trip", map[string]any{"id": key}); err != nil {
				return err
			}
		}
		return nil
	}))
	for _, key := range []string{"o-3", "o-4"} {
		_, err := f.c.Submit(ctx, "trip", map[string]any{"id": key}, nil)
		require.NoError(t, err)
	}
	const booked = `SELECT count(DISTINCT id) FROM (SELECT id, type FROM troupe.outbox UNION ALL SELECT id, type FROM troupe.local_work) AS sent WHERE type = 'Book'`
	require.Equal(t, 4, f.count(booked))
}
