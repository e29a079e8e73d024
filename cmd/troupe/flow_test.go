package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/flow/verify"
)

const demoHops = "../../internal/demo/"

// orderReactions copies the demo's files to a folder, with one of them changed.
func orderReactions(t *testing.T, hop, was, is string) string {
	t.Helper()
	files := make(map[string]string)
	for _, name := range []string{"order", "payment", "inventory", "shipping"} {
		text, err := os.ReadFile(filepath.Join(demoHops, name, "reactions.json"))
		require.NoError(t, err)
		files[filepath.Join(name, "reactions.json")] = string(text)
	}
	path := filepath.Join(hop, "reactions.json")
	require.Contains(t, files[path], was)
	files[path] = strings.Replace(files[path], was, is, 1)
	return put(t, t.TempDir(), files)
}

func TestFlowVerifySaysNothingOfAGoodFlow(t *testing.T) {
	t.Parallel()
	require.Equal(t, outcome{}, finish(t, command(t, nil, "flow", "verify", demoHops)))
	o := finish(t, command(t, nil, "flow", "verify", "--output", "json", demoHops))
	require.Equal(t, outcome{stdout: "[]\n"}, o)
}

func TestFlowVerifyPrintsFileLineSeverityRuleAndRun(t *testing.T) {
	t.Parallel()
	dir := orderReactions(t, "inventory", `"undoes": ["troupe.order.StockReserved"]`, `"attempts": 1`)
	o := finish(t, command(t, nil, "flow", "verify", dir))
	require.Equal(t, 1, o.status, o.stderr)
	require.Empty(t, o.stderr)
	require.Equal(t, filepath.Join(dir, "inventory/reactions.json")+":4: error: missing-undo: order.inventory reactions[0]: its effect remains "+
		"when order.shipping sends troupe.order.ShippingRefused: no reaction that undoes troupe.order.StockReserved is reached; let "+
		"order.inventory react to the failure and name it in undoes, or give the reason in irreversible\n"+
		"\torder.order: sends troupe.order.OrderPlaced\n"+
		"\torder.payment: troupe.order.OrderPlaced → sends troupe.order.PaymentCharged\n"+
		"\torder.inventory: troupe.order.PaymentCharged → sends troupe.order.StockReserved\n"+
		"\torder.shipping: troupe.order.StockReserved → fails and sends troupe.order.ShippingRefused\n", o.stdout)

	o = finish(t, command(t, nil, "flow", "verify", "--output", "json", dir))
	require.Equal(t, 1, o.status)
	var found []verify.Finding
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &found))
	require.Len(t, found, 1)
	require.Equal(t, "missing-undo", found[0].Rule)
	require.Len(t, found[0].Trace, 4)
}

func TestFlowVerifyOfWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := put(t, t.TempDir(), map[string]string{"broken.json": "{\n  \"hop\": 7\n}\n", "large.json": strings.Repeat(" ", 2<<20)})
	o := finish(t, command(t, nil, "flow", "verify", filepath.Join(dir, "broken.json"), filepath.Join(dir, "large.json")))
	require.Equal(t, 1, o.status)
	require.Contains(t, o.stdout, "broken.json:2: error: reactions: hop: 7, want a text\n")
	require.Contains(t, o.stdout, "large.json:1: error: reactions: more than the 1048576 bytes")
	for _, args := range [][]string{{"nowhere"}, {"--output", "sarif", demoHops}, {}} {
		require.Equal(t, 2, finish(t, command(t, nil, append([]string{"flow", "verify"}, args...)...)).status, args)
	}
	o = finish(t, command(t, nil, "flow", "verify", t.TempDir()))
	require.Equal(t, 2, o.status)
	require.Contains(t, o.stderr, "it holds no reactions.json: name the files")
}

func TestFlowVerifyWarningsAreNoErrors(t *testing.T) {
	t.Parallel()
	dir := put(t, t.TempDir(), map[string]string{"a.reactions.json": `{
  "hop": "f.a", "starts": [{"topic": "f.a.events", "type": "Ping"}],
  "reactions": [{"on": {"topic": "f.a.events", "type": "Ping"}, "success": [{"topic": "f.a.events", "type": "Ping"}],
    "failure": [{"topic": "f.a.events", "type": "Enough", "last": true}], "attempts": 1}]}`})
	o := finish(t, command(t, nil, "flow", "verify", dir))
	require.Equal(t, 0, o.status, o.stdout)
	require.Contains(t, o.stdout, "a.reactions.json:3: warning: cycle: f.a reactions[0]: Ping leads to itself")
}

