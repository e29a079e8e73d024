package graph_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/flow/graph"
)

var update = flag.Bool("update", false, "rewrite the drawings in testdata")

func orderFlow(t testing.TB) (services []flow.Declaration) {
	t.Helper()
	for _, hop := range []string{"order", "payment", "inventory", "shipping"} {
		s, err := flow.Load(filepath.Join("..", "..", "..", "internal", "demo", hop, "reactions.json"))
		require.NoError(t, err)
		services = append(services, s)
	}
	return services
}

// odd is a flow of everything that is drawn in its own way, with a type that contains the syntax of drawings.
func odd() []flow.Declaration {
	event := func(hop, typ string) flow.Message { return flow.Message{Topic: hop + ".events", Type: typ} }
	odd := event("f.a", `<b>"x"|&#`)
	end := event("f.b", "End")
	end.Last = true
	return []flow.Declaration{
		{Hop: "f.a", Starts: []flow.Message{odd, event("f.a", "Other")}, Reactions: []flow.Reaction{
			{On: event("f.a", "Other"), Success: []flow.Message{event("f.a", "More")}},
		}},
		{
			Hop:   "g.b",
			Joins: []flow.Join{{Name: "both", Await: []flow.Message{odd, event("f.a", "More")}, Success: []flow.Message{end}}},
			Expectations: []flow.Expectation{{
				Name: "soon", After: odd, Expect: []flow.Message{event("f.a", "More")}, Within: "30s", Raise: event("g.b", "Late"),
			}},
		},
	}
}

func golden(t *testing.T, name, have string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(have), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), have, "%s: go test ./internal/flow/graph -update", name)
}

func TestDrawings(t *testing.T) {
	t.Parallel()
	golden(t, "order.mmd", graph.Mermaid(orderFlow(t)))
	golden(t, "order.svg", graph.SVG(orderFlow(t)))
	golden(t, "odd.mmd", graph.Mermaid(odd()))
	golden(t, "odd.svg", graph.SVG(odd()))
}

func TestAFailureThatEndsAFlowIsDrawnAsAFailure(t *testing.T) {
	t.Parallel()
	drawn := graph.Mermaid(orderFlow(t))
	require.Contains(t, drawn, `-.->|"OrderLate"| e`)
	require.Contains(t, drawn, `-->|"OrderCompleted"| e`)
}

func TestASVGIsXMLAndTakesNoTextForItsOwn(t *testing.T) {
	t.Parallel()
	drawn := graph.SVG(odd())
	for dec := xml.NewDecoder(strings.NewReader(drawn)); ; {
		_, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	require.NotContains(t, drawn, "<b>")
	require.NotContains(t, strings.ReplaceAll(graph.Mermaid(odd()), "<br/>", ""), "<b>")
}

func TestEveryMessageIsDrawnOnce(t *testing.T) {
	t.Parallel()
	drawn := graph.SVG(orderFlow(t))
	for _, typ := range []string{
		"OrderPlaced", "PaymentCharged", "PaymentRefused", "StockReserved", "StockRefused", "OrderShipped", "ShippingRefused", "StockReleased",
		"PaymentRefunded", "OrderCompleted", "OrderCancelled", "OrderLate",
	} {
		require.Equal(t, 1, strings.Count(drawn, ">troupe.order."+typ+" on "), typ)
	}
}

func TestNothingIsDrawnToo(t *testing.T) {
	t.Parallel()
	require.Equal(t, "flowchart LR\n", graph.Mermaid(nil))
	require.Contains(t, graph.SVG(nil), "</svg>")
}

func ExampleMermaid() {
	fmt.Print(graph.Mermaid([]flow.Declaration{
		{Hop: "order.order", Starts: []flow.Message{{Topic: "order.order.events", Type: "OrderPlaced"}}},
		{Hop: "order.mail", Reactions: []flow.Reaction{{On: flow.Message{Topic: "order.order.events", Type: "OrderPlaced"}}}},
	}))
	// Output:
	// flowchart LR
	//     s0["order"]
	//     s1["mail"]
	//     b0(( )) --> s0
	//     s0 -->|"OrderPlaced"| s1
}

func ExampleSVG() {
	drawing := graph.SVG([]flow.Declaration{
		{Hop: "order.order", Starts: []flow.Message{{Topic: "order.order.events", Type: "OrderPlaced", Last: true}}},
	})
	fmt.Println(drawing[:4], strings.Contains(drawing, "OrderPlaced"))
	// Output: <svg true
}
