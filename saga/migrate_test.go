package saga_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// another returns the order's definition with changes.
func another(t testing.TB, change func(*saga.Spec)) *saga.Definition {
	t.Helper()
	spec := load(t, "testdata/order.saga.json").Spec()
	spec.Version++
	spec.Data = map[string]saga.Type{"note": saga.String}
	for name, is := range load(t, "testdata/order.saga.json").Spec().Data {
		spec.Data[name] = is
	}
	spec.Steps = append([]saga.Step{}, spec.Steps...)
	change(&spec)
	d, err := saga.Define(spec)
	require.NoError(t, err)
	return d
}

// withCheck adds the step check before the shipment, and lists the inventory first.
func withCheck(s *saga.Spec) {
	shipping := s.Steps[2]
	shipping.Needs = []string{"inventory", "check"}
	check := saga.Step{
		Name: "check", Needs: []string{"payment"}, Command: &saga.Command{Hop: "customs", Type: "Check"},
		Success: []saga.Answer{{Event: "Checked"}}, Irreversible: "it changes nothing",
	}
	s.Steps = []saga.Step{s.Steps[1], check, s.Steps[0], shipping}
}

func TestASagaGoesOnWithAnotherDefinition(t *testing.T) {
	r, _ := startOrder(t)
	r.pay()
	to := another(t, withCheck)
	before := r.s
	s, err := saga.Migrate(r.d, to, r.s)
	require.NoError(t, err)
	require.Equal(t, before, r.s, "the one that was given is as it was")
	require.Equal(t, to.Hash(), s.Definition)
	require.Equal(t, r.s.Version+1, s.Version)
	require.Equal(t, r.s.Deadlines, s.Deadlines)

	r.d, r.s = to, s
	require.Equal(t, []string{"check/forward"}, sent(r.reserve()))
	require.Equal(t, []string{"shipping/forward"}, sent(r.take(answer("check", "forward", "success", "Checked", nil))))
	fx := r.take(answer("shipping", "forward", "failure", "ShippingRefused", map[string]any{"reason": "no carrier"}))
	require.Equal(t, []string{"inventory/compensate"}, sent(fx))
}

func TestObstaclesOfAMigrationAreNamed(t *testing.T) {
	parked := func(t *testing.T) *run {
		r, _ := startOrder(t)
		r.pay()
		return r
	}
	for name, c := range map[string]struct {
		change func(*saga.Spec)
		want   string
	}{
		"another key":       {func(s *saga.Spec) { s.Key = "customer_id" }, "its key is the variable order_id, not customer_id"},
		"another lock":      {func(s *saga.Spec) { s.Lock = "data.customer_id" }, "its lock is another: nothing, not data.customer_id"},
		"a variable's type": {func(s *saga.Spec) { s.Data["title"] = saga.Any }, "variable title is int, not any"},
		"a step that has begun is gone": {func(s *saga.Spec) {
			s.Steps[2].Needs = []string{"payment"}
			s.Steps = []saga.Step{s.Steps[0], s.Steps[2]}
		}, "step inventory is intent, and there is none any more"},
		"another command": {func(s *saga.Spec) {
			s.Steps[0].Command = &saga.Command{Hop: "payment", Type: "Debit", Input: s.Steps[0].Command.Input}
		}, "step payment is done and asks for ChargePayment of hop payment, not Debit of hop payment"},
		"no compensation": {func(s *saga.Spec) { s.Steps[0].Compensation, s.Steps[0].Irreversible = nil, "a gift" },
			"step payment is done and is undone by RefundPayment of hop payment, not nothing"},
		"another order":       {func(s *saga.Spec) { s.Steps[1].Needs = nil }, "behind step payment came inventory, not none"},
		"another pivot":       {func(s *saga.Spec) { s.Steps[0].Pivot, s.Steps[2].Pivot = true, false }, "step payment is done, and the pivot in only one"},
		"an unknown deadline": {func(s *saga.Spec) { s.Steps[1].Timeout = 0 }, "deadline inventory.timeout to come"},
		"another saga":        {func(s *saga.Spec) { s.Saga = "orders" }, "it is a saga order, not orders"},
	} {
		t.Run(name, func(t *testing.T) {
			r := parked(t)
			s, err := saga.Migrate(r.d, another(t, c.change), r.s)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, r.s, s)
		})
	}
	r := parked(t)
	_, err := saga.Migrate(r.d, r.d, r.s)
	require.ErrorContains(t, err, "already")
	// parts that have not begun may change in any way
	_, err = saga.Migrate(r.d, another(t, func(s *saga.Spec) {
		s.Steps[2].Name, s.Steps[2].Timeout = "delivery", saga.Duration(time.Hour)
	}), r.s)
	require.NoError(t, err)
	r.take(saga.Event{Kind: saga.ActAbandon, Actor: "ann", Reason: "enough"})
	_, err = saga.Migrate(r.d, another(t, withCheck), r.s)
	require.ErrorContains(t, err, "it has ended: abandoned")
}

// waits is a saga that reserves, and then waits for an approval.
func waits() saga.Spec {
	return saga.Spec{Saga: "booking", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String}, Steps: []saga.Step{
		{
			Name: "seat", Command: &saga.Command{Hop: "airline", Type: "Reserve"}, Success: []saga.Answer{{Event: "Reserved"}},
			Failure: []saga.Answer{{Event: "Full"}}, Irreversible: "it expires", Optional: true,
		},
		{Name: "approval", Needs: []string{"seat"}, Success: []saga.Answer{{Hop: "desk", Event: "Approved"}}},
	}, Deadlines: []saga.Deadline{{Name: "slow", After: saga.Duration(time.Hour), Then: saga.ThenCompensate}}}
}

// moved starts a saga of waits, answers its step seat, and moves it to the definition with change.
func moved(t *testing.T, outcome, answered string, change func(*saga.Spec)) (*run, error) {
	from, err := saga.Define(waits())
	require.NoError(t, err)
	spec := waits()
	spec.Version = 2
	change(&spec)
	to, err := saga.Define(spec)
	require.NoError(t, err)
	r := &run{t: t, d: from, now: time.Unix(1000, 0)}
	r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "1"}})
	r.take(answer("seat", "forward", outcome, answered, nil))
	s, err := saga.Migrate(from, to, r.s)
	r.d, r.s = to, s
	return r, err
}

func TestASagaDoesNotMoveToWhereItsStepWaitsForNothing(t *testing.T) {
	_, err := moved(t, "success", "Reserved", func(s *saga.Spec) { s.Steps[1].Success = nil })
	require.EqualError(t, err, "step approval waits for an event, and awaits none in the other definition: it would never be done")
}

func TestAMovedSagasDeadlineIsCancelledIfTheStepUntilWhichItCountsIsOver(t *testing.T) {
	for outcome, answered := range map[string]string{"success": "Reserved", "failure": "Full"} {
		r, err := moved(t, outcome, answered, func(s *saga.Spec) { s.Deadlines[0].Until = []string{"seat"} })
		require.NoError(t, err)
		require.Nil(t, r.s.Deadlines, outcome)
	}
	r, err := moved(t, "success", "Reserved", func(s *saga.Spec) { s.Deadlines[0].Until = []string{"approval"} })
	require.NoError(t, err)
	require.Len(t, r.s.Deadlines, 1)
}
