package verify_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/flow/verify"
)

// orderFlow returns the files of the demo's flow.
func orderFlow(t testing.TB) []verify.File {
	t.Helper()
	var files []verify.File
	for _, hop := range []string{"order", "payment", "inventory", "shipping"} {
		path := filepath.Join("..", "..", "demo", hop, "reactions.json")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		files = append(files, verify.File{Name: hop, Text: text})
	}
	return files
}

// parcels is a flow with a join: packing and payment are both awaited, or the parcel is unpacked.
const parcels = `{
  "hop": "f.shop",
  "starts": [{"topic": "f.shop.events", "type": "Ordered"}],
  "reactions": [
    {"on": {"topic": "f.post.events", "type": "TooLate"}, "success": [{"topic": "f.shop.events", "type": "Cancelled", "last": true}]}
  ]
}
{
  "hop": "f.pack",
  "reactions": [
    {"on": {"topic": "f.shop.events", "type": "Ordered"}, "success": [{"topic": "f.pack.events", "type": "Packed"}]},
    {"on": {"topic": "f.post.events", "type": "TooLate"}, "undoes": ["Packed"]}
  ]
}
{
  "hop": "f.pay",
  "reactions": [
    {"on": {"topic": "f.shop.events", "type": "Ordered"}, "success": [{"topic": "f.pay.events", "type": "Paid"}],
      "failure": [{"topic": "f.pay.events", "type": "NotPaid", "last": true}]},
    {"on": {"topic": "f.post.events", "type": "TooLate"}, "undoes": ["Paid"]}
  ]
}
{
  "hop": "f.post",
  "joins": [
    {"name": "ready", "await": [{"topic": "f.pack.events", "type": "Packed"}, {"topic": "f.pay.events", "type": "Paid"}], "within": "24h",
      "success": [{"topic": "f.post.commands", "type": "Send"}], "expired": [{"topic": "f.post.events", "type": "TooLate"}]}
  ],
  "reactions": [
    {"on": {"topic": "f.post.commands", "type": "Send"}, "success": [{"topic": "f.post.events", "type": "Sent", "last": true}]}
  ],
  "expectations": [
    {"name": "sent", "after": {"topic": "f.shop.events", "type": "Ordered"}, "expect": [{"topic": "f.post.events", "type": "Sent"}],
      "within": "48h", "raise": {"topic": "f.post.events", "type": "Missing", "last": true}}
  ]
}`

func parcelFiles() (files []verify.File) {
	for i, text := range strings.Split(parcels, "\n}\n") {
		if i < 3 {
			text += "\n}"
		}
		files = append(files, verify.File{Name: []string{"shop", "pack", "pay", "post"}[i], Text: []byte(text)})
	}
	return files
}

// changed returns a flow with one text of one file replaced.
func changed(t testing.TB, files []verify.File, name, was, is string) []verify.File {
	t.Helper()
	for i, f := range files {
		if f.Name == name {
			require.Contains(t, string(f.Text), was)
			files[i].Text = []byte(strings.Replace(string(f.Text), was, is, 1))
			return files
		}
	}
	require.Fail(t, "no such file", name)
	return nil
}

func places(found []verify.Finding) (all []string) {
	for _, f := range found {
		all = append(all, fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Rule))
	}
	return all
}

func TestGoodFlowsHaveNoFindings(t *testing.T) {
	t.Parallel()
	for _, files := range [][]verify.File{orderFlow(t), parcelFiles()} {
		services, found := verify.Files(files)
		require.Empty(t, found)
		require.Len(t, services, 4)
		require.Empty(t, verify.Flow(services))
	}
}

