package run

import (
	"cmp"
	"fmt"

	"github.com/troupe-go/troupe/internal/demo"
	"github.com/troupe-go/troupe/internal/demo/orders"
)

// The final statuses of an order.
const (
	completed   = "completed"
	compensated = "compensated"
	parked      = "parked"
)

// checkEnds checks that the stored orders are the posted ones, and that each ended once.
func (f *facts) checkEnds(v *verdict) {
	ended := 0
	posted := make(map[string]bool, len(f.posted))
	for _, o := range f.posted {
		posted[o.ID] = true
		row, there := f.orders[o.ID]
		switch {
		case !there:
			v.complain("%s is missing", o.ID)
		case !row.ended():
			v.complain("%s is still %s", o.ID, cmp.Or(row.State, "nothing"))
		case row.Customer != o.CustomerID || row.Quantity != o.Quantity || row.Cents != o.AmountCents:
			v.complain("%s is not as it was posted", o.ID)
		case f.ends(row) != 1:
			v.complain("%s ended %d times", o.ID, f.ends(row))
		default:
			ended++
		}
	}
	for id := range f.orders {
		if !posted[id] {
			v.complain("%s was never posted", id)
		}
	}
	v.equal("%d orders", len(f.posted), ended)
}

// ends returns how often an order ended or was parked: by its saga's log, or without a saga by its row. A parked row has not
// ended.
func (f *facts) ends(o orderRow) (n int) {
	if f.style == demo.Choreography {
		if o.Status == parked {
			return o.Times + 1
		}
		return o.Times
	}
	for _, e := range f.logs[o.Saga] {
		n += e.Ends
	}
	return n
}

// checkOutcomes checks that exactly the orders that --fail chose were cancelled; they are known in advance. It ignores a parked
// order, which can end either way, and an order that a business rule may refuse: see mayBeRefused.
func (f *facts) checkOutcomes(v *verdict) {
	might := f.mayBeRefused()
	want, got := make(map[string]int), make(map[string]int)
	for _, o := range f.posted {
		row, expected := f.orders[o.ID], f.predict(o.ID)
		if row.Status == parked {
			continue
		}
		if expected == completed && row.Status == compensated && might(o, row) {
			expected = compensated
		}
		want[expected]++
		got[row.Status]++
		if row.Status != expected {
			v.complain("%s is %s, not %s", o.ID, cmp.Or(row.Status, "nothing"), expected)
		}
	}
	count := func(orders map[string]int) string {
		return fmt.Sprintf("%d completed, %d compensated", orders[completed], orders[compensated])
	}
	v.equal("%s", count(want), count(got))
}

// predict returns the status with which an order ends if no business rule refuses it: --fail decides at each hop.
func (f *facts) predict(orderID string) string {
	for _, hop := range services[1:] {
		if f.fail.Refuses(f.seed, orderID, hop) {
			return compensated
		}
	}
	return completed
}

// mayBeRefused returns a function that reports whether a business rule may refuse the order: its customer ordered more, over all,
// than the credit limit, or all customers ordered more of the title than there was. Which of those orders are refused depends on
// their timing.
func (f *facts) mayBeRefused() func(orders.Order, orderRow) bool {
	spent, wanted := make(map[string]float64), make(map[int32]int64) // a sum of cents may overflow an int64
	for _, o := range f.posted {
		spent[o.CustomerID] += float64(o.AmountCents)
		wanted[f.orders[o.ID].Title] += int64(o.Quantity)
	}
	return func(o orders.Order, row orderRow) bool {
		return spent[o.CustomerID] > float64(f.accounts[o.CustomerID].Limit) || wanted[row.Title] > f.stock[row.Title].Initial
	}
}
