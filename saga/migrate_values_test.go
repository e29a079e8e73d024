package saga_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/saga"
)

// In TestASagaDoesNotMoveToWhereAValueIsMissing the payment was charged without the fee that the new definition's shipment needs.
func TestASagaDoesNotMoveToWhereAValueIsMissing(t *testing.T) {
	const text = `{
 "saga":"order","version":VERSION,"key":"id","data":{"id":"string"MORE},
 "steps":[
  {"name":"payment","command":{"hop":"payment","type":"Charge"},"success":[{"event":"Charged"SET}],"failure":[{"event":"Refused"}],"timeout":"10m",
   "compensation":{"command":{"hop":"payment","type":"Refund"REFUND},"success":[{"event":"Refunded"}]}},
  {"name":"shipping","needs":["payment"],WHEN"command":{"hop":"shipping","type":"Ship"SHIP},"success":[{"event":"Shipped"}],"failure":[{"event":"ShipRefused"}],"timeout":"10m","pivot":true}INVOICE
 ]COMPLETED}`
	const more, set = `,"fee":"int"`, `,"set":{"fee":"event.fee"}`
	from := parse(t, text, "VERSION", "1", "MORE", "", "SET", "", "REFUND", "", "WHEN", "", "SHIP", "", "INVOICE", "", "COMPLETED", "")
	to := func(changes ...string) *saga.Definition {
		return parse(t, text, append(changes, "VERSION", "2", "MORE", more, "SET", set, "REFUND", "", "WHEN", "", "SHIP", "", "INVOICE", "", "COMPLETED", "")...)
	}
	r := &run{t: t, d: from, now: noon}
	r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1"}})
	begun := r.s
	r.take(answer("payment", "forward", "success", "Charged", nil))
	r.take(answer("shipping", "forward", "exhausted", "troupe.Exhausted", nil))
	require.Equal(t, saga.Parked, r.s.Status)

	for name, c := range map[string]struct {
		to   *saga.Definition
		want string
	}{
		"the command of a step": {to("SHIP", `,"input":{"fee":"data.fee"}`), "step shipping reads data.fee"},
		"a compensation":        {to("REFUND", `,"input":{"fee":"data.fee + 1"}`), "the compensation of step payment reads data.fee"},
		"its emitted events":    {to("COMPLETED", `,"completed":[{"event":"Done","input":{"fee":"data.fee"}}]`), "completed reads data.fee"},
		"asked about":           {to("SHIP", `,"input":{"fee":"has(data.fee) ? data.fee : 0"}`), ""},
		"asked when it began":   {to("WHEN", `"when":"has(data.fee)",`, "SHIP", `,"input":{"fee":"data.fee"}`), "step shipping reads data.fee"},
		"asked when it will begin": {to("INVOICE", `,{"name":"invoice","needs":["shipping"],"when":"has(data.fee)",
   "command":{"hop":"invoice","type":"Write","input":{"fee":"data.fee"}},"success":[{"event":"Written"}],"timeout":"1m","retriable":true,"irreversible":"paper"}`), ""},
		"nothing reads it":           {to(), ""},
		"set by nothing but a start": {to("SET", "", "SHIP", `,"input":{"fee":"data.fee"}`), "set by the start"},
	} {
		t.Run(name, func(t *testing.T) {
			moved, err := saga.Migrate(from, c.to, r.s)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			_, fx := saga.Decide(c.to, moved, saga.Event{Kind: saga.ActRetry, Step: "shipping", Actor: "ann", Reason: "mended"}, noon)
			require.Len(t, fx.Commands, 1)
		})
	}
	_, err := saga.Migrate(from, to("SHIP", `,"input":{"fee":"data.fee"}`), begun)
	require.NoError(t, err, "the payment is still to come, with its fee")
}

// In TestASagaDoesNotMoveToAnEventThatCannotFindIt the goods were sent without the number of the parcel, by which the delivery finds the saga
// in the new definition.
func TestASagaDoesNotMoveToAnEventThatCannotFindIt(t *testing.T) {
	const text = `{"saga":"order","version":VERSION,"key":"id","data":{"id":"string","parcel":"string"},
 "steps":[
  {"name":"shipping","command":{"hop":"shipping","type":"Ship"},"success":[{"event":"Shipped"SET}],"timeout":"10m","irreversible":"it is sent back"},
  {"name":"notice","needs":["shipping"],"success":[{"event":"Noticed","hop":"mail"}]},
  {"name":"delivery","needs":["shipping"NOTICE],WHEN"success":[{"event":"Delivered","hop":"post"BY}]FAILURE}CALL
 ]}`
	none := []string{"VERSION", "1", "SET", "", "NOTICE", "", "WHEN", "", "BY", "", "CALL", "", "FAILURE", `,"failure":[{"event":"Lost","hop":"post"}]`}
	const set, by = `,"set":{"parcel":"event.parcel"}`, `,"by":{"variable":"parcel","field":"parcel"}`
	for name, c := range map[string]struct {
		from, to []string
		want     string
	}{
		"a step that waits and asked for it": {nil, []string{"BY", by, "WHEN", `"when":"has(data.parcel)",`}, "an answer to step delivery reads data.parcel"},
		"an empty value":                     {[]string{"SET", set}, []string{"BY", by, "FAILURE", ""}, "the event of step delivery finds the saga by data.parcel, which has no value"},
		"an empty value, or by the key":      {[]string{"SET", set}, []string{"BY", by}, ""},
		"a step that waits":                  {nil, []string{"BY", by}, "an answer to step delivery reads data.parcel, which has no value and is set by step shipping"},
		"a step to come":                     {[]string{"NOTICE", `,"notice"`}, []string{"NOTICE", `,"notice"`, "BY", by}, "an answer to step delivery reads data.parcel"},
		"a step to come that asks for it": {[]string{"NOTICE", `,"notice"`}, []string{"NOTICE", `,"notice"`, "BY", by, "WHEN", `"when":"has(data.parcel)",`},
			""},
		"by the key": {nil, nil, ""},
		"the address of a call": {nil, []string{"CALL", `,{"name":"track","needs":["delivery"],"call":{"hop":"post","method":"GET","endpoint":"/parcels/{parcel}"},
   "timeout":"1m","irreversible":"it reads"}`}, "step track reads data.parcel"},
		"the address of a call that undoes": {nil, []string{"CALL", `,{"name":"track","needs":["delivery"],"call":{"hop":"post","method":"POST","endpoint":"/parcels"},
   "timeout":"1m","compensation":{"call":{"hop":"post","method":"DELETE","endpoint":"/parcels/{parcel}"}}}`}, "the compensation of step track reads data.parcel"},
	} {
		t.Run(name, func(t *testing.T) {
			from := parse(t, text, append(c.from, none...)...)
			to := parse(t, text, append(c.to, append([]string{"VERSION", "2", "SET", set}, none...)...)...)
			r := &run{t: t, d: from, now: noon}
			r.take(saga.Event{Kind: saga.Started, Fields: map[string]any{"id": "o-1"}})
			r.take(answer("shipping", "forward", "success", "Shipped", map[string]any{"parcel": ""}))
			_, err := saga.Migrate(from, to, r.s)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}