// TestEachSlipIsFoundWhereItWasMade makes each bad flow from a good one by a single slip.
func TestEachSlipIsFoundWhereItWasMade(t *testing.T) {
	t.Parallel()
	on := func(topic, typ, sent, sentType string) string {
		return fmt.Sprintf(`{"on": {"topic": %q, "type": %q}, "success": [{"topic": %q, "type": %q}]}`, topic, typ, sent, sentType)
	}
	const (
		reacts = `"reactions": [`
		timed  = `"within": "24h",
      "success": [{"topic": "f.post.commands", "type": "Send"}], "expired": [{"topic": "f.post.events", "type": "TooLate"}]`
	)
	for name, test := range map[string]struct {
		files         []verify.File
		file, was, is string
		want          []string
		says          []string // parts of the first finding and its trace, in order
	}{
		"an unknown field": {
			orderFlow(t), "shipping", `"success"`, `"succes"`, []string{"shipping:6: reactions"}, []string{"want one of on, success"},
		},
		"another hop's name": {
			orderFlow(t), "shipping", `"order.shipping"`, `"order.payment"`,
			[]string{"shipping:6: reactions", "shipping:7: reactions"}, []string{"only order.shipping sends its events"},
		},
		"an end that is not marked": {
			parcelFiles(), "post", `"Sent", "last": true`, `"Sent"`, []string{"post:8: no-consumer"},
			[]string{"Sent is expected and nothing more", "mark it last"},
		},
		"a misspelt type": {
			orderFlow(t), "shipping", "StockReserved", "StockReservd",
			[]string{"inventory:6: no-consumer", "shipping:5: no-producer"},
			[]string{"no service reacts to troupe.order.StockReserved"},
		},
		"a command without a consumer": {
			parcelFiles(), "post", `{"topic": "f.post.commands", "type": "Send"}], "expired"`, `{"topic": "f.mail.commands", "type": "Send"}], "expired"`,
			[]string{"post:8: no-producer", "post:5: no-consumer", "post:11: expectation-never"},
			[]string{"no service sends Send on f.post.commands (it is sent on f.mail.commands)"},
		},
		"a failure without a consumer": {
			parcelFiles(), "pay", `"NotPaid", "last": true`, `"NotPaid"`, []string{"pay:5: no-failure-consumer"},
			[]string{"no service reacts to NotPaid", "compensate, or mark it last"},
		},
		"a compensation forgotten": {
			parcelFiles(), "pack", `"undoes": ["Packed"]`, `"attempts": 1`, []string{"pack:4: missing-undo"},
			[]string{
				"when join ready of f.post is out of time", "no reaction that undoes Packed", "let f.pack react",
				"f.shop: sends Ordered\n\tf.pack: Ordered → sends Packed\n\tf.pay: Ordered → sends Paid\n\tf.post: join ready is out of time and sends TooLate",
			},
		},
		"a compensation that one way back passes by": {
			orderFlow(t), "payment", `"undoes": ["troupe.order.PaymentCharged"]`, `"attempts": 1`, []string{"payment:4: missing-undo"},
			[]string{
				"when order.inventory sends troupe.order.StockRefused:", "order.payment: troupe.order.OrderPlaced → sends troupe.order.PaymentCharged\n",
				"order.inventory: troupe.order.PaymentCharged → fails and sends troupe.order.StockRefused",
			},
		},
		"a reason why nothing is undone": {
			parcelFiles(), "pack", `"success": [{"topic": "f.pack.events", "type": "Packed"}]`,
			`"success": [{"topic": "f.pack.events", "type": "Packed"}], "irreversible": "boxes are cheap"`, nil, nil,
		},
		"a cycle without an end": {
			parcelFiles(), "shop", reacts, reacts + on("f.pack.events", "Packed", "f.shop.events", "Ordered") + ",", []string{"shop:4: missing-undo", "pack:4: endless-cycle"},
			nil,
		},
		"a cycle that feeds itself": {
			parcelFiles(), "pack", reacts, reacts + on("f.pack.events", "Again", "f.pack.events", "Again") + ",", []string{"pack:3: no-producer"},
			[]string{"Again comes only of itself", "name what begins one in starts"},
		},
		"a retry by the flow": {
			orderFlow(t), "order", reacts,
			reacts + on("order.inventory.events", "troupe.order.StockRefused", "order.order.events", "troupe.order.OrderPlaced") + ",",
			[]string{"payment:4: cycle", "inventory:4: retry-owners"},
			[]string{"troupe.order.OrderPlaced leads to itself without a limit"},
		},
		"a part without a sender": {
			parcelFiles(), "post", `"type": "Packed"`, `"type": "Pakced"`,
			[]string{"pack:4: no-consumer", "post:4: join-never", "post:11: expectation-never"}, nil,
		},
		"branches that exclude each other": {
			parcelFiles(), "post", `"f.pack.events", "type": "Packed"`, `"f.pay.events", "type": "NotPaid"`,
			[]string{"pack:4: no-consumer", "post:4: join-never", "post:11: expectation-never"}, nil,
		},
		"a part that comes of the join": {
			parcelFiles(), "post", `"f.pack.events", "type": "Packed"`, `"f.post.events", "type": "Sent"`,
			[]string{"pack:4: no-consumer", "post:4: join-never", "post:11: expectation-never"}, nil,
		},
		"a join without a time": {
			parcelFiles(), "post", `"within": "24h",`, ``, []string{"post:5: reactions"}, []string{"nothing expires without within"},
		},
		"a join that nothing ends": {
			parcelFiles(), "post", timed, `"success": [{"topic": "f.post.commands", "type": "Send"}]`,
			[]string{"shop:5: no-producer", "pack:5: no-producer", "pay:6: no-producer", "post:4: join-stuck"}, nil,
		},
		"a join that the failure ends": {
			parcelFiles(), "post", timed,
			`"broken": [{"topic": "f.pay.events", "type": "NotPaid"}], "success": [{"topic": "f.post.commands", "type": "Send"}]`,
			[]string{"shop:5: no-producer", "pack:5: no-producer", "pay:6: no-producer"}, nil,
		},
		"an expectation of what only comes otherwise": {
			parcelFiles(), "post", `"after": {"topic": "f.shop.events", "type": "Ordered"}`, `"after": {"topic": "f.pay.events", "type": "NotPaid"}`,
			[]string{"post:11: expectation-never"}, []string{"no run that sends NotPaid also sends Sent"},
		},
		"an expectation shorter than a join before it": {
			parcelFiles(), "post", `"type": "Sent"}],
      "within": "48h"`, `"type": "Sent"}, {"topic": "f.shop.events", "type": "Cancelled"}],
      "within": "23h59m"`,
			[]string{"post:12: expectation-below-join"}, []string{"sent expires after 23h59m, and Cancelled may come when join ready has expired, after 24h: set a longer time"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, found := verify.Files(changed(t, test.files, test.file, test.was, test.is))
			require.Equal(t, test.want, places(found))
			for _, says := range test.says {
				require.Contains(t, found[0].String(), says)
			}
		})
	}
}

