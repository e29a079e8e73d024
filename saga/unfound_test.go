package saga_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// TestASagaThatItsEventCannotFindIsParked has an answer without the number of the parcel, by which the delivery finds the saga. Without a
// number no event would ever find it.
func TestASagaThatItsEventCannotFindIsParked(t *testing.T) {
	const text = `{"saga":"order","version":1,"key":"id","data":{"id":"string","parcel":"any"},
 "steps":[
  {"name":"shipping","command":{"hop":"shipping","type":"Ship"},"success":[{"event":"Shipped","set":{"parcel":"event.parcel"}}],"irreversible":"it comes back"},
  {"name":"delivery",NEEDS"success":[{"event":"Delivered","hop":"post","by":{"variable":"parcel","field":"parcel"}}KEY]}
 ]}`
	delivered := func(parcel string) saga.Event {
		key := "x"
		return saga.Event{Kind: saga.Observed, Hop: "post", Type: "Delivered", Key: &key, Message: "m-1", Fields: map[string]any{"parcel": parcel}}
	}
	for name, parcel := range map[string]any{"null": nil, "empty": ""} {
		t.Run(name, func(t *testing.T) {
			r := &run{t: t, d: parse(t, text, "NEEDS", `"needs":["shipping"],`, "KEY", ""), now: noon}
			r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1", "parcel": ""}})
			fx := r.take(answer("shipping", "forward", "success", "Shipped", map[string]any{"parcel": parcel}))
			require.Equal(t, saga.Parked, r.s.Status)
			require.Equal(t, "delivery: its event finds the saga by data.parcel, which has no value", fx.Alert)
			r.take(saga.Event{Kind: saga.ActResume, Actor: "ann", Reason: "try"})
			require.Equal(t, saga.Parked, r.s.Status)
			require.Empty(t, r.take(saga.Event{Kind: saga.ActSet, Fields: map[string]any{"parcel": "p-1"}, Actor: "ann", Reason: "on the receipt"}).Refused)
			require.Empty(t, r.take(saga.Event{Kind: saga.ActResume, Actor: "ann", Reason: "it has a number"}).Refused)
			require.Equal(t, saga.Running, r.s.Status)
			r.take(delivered("p-1"))
			require.Equal(t, saga.Completed, r.s.Status)
		})
	}
	t.Run("the optional step that sets it was refused", func(t *testing.T) {
		optional := `"optional":true,"failure":[{"event":"NotShipped"}],"irreversible"`
		r := &run{t: t, d: parse(t, text, `"irreversible"`, optional, "NEEDS", `"needs":["shipping"],`, "KEY", ""), now: noon}
		r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1"}})
		fx := r.take(answer("shipping", "forward", "failure", "NotShipped", nil))
		require.Equal(t, saga.Parked, r.s.Status)
		require.Equal(t, "delivery: its event finds the saga by data.parcel, which has no value", fx.Alert)
	})
	t.Run("a parallel step with a time-out", func(t *testing.T) {
		r := &run{t: t, d: parse(t, text, "NEEDS", `"timeout":"1h",`, "KEY", ""), now: noon}
		r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1"}})
		r.take(answer("shipping", "forward", "success", "Shipped", map[string]any{"parcel": ""}))
		require.Equal(t, saga.Running, r.s.Status, "the time-out ends the step")
	})
	t.Run("an event that also comes by the key", func(t *testing.T) {
		r := &run{t: t, d: parse(t, text, "NEEDS", `"needs":["shipping"],`, "KEY", `,{"event":"Fetched","hop":"shop"}`), now: noon}
		r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1"}})
		r.take(answer("shipping", "forward", "success", "Shipped", map[string]any{"parcel": ""}))
		require.Equal(t, saga.Running, r.s.Status)
	})
	t.Run("a value that a parallel step sets", func(t *testing.T) {
		r := &run{t: t, d: parse(t, text, "NEEDS", "", "KEY", ""), now: noon}
		r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1", "parcel": ""}})
		require.Equal(t, saga.Running, r.s.Status)
		r.take(answer("shipping", "forward", "success", "Shipped", map[string]any{"parcel": "p-1"}))
		r.take(delivered("p-1"))
		require.Equal(t, saga.Completed, r.s.Status)
	})
}

// TestASagaThatItsEventCannotFindAnyMoreIsParked has a step that waits for the delivery while a parallel step is to set the number of the
// parcel, by which the delivery finds the saga.
func TestASagaThatItsEventCannotFindAnyMoreIsParked(t *testing.T) {
	const text = `{"saga":"order","version":1,"key":"id","data":{"id":"string","parcel":"any"},
 "steps":[
  {"name":"shipping","command":{"hop":"shipping","type":"Ship"},"success":[{"event":"Shipped","set":{"parcel":"event.parcel"}}],OPTIONAL"irreversible":"it comes back"},
  {"name":"delivery","success":[{"event":"Delivered","hop":"post","by":{"variable":"parcel","field":"parcel"}}]},
  {"name":"invoice","needs":["shipping"],"command":{"hop":"billing","type":"Bill"},"success":[{"event":"Billed"}],"irreversible":"a letter"}
 ]}`
	const reason = "delivery: its event finds the saga by data.parcel, which has no value"
	set := func(parcel string) saga.Event {
		return saga.Event{Kind: saga.ActSet, Fields: map[string]any{"parcel": parcel}, Actor: "ann", Reason: "on the receipt"}
	}
	shipping := func(optional string) *run {
		r := &run{t: t, d: parse(t, text, "OPTIONAL", optional), now: noon}
		r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1"}})
		require.Equal(t, saga.Running, r.s.Status)
		return r
	}
	shipped := func(parcel any) saga.Event {
		return answer("shipping", "forward", "success", "Shipped", map[string]any{"parcel": parcel})
	}
	resumed := func(r *run) {
		t.Helper()
		require.Equal(t, saga.Parked, r.s.Status)
		require.Empty(t, r.take(set("p-1")).Refused)
		require.Empty(t, r.take(saga.Event{Kind: saga.ActResume, Actor: "ann", Reason: "it has a number"}).Refused)
		key := "x"
		r.take(saga.Event{Kind: saga.Observed, Hop: "post", Type: "Delivered", Key: &key, Message: "m-1", Fields: map[string]any{"parcel": "p-1"}})
		require.Equal(t, saga.Running, r.s.Status)
		r.take(answer("invoice", "forward", "success", "Billed", nil))
		require.Equal(t, saga.Completed, r.s.Status)
	}
	for name, parcel := range map[string]any{"null": nil, "empty": ""} {
		t.Run(name, func(t *testing.T) {
			r := shipping("")
			fx := r.take(shipped(parcel))
			require.Equal(t, reason, fx.Alert)
			require.Equal(t, []string{"invoice/forward"}, sent(fx), "the steps that can begin do")
			resumed(r)
		})
	}
	t.Run("the optional step that sets it was refused", func(t *testing.T) {
		r := shipping(`"optional":true,"failure":[{"event":"NotShipped"}],`)
		require.Equal(t, reason, r.take(answer("shipping", "forward", "failure", "NotShipped", nil)).Alert)
		resumed(r)
	})
	t.Run("an operator makes it empty", func(t *testing.T) {
		r := shipping("")
		require.Empty(t, r.take(shipped("p-0")).Alert)
		require.Equal(t, reason, r.take(set("")).Alert)
		resumed(r)
	})
}
