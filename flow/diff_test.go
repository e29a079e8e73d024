package flow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
)

// two returns the service of everything, and a service that sends the messages which it consumes.
func two() []flow.Declaration {
	shop := flow.Declaration{Hop: "order.shop"}
	for _, typ := range []string{"Placed", "Cancelled", "Told", "A", "B", "NoB", "Thanked"} {
		shop.Starts = append(shop.Starts, flow.Message{Topic: "order.shop.events", Type: typ})
	}
	shop.Reactions = []flow.Reaction{
		{On: flow.Message{Topic: "order.payment.events", Type: "Paid"}},
		{On: flow.Message{Topic: "order.payment.events", Type: "Joined"}},
	}
	return []flow.Declaration{shop, everything()}
}

func TestDiffSaysWhatAChangeBreaks(t *testing.T) {
	t.Parallel()
	require.Empty(t, flow.Diff(two(), two()))
	for name, test := range map[string]struct {
		was, is string // of the new services
		want    []string
	}{
		"a message gone": {`{"topic":"order.shop.events","type":"Placed"},{`, `{`, []string{
			"breaking: order.shop: Placed is no longer sent, and is awaited by order.payment, thanks of order.payment",
		}},
		"a message renamed": {`"success":[{"topic":"order.payment.events","type":"Paid"}]`, `"success":[{"topic":"order.payment.events","type":"PaidUp"}]`, []string{
			"breaking: order.payment: Paid is no longer sent, and is awaited by order.shop",
			"breaking: order.payment: after Placed it no longer sends Paid, which is awaited by order.shop",
			"order.payment: PaidUp is sent", "order.payment: after Placed it sends PaidUp",
		}},
		"a message without a consumer": {`"success":[{"topic":"order.payment.events","type":"Refunded"}],`, ``, []string{
			"order.payment: Refunded is no longer sent, and no service waits for it",
		}},
		"a reaction to something else": {`"type":"Cancelled"},"success"`, `"type":"Called"},"success"`, []string{
			"breaking: order.payment: it no longer reacts to Cancelled: flows that have sent it stop there; keep the reaction until they have ended",
			"order.payment: it reacts to Called",
		}},
		"a listener gone": {`,{"on":{"topic":"order.payment.events","type":"Joined"}}`, ``, []string{"order.shop: it no longer listens to Joined"}},
		"a compensation gone": {`"undoes":["Paid"]`, `"attempts":1`, []string{
			"breaking: order.payment: it no longer undoes Paid after Cancelled: in flows under way it stays done",
			"order.payment: Cancelled is tried once, and was as often as the participant has it",
		}},
		"a part more": {`{"topic":"order.shop.events","type":"B"}]`, `{"topic":"order.shop.events","type":"B"},{"topic":"order.shop.events","type":"Told"}]`, []string{
			"breaking: order.payment: join both awaits Told, too: flows in which it has come already wait for ever; give the join a new name",
		}},
		"a part less": {`,{"topic":"order.shop.events","type":"B"}]`, `]`, []string{
			"breaking: order.payment: join both no longer awaits B: where all others have come nothing completes it; give the join a new name",
		}},
		"a join renamed": {`"name":"both"`, `"name":"two"`, []string{
			"breaking: order.payment: join both is gone: flows that have some of A, B are never joined; keep it until such flows have ended",
			"order.payment: join two is new",
		}},
		"nothing breaks it": {`,"broken":[{"topic":"order.shop.events","type":"NoB"}]`, ``, []string{
			"breaking: order.payment: join both is no longer broken by NoB: it waits on",
		}},
		"another time": {`"1h30m"`, `"2h"`, []string{"order.payment: join both waits for 2h, and waited for 1h30m"}},
		"another expectation": {`"expect":[{"topic":"order.shop.events","type":"Thanked"}]`, `"expect":[{"topic":"order.shop.events","type":"Told"}]`, []string{
			"breaking: order.payment: thanks is no longer met by Thanked: flows under way in which it comes raise Thankless",
		}},
		"late without a message": {`,"late":[{"topic":"order.payment.events","type":"ThankedLate"}]`, ``, []string{
			"order.payment: ThankedLate is no longer sent, and no service waits for it",
		}},
		"tried less": {`"attempts":3`, `"attempts":1`, []string{"order.payment: Placed is tried once, and was 3 times"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := json.Marshal(two())
			require.NoError(t, err)
			require.Contains(t, string(text), test.was)
			var changed []flow.Declaration
			require.NoError(t, json.Unmarshal([]byte(strings.Replace(string(text), test.was, test.is, 1)), &changed))
			var have []string
			for _, c := range flow.Diff(two(), changed) {
				have = append(have, c.String())
			}
			require.Equal(t, test.want, have)
		})
	}
}

// TestDiffOfServicesThatComeAndGo checks that an added service changes nothing elsewhere, and that a removed one is missing in
// running flows.
func TestDiffOfServicesThatComeAndGo(t *testing.T) {
	t.Parallel()
	mail := flow.Declaration{Hop: "order.mail", Reactions: []flow.Reaction{{On: flow.Message{Topic: "order.shop.events", Type: "Placed"}}}}
	more := append(two(), mail)
	require.Equal(t, []flow.Change{{Hop: "order.mail", Text: "the service is new"}}, flow.Diff(two(), more))
	for _, c := range flow.Diff(more, two()) {
		require.False(t, c.Breaking, c)
	}
	require.True(t, flow.Diff(two(), two()[:1])[0].Breaking)
}

func ExampleDiff() {
	placed := flow.Message{Topic: "order.order.events", Type: "OrderPlaced"}
	charged := flow.Message{Topic: "order.payment.events", Type: "PaymentCharged", Last: true}
	order := flow.Declaration{Hop: "order.order", Starts: []flow.Message{placed}}
	payment := flow.Declaration{Hop: "order.payment", Reactions: []flow.Reaction{{On: placed, Success: []flow.Message{charged}}}}
	for _, c := range flow.Diff([]flow.Declaration{order, payment}, []flow.Declaration{order}) {
		fmt.Println(c)
	}
	// Output:
	// breaking: order.payment: it no longer reacts to OrderPlaced: flows that have sent it stop there; keep the reaction until they have ended
	// order.payment: PaymentCharged is no longer sent, and no service waits for it
	// order.payment: the service is gone
}