func TestFlowGraph(t *testing.T) {
	t.Parallel()
	o := finish(t, command(t, nil, "flow", "graph", demoHops))
	require.Equal(t, 0, o.status, o.stderr)
	require.True(t, strings.HasPrefix(o.stdout, "flowchart LR\n"), o.stdout)
	o = finish(t, command(t, nil, "flow", "graph", "--output", "svg", demoHops))
	require.Equal(t, 0, o.status, o.stderr)
	require.True(t, strings.HasPrefix(o.stdout, "<svg "), o.stdout)
	require.Equal(t, 2, finish(t, command(t, nil, "flow", "graph", "--output", "png", demoHops)).status)
}

func TestFlowDiffFailsForWhatBreaks(t *testing.T) {
	t.Parallel()
	require.Equal(t, outcome{}, finish(t, command(t, nil, "flow", "diff", demoHops, demoHops)))
	dir := orderReactions(t, "shipping", `"type": "troupe.order.OrderShipped"`, `"type": "troupe.order.Shipped"`)
	o := finish(t, command(t, nil, "flow", "diff", demoHops, dir))
	require.Equal(t, 1, o.status, o.stderr)
	require.Equal(t, `breaking: order.shipping: troupe.order.OrderShipped is no longer sent, and is awaited by order.order, order-ends of order.order
breaking: order.shipping: after troupe.order.StockReserved it no longer sends troupe.order.OrderShipped, which is awaited by order-ends of order.order, order.order
order.shipping: troupe.order.Shipped is sent
order.shipping: after troupe.order.StockReserved it sends troupe.order.Shipped
`, o.stdout)
	o = finish(t, command(t, nil, "flow", "diff", "--output", "json", demoHops, dir))
	require.Equal(t, 1, o.status, o.stderr)
	var changes []flow.Change
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &changes))
	require.Len(t, changes, 4)
	require.Equal(t, 2, finish(t, command(t, nil, "flow", "diff", demoHops)).status)

	dir = orderReactions(t, "shipping", `"hop": "order.shipping",`, `"hop": "order.shipping", "colour": 1,`)
	o = finish(t, command(t, nil, "flow", "diff", demoHops, dir))
	require.Equal(t, 2, o.status)
	require.Contains(t, o.stderr, "shipping/reactions.json: line 2: colour: no such field")
}

func TestFlowAsyncAPI(t *testing.T) {
	t.Parallel()
	o := finish(t, command(t, nil, "flow", "asyncapi", "--version", "2.1.0", demoHops+"payment/reactions.json"))
	require.Equal(t, 0, o.status, o.stderr)
	require.Contains(t, o.stdout, `"asyncapi": "3.0.0"`)
	require.Contains(t, o.stdout, `"version": "2.1.0"`)

	o = finish(t, command(t, nil, "flow", "asyncapi", demoHops))
	require.Equal(t, 2, o.status)
	require.Contains(t, o.stderr, "4 services: name one, or a --folder")
	dir := t.TempDir()
	require.Equal(t, outcome{}, finish(t, command(t, nil, "flow", "asyncapi", "--folder", dir, demoHops)))
	for _, hop := range []string{"order", "payment", "inventory", "shipping"} {
		have, err := os.ReadFile(filepath.Join(dir, "order."+hop+".asyncapi.json"))
		require.NoError(t, err)
		want, err := os.ReadFile("../../internal/flow/asyncapi/testdata/order." + hop + ".asyncapi.json")
		require.NoError(t, err)
		require.Equal(t, string(want), string(have))
	}
	o = finish(t, command(t, nil, "flow", "asyncapi", "--folder", filepath.Join(dir, "nowhere"), demoHops))
	require.Equal(t, 1, o.status)
}

// The output in docs/flow-reference.md is the commands' output.
func TestTheFlowReferenceShowsWhatCommandsPrint(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/flow-reference.md")
	require.NoError(t, err)
	shown := func(dir, as string, args ...string) {
		o := finish(t, command(t, nil, args...))
		require.Equal(t, 1, o.status, o.stderr)
		for line := range strings.Lines(strings.ReplaceAll(o.stdout, dir, as)) {
			require.Contains(t, string(page), "\n    "+line)
		}
	}
	dir := orderReactions(t, "inventory", `"undoes": ["troupe.order.StockReserved"]`, `"attempts": 1`)
	shown(dir, "services", "flow", "verify", dir)
	dir = orderReactions(t, "shipping", `"type": "troupe.order.OrderShipped"`, `"type": "troupe.order.Shipped"`)
	shown(dir, "new", "flow", "diff", demoHops, dir)
}

func TestFlowSchemaPrintsTheSchema(t *testing.T) {
	t.Parallel()
	o := finish(t, command(t, nil, "flow", "schema"))
	require.Equal(t, outcome{stdout: string(flow.Schema())}, o)
}
