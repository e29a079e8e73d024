package run

import (
	"fmt"
	"math"

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
func (f *facts) checkEnds() Check {
	v := verdict{name: "every order posted ended exactly once", want: fmt.Sprintf("%d orders", len(f.posted))}
	ended := 0
	posted := make(map[string]bool, len(f.posted))
	for _, o := range f.posted {
		posted[o.ID] = true
		row, there := f.orders[o.ID]
		switch {
		case !there:
			v.complain("%s is missing", o.ID)
		case !row.ended():
			v.complain("%s is still %s", o.ID, nothingIfEmpty(row.State))
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
	v.got = fmt.Sprintf("%d orders", ended)
	return v.check()
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
func (f *facts) checkOutcomes() Check {
	v := verdict{name: "completed and compensated as the seed has it"}
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
			v.complain("%s is %s, not %s", o.ID, nothingIfEmpty(row.Status), expected)
		}
	}
	v.want = fmt.Sprintf("%d completed, %d compensated", want[completed], want[compensated])
	v.got = fmt.Sprintf("%d completed, %d compensated", got[completed], got[compensated])
	return v.check()
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
	spent, wanted := make(map[string]int64), make(map[int32]int64)
	for _, o := range f.posted {
		spent[o.CustomerID] = add(spent[o.CustomerID], o.AmountCents)
		wanted[f.orders[o.ID].Title] += int64(o.Quantity)
	}
	return func(o orders.Order, row orderRow) bool {
		return spent[o.CustomerID] > f.accounts[o.CustomerID].Limit || wanted[row.Title] > f.stock[row.Title].Initial
	}
}

// add returns a + b, or the largest int64 if the sum overflows. Neither a nor b is negative.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func nothingIfEmpty(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}
