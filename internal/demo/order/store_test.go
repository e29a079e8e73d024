package order

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/decisions"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/saga/coordinator"
)

func TestEveryStatementFitsTheTables(t *testing.T) {
	t.Parallel()
	s := newService(t)
	conn, err := s.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, sql := range []string{insertSQL, selectSQL, findKeySQL, viewSQL, historySQL} {
		text, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn.Conn(), sql, nil)
		require.NoError(t, err)
		_, err = conn.Conn().Prepare(t.Context(), "", text)
		require.NoError(t, err, sql)
	}
	_, err = conn.Exec(t.Context(), schema)
	require.NoError(t, err, "the schema can be applied again")
}

// Version was incremented and never compared.
func TestAnOrderThatWasChangedMeanwhileIsNotOverwritten(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.mustPlace(t, newOrder("o-1"))
	early, _ := play(t)
	s.take(t, "o-1", charged)
	before, outbox := s.mustRead(t, "o-1"), readOutbox(t, s.pool)

	late, _ := saga.Decide(parsed(t), early, paymentRefused, early.StartedAt)
	err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		store := decisions.NewPostgres(tx, "order.order", "order.order")
		return store.Save(t.Context(), []decisions.Change{{Was: early.Version, State: late}})
	})
	require.ErrorIs(t, err, coordinator.ErrConflict)
	require.Equal(t, before, s.mustRead(t, "o-1"))
	require.Equal(t, outbox, readOutbox(t, s.pool), "and nothing was sent")
}

// Charge, reserve and schedule were sent under one key.
func TestEveryStepAndOperationHasItsOwnIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.mustPlace(t, newOrder("o-1"))
	s.take(t, "o-1", charged, reserved, shippingRefused, released, refunded)
	require.Equal(t, []sent{
		{"order.payment.commands", "o-1", "troupe.order.ChargePayment", "", "order/o-1/payment/forward/0", "payment", "forward"},
		{"order.inventory.commands", "o-1", "troupe.order.ReserveStock", "", "order/o-1/inventory/forward/0", "inventory", "forward"},
		{"order.shipping.commands", "o-1", "troupe.order.ShipOrder", "", "order/o-1/shipping/forward/0", "shipping", "forward"},
		{"order.inventory.commands", "o-1", "troupe.order.ReleaseStock", "", "order/o-1/inventory/compensate/0", "inventory", "compensate"},
		{"order.payment.commands", "o-1", "troupe.order.RefundPayment", "", "order/o-1/payment/compensate/0", "payment", "compensate"},
	}, readOutbox(t, s.pool), "what tells the customer is local here: it has left")
}

// The customer was notified by a call outside the transaction. Here the notification fails, and so the order does not
// end.
func TestTheCustomerIsNotifiedInTheTransactionThatEndsTheOrder(t *testing.T) {
	t.Parallel()
	s := running(t)
	_, err := s.pool.Exec(t.Context(), `
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '23514'; END $$;
		CREATE TRIGGER deaf BEFORE INSERT ON troupe.outbox FOR EACH ROW
		  WHEN (NEW.type IN ('troupe.order.OrderCompleted', 'troupe.order.OrderCancelled')) EXECUTE FUNCTION refuse()`)
	require.NoError(t, err)
	s.mustPlace(t, newOrder("o-1"))
	s.take(t, "o-1", charged, reserved, shipped)
	s.mustPlace(t, newOrder("o-2"))
	s.take(t, "o-2", paymentRefused)
	for id, state := range map[string]string{"o-1": "shipping_exhausted", "o-2": "payment_exhausted"} {
		v := s.mustRead(t, id)
		require.Equal(t, []string{"parked", state}, []string{v.Status, v.State}, "the answer was given up with all that followed from it")
		require.Nil(t, v.EndedAt)
		require.Contains(t, *v.Reason, "not now")
	}
	_, err = s.pool.Exec(t.Context(), "DROP TRIGGER deaf ON troupe.outbox")
	require.NoError(t, err)
	s.take(t, "o-1", shipped)
	s.take(t, "o-2", paymentRefused)
	require.Equal(t, "completed", s.mustRead(t, "o-1").Status)
	require.Equal(t, "compensated", s.mustRead(t, "o-2").Status)
	require.Equal(t, []string{"troupe.order.OrderCompleted success", "troupe.order.OrderCancelled failure"}, told(t, s))
}

// told returns the events for customers, which are local work.
func told(t *testing.T, s *onStage) []string {
	t.Helper()
	rows, err := s.pool.Query(t.Context(), `
		SELECT type || ' ' || (headers ->> 'ce_outcome') FROM troupe.local_work
		WHERE topic = 'order.order.events' AND type <> 'troupe.Exhausted' ORDER BY position`)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return all
}

func TestDuplicateAndUnknownEventsChangeNothing(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.mustPlace(t, newOrder("o-1"))
	s.take(t, "o-1", charged)
	before, outbox := s.mustRead(t, "o-1"), readOutbox(t, s.pool)
	s.send(t, "o-1", charged, refunded, shipped, exhausted("payment", envelope.Forward))
	s.send(t, "o-404", charged)
	s.settled(t)
	require.Equal(t, before, s.mustRead(t, "o-1"))
	require.Equal(t, outbox, readOutbox(t, s.pool))
	require.Zero(t, s.count(t, "troupe.dead_letters"))
}

func TestHistoryHasEveryMoment(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.mustPlace(t, newOrder("o-1"))
	s.take(t, "o-1", charged, exhausted("inventory", envelope.Forward))
	v := s.mustRead(t, "o-1")
	require.Equal(t, "parked", v.Status)
	require.Contains(t, *v.Reason, "gave up after 8 attempts: no route")

	s.take(t, "o-1", reserved, shipped)
	v = s.mustRead(t, "o-1")
	require.Equal(t, "completed", v.Status)
	require.NotNil(t, v.EndedAt)
	var history []string
	last := 0
	for _, e := range v.History {
		require.GreaterOrEqual(t, e.Version, last)
		last = e.Version
		history = append(history, e.What+" "+e.Step)
	}
	require.Equal(t, v.Version, last)
	require.Equal(t, []string{
		"SagaStarted ", "StepStarted payment", "StepCompleted payment", "StepStarted inventory", "StepExhausted inventory", "SagaParked ",
		"StepCompleted inventory", "SagaResumed ", "StepStarted shipping", "StepCompleted shipping", "SagaCompleted ",
	}, history)
}

// The same answer concurrently, three times: one of them is decided on.
func TestAnswersAtOnceAreDecidedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	s := running(t)
	s.mustPlace(t, newOrder("o-1"))
	s.send(t, "o-1", charged, charged, charged)
	s.settled(t)
	require.Equal(t, "inventory_intent", s.mustRead(t, "o-1").State)
	require.Len(t, readOutbox(t, s.pool), 2)
}