func TestTwoFilesForOneHop(t *testing.T) {
	t.Parallel()
	files := parcelFiles()
	files = append(files, verify.File{Name: "again", Text: []byte(
		`{"hop": "f.pack", "reactions": [{"on": {"topic": "f.shop.events", "type": "Ordered"}}]}`)})
	_, found := verify.Files(files)
	require.Equal(t, []string{"again:1: same-hop"}, places(found))
}

// In TestAnExpectationThatAsksAgainOwnsRetriesToo a handler tries a message five times, and another service sends it again
// when its answer is late.
func TestAnExpectationThatAsksAgainOwnsRetriesToo(t *testing.T) {
	t.Parallel()
	ask := func(attempts string) []string {
		_, found := verify.Files([]verify.File{
			{Name: "shop", Text: []byte(`{"hop": "f.shop", "starts": [{"topic": "f.shop.events", "type": "Asked"}],
  "expectations": [{"name": "paid", "after": {"topic": "f.shop.events", "type": "Asked"}, "expect": [{"topic": "f.pay.events", "type": "Paid"}],
    "within": "30s", "raise": {"topic": "f.shop.events", "type": "Asked"}}]}`)},
			{Name: "pay", Text: []byte(`{"hop": "f.pay", "reactions": [
  {"on": {"topic": "f.shop.events", "type": "Asked"}, "success": [{"topic": "f.pay.events", "type": "Paid", "last": true}]` + attempts + `}]}`)},
		})
		return places(found)
	}
	require.Equal(t, []string{"shop:2: retry-owners"}, ask(`, "attempts": 5`))
	require.Equal(t, []string{"shop:2: retry-owners"}, ask(""))
	require.Empty(t, ask(`, "attempts": 1`))
}

// TestFindingsAreTheSameEveryTime checks that the findings do not depend on the order of a map.
func TestFindingsAreTheSameEveryTime(t *testing.T) {
	t.Parallel()
	_, first := verify.Files(orderFlow(t)[1:])
	require.NotEmpty(t, first)
	for range 20 {
		_, again := verify.Files(orderFlow(t)[1:])
		require.Equal(t, first, again)
	}
}
