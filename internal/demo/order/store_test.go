package order

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/participant"
)

func TestEveryStatementFitsTheTables(t *testing.T) {
	t.Parallel()
	s := newService(t)
	conn, err := s.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, sql := range []string{insertSQL, selectSQL, updateSQL, findKeySQL, viewSQL, historySQL} {
		text, _, err := pgx.NamedArgs{}.RewriteQuery(t.Context(), conn.Conn(), sql, nil)
		require.NoError(t, err)
		_, err = conn.Conn().Prepare(t.Context(), "", text)
		require.NoError(t, err, sql)
	}
	_, err = conn.Exec(t.Context(), schema)
	require.NoError(t, err, "the schema can be applied again")
}

// Defect 4: version was counted up and never compared.
func TestDefect4AnOrderThatWasChangedMeanwhileIsNotOverwritten(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.mustPlace(t, newOrder("o-1"))
	early := s.mustRead(t, "o-1")
	s.mustTake(t, "o-1", charged)
	before, outbox := s.mustRead(t, "o-1"), readOutbox(t, s.pool)

	err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		return s.decide(t.Context(), tx, early, paymentRefused, "late")
	})
	require.ErrorIs(t, err, errConflict)
	require.Equal(t, before, s.mustRead(t, "o-1"))
	require.Equal(t, outbox, readOutbox(t, s.pool), "and nothing was sent")
}

// The same with both transactions open at once: the second waits for the first and then sees its version.
func TestTwoEventsAtOnceAreDecidedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.mustPlace(t, newOrder("o-1"))
	first, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.take(t.Context(), first, "o-1", charged, "first"))

	second := make(chan error, 1)
	go func() {
		second <- pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			return s.take(t.Context(), tx, "o-1", paymentRefused, "second")
		})
	}()
	require.NoError(t, first.Commit(t.Context()))
	if err := <-second; err != nil { // it had read before the commit
		require.ErrorIs(t, err, errConflict)
	}
	require.Equal(t, "inventory_intent", s.mustRead(t, "o-1").State)
	require.Len(t, readOutbox(t, s.pool), 2)
}

// Defect 9: charge, reserve and schedule went out under one key.
func TestDefect9EveryStepAndOperationHasItsOwnIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.mustPlace(t, newOrder("o-1"))
	s.mustTake(t, "o-1", charged, reserved, shippingRefused, released, refunded)
	require.Equal(t, []sent{
		{"order.payment.commands", "o-1", "ChargePayment", "", "o-1/payment/forward", "payment", "forward"},
		{"order.inventory.commands", "o-1", "ReserveStock", "", "o-1/inventory/forward", "inventory", "forward"},
		{"order.shipping.commands", "o-1", "ShipOrder", "", "o-1/shipping/forward", "shipping", "forward"},
		{"order.inventory.commands", "o-1", "ReleaseStock", "", "o-1/inventory/compensate", "inventory", "compensate"},
		{"order.payment.commands", "o-1", "RefundPayment", "", "o-1/payment/compensate", "payment", "compensate"},
		{"order.order.events", "o-1", "OrderCancelled", "failure", "", "", ""},
	}, readOutbox(t, s.pool))
}

// Defect 10: the customer was told by a call beside the transaction.
func TestDefect10TheCustomerIsNotifiedInTheTransactionThatEndsTheOrder(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for id, last := range map[string]any{"o-1": shipped, "o-2": nil} {
		s.mustPlace(t, newOrder(id))
		if last == nil {
			last = paymentRefused
		} else {
			s.mustTake(t, id, charged, reserved)
		}
		before := readOutbox(t, s.pool)
		crash := errors.New("crash before the commit")
		err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			require.NoError(t, s.take(t.Context(), tx, id, last, "last"))
			return crash
		})
		require.ErrorIs(t, err, crash)
		require.Equal(t, Running, s.mustRead(t, id).Status)
		require.Equal(t, before, readOutbox(t, s.pool), "nobody was told")

		s.mustTake(t, id, last)
		after := readOutbox(t, s.pool)
		require.Len(t, after, len(before)+1)
		told := after[len(before)]
		require.Equal(t, "order.order.events", told.Topic)
		if s.mustRead(t, id).Status == Completed {
			require.Equal(t, []string{"OrderCompleted", "success"}, []string{told.Type, told.Outcome})
		} else {
			require.Equal(t, []string{"OrderCancelled", "failure"}, []string{told.Type, told.Outcome})
		}
	}
}

func TestDuplicateAndUnknownEventsChangeNothing(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.mustPlace(t, newOrder("o-1"))
	s.mustTake(t, "o-1", charged)
	before, outbox := s.mustRead(t, "o-1"), readOutbox(t, s.pool)
	s.mustTake(t, "o-1", charged, refunded, shipped, exhausted{"payment", "forward", "late"})
	s.mustTake(t, "o-404", charged)
	require.Equal(t, before, s.mustRead(t, "o-1"))
	require.Equal(t, outbox, readOutbox(t, s.pool))
}

func TestHistoryHasOneRowPerVersion(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.mustPlace(t, newOrder("o-1"))
	s.mustTake(t, "o-1", charged, exhausted{"inventory", "forward", "gave up"})
	v, err := readView(t.Context(), s.pool, "o-1")
	require.NoError(t, err)
	require.Equal(t, Parked, v.Status)
	require.NotNil(t, v.EndedAt)
	require.Equal(t, "gave up", *v.Reason)

	s.mustTake(t, "o-1", reserved, shipped)
	v, err = readView(t.Context(), s.pool, "o-1")
	require.NoError(t, err)
	require.Equal(t, Completed, v.Status)
	require.Nil(t, v.Reason)
	require.Len(t, v.History, v.Version)
	for i, e := range v.History {
		require.Equal(t, i+1, e.Version)
	}
	require.Equal(t, entry{Version: 4, State: "inventory_intent", Status: Parked, Event: "event", At: v.History[3].At}, v.History[3])
}

// An order that cannot even be parked must not send this service round in circles: its own exhausted events come back.
func TestADeadLetterAboutADeadLetterGoesNoFurther(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.mustPlace(t, newOrder("o-1"))
	gaveUp := func(messageType string) error {
		return pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			return s.exhausted(t.Context(), tx, participant.Event[participant.Exhausted]{
				Body:    participant.Exhausted{Type: messageType, Handler: "order.payment/ChargePayment", Attempts: 8, Error: "no route"},
				Message: envelope.Message{Key: []byte("o-1"), SagaStep: "payment", SagaOperation: "forward"},
			})
		})
	}
	require.NoError(t, gaveUp("troupe.Exhausted"))
	require.Equal(t, Running, s.mustRead(t, "o-1").Status)
	require.NoError(t, gaveUp("troupe.order.ChargePayment"))
	o := s.mustRead(t, "o-1")
	require.Equal(t, Parked, o.Status)
	require.Equal(t, "order.payment/ChargePayment gave up after 8 attempts: no route", o.Reason)
}
