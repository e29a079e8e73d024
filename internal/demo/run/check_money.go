package run

import (
	"github.com/troupe-go/troupe/internal/demo"
)

// net returns the amount charged and not refunded by order, in cents, and the orders that were refunded.
func (f *facts) net() (net map[string]int64, refunded map[string]bool) {
	net, refunded = make(map[string]int64), make(map[string]bool)
	for _, entry := range f.ledger {
		if entry.Kind == "refund" {
			net[entry.OrderID] -= entry.Cents
			refunded[entry.OrderID] = true
			continue
		}
		net[entry.OrderID] += entry.Cents
	}
	return net, refunded
}

// checkMoney checks that the amounts charged and not refunded equal the amounts of completed orders, to the cent, plus the
// charges of parked ones.
func (f *facts) checkMoney(v *verdict) {
	net, _ := f.net()
	var want, got int64
	for _, o := range f.orders {
		must := o.holds(o.Cents, net[o.ID])
		want, got = want+must, got+net[o.ID]
		if net[o.ID] != must {
			v.complain("%s is %s and has %s of %s", o.ID, o.Status, signed(net[o.ID]), demo.Decimal(o.Cents))
		}
	}
	for id, cents := range net {
		if _, there := f.orders[id]; !there {
			got += cents
			v.complain("%s is no order and has %s", id, signed(cents))
		}
	}
	v.equal("%s", signed(want), signed(got))
}

// checkBalances checks that every customer's balance equals the sum in the ledger. Balances are incremented and decremented, so
// an effect that was applied twice shows here, even if the ledger's key prevented a second row.
func (f *facts) checkBalances(v *verdict) {
	net, _ := f.net()
	owed := make(map[string]int64)
	var want, got int64
	for id, cents := range net {
		owed[f.orders[id].Customer] += cents
		want += cents
	}
	for customer, account := range f.accounts {
		got += account.Balance
		if account.Balance != owed[customer] {
			v.complain("customer %s owes %s, by the ledger %s", customer, signed(account.Balance), signed(owed[customer]))
		}
	}
	v.equal("%s", signed(want), signed(got))
}

// checkShippedAndRefunded checks that no order was both shipped and refunded.
func (f *facts) checkShippedAndRefunded(v *verdict) {
	_, refunded := f.net()
	for _, id := range f.shipments {
		if refunded[id] {
			v.complain("%s", id)
		}
	}
	v.none()
}

func signed(cents int64) string {
	if cents < 0 {
		return "-" + demo.Decimal(-cents)
	}
	return demo.Decimal(cents)
}
