package run

// checkStock checks for each title that the missing stock equals the quantities of completed orders plus the reservations of
// parked ones.
func (f *facts) checkStock(v *verdict) {
	held := make(map[string]int64) // by order
	for _, r := range f.reservations {
		if r.Released || r.Title == nil {
			continue
		}
		held[r.OrderID] += int64(r.Quantity)
		if o, there := f.orders[r.OrderID]; !there || o.Title != *r.Title {
			v.complain("%s did not order title %d", r.OrderID, *r.Title)
		}
	}
	var want, got int64
	taken := make(map[int32]int64) // expected quantity by title
	for _, o := range f.orders {
		must := o.holds(int64(o.Quantity), held[o.ID])
		want += must
		taken[o.Title] += must
		if held[o.ID] != must {
			v.complain("%s is %s and holds %d of %d", o.ID, o.Status, held[o.ID], o.Quantity)
		}
	}
	for title, s := range f.stock {
		got += s.Initial - s.Available
		if s.Initial-s.Available != taken[title] {
			v.complain("title %d: %d taken, %d ordered", title, s.Initial-s.Available, taken[title])
		}
	}
	v.equal("%d pieces", want, got)
}

// checkShipments checks that every completed order was shipped once, and no other order except parked ones, at most once.
func (f *facts) checkShipments(v *verdict) {
	sent := make(map[string]int64)
	for _, id := range f.shipments {
		sent[id]++
	}
	var want int64
	for _, o := range f.orders {
		must := o.holds(1, sent[o.ID])
		want += must
		if sent[o.ID] != must {
			v.complain("%s is %s and was sent %d times", o.ID, o.Status, sent[o.ID])
		}
	}
	for id := range sent {
		if _, there := f.orders[id]; !there {
			v.complain("%s is no order and was sent", id)
		}
	}
	v.equal("%d", want, len(f.shipments))
}
