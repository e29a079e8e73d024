package shipping

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/envelope"
	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/messages"
	"github.com/troupe-go/troupe/participant"
	"github.com/troupe-go/troupe/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func depot(cfg demo.Config) testkit.StageConfig {
	return testkit.StageConfig{
		Hop: hop, SQL: schema,
		Handlers: func(_ *testkit.Stage, p *participant.Participant) { service{cfg}.register(p) },
	}
}

func ship(s *testkit.Stage, id, customer string) envelope.Message {
	return s.Command(id, messages.ShipOrder{OrderID: id, CustomerID: customer, Title: 7, Quantity: 2})
}

var shipments = testkit.Query("SELECT shipment_id, order_id, customer_id, title, quantity FROM shipments")

func requireShipments(t *testing.T, s *testkit.Stage, want ...string) {
	t.Helper()
	got, err := shipments(t.Context(), s.Pool)
	require.NoError(t, err)
	require.Equal(t, append([]string{}, want...), got)
}

func TestWhereNothingCanBeDeliveredIsRefused(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, depot(demo.Config{}))
	_, err := s.Pool.Exec(t.Context(), "INSERT INTO undeliverable VALUES ('c-2', 'no road')")
	require.NoError(t, err)
	near, far := ship(s, "o-1", "c-1"), ship(s, "o-2", "c-2")
	s.Send(near, far)
	require.Equal(t, messages.OrderShipped{OrderID: "o-1", ShipmentID: "shp-o-1"},
		testkit.Await[messages.OrderShipped](s, near).Body)
	require.Equal(t, messages.ShippingRefused{OrderID: "o-2", Reason: "cannot deliver: no road"},
		testkit.Await[messages.ShippingRefused](s, far).Body)
	requireShipments(t, s, "shp-o-1 o-1 c-1 7 2")
}

func TestADuplicateUnderAnotherIDIsSentOnce(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, depot(demo.Config{}))
	first := ship(s, "o-1", "c-1")
	again := first
	again.ID = envelope.NewID()
	s.Send(first, again)
	answer := testkit.Await[messages.OrderShipped](s, first)
	require.Equal(t, answer.Body, testkit.Await[messages.OrderShipped](s, again).Body)
	requireShipments(t, s, "shp-o-1 o-1 c-1 7 2")
}

func TestFailRefuses(t *testing.T) {
	t.Parallel()
	s := testkit.NewStage(t, depot(demo.Config{Fail: demo.Fail{"shipping": 1}}))
	m := ship(s, "o-1", "c-1")
	s.Send(m)
	require.Equal(t, "lost on the way", testkit.Await[messages.ShippingRefused](s, m).Body.Reason)
	requireShipments(t, s)
}

func TestAnOrderIsSentOnceWhereverItsCommandIsInterrupted(t *testing.T) {
	t.Parallel()
	testkit.CrashAtEveryStep(t, depot(demo.Config{}), func(s *testkit.Stage) envelope.Message {
		return ship(s, "o-1", "c-1")
	}, shipments)
}
