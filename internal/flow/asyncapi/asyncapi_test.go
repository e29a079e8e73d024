package asyncapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
	"github.com/troupe-go/troupe/internal/flow/asyncapi"
)

var update = flag.Bool("update", false, "rewrite the documents in testdata; then run official.sh")

// official returns the JSON Schema of AsyncAPI 3.0.0 as published by its makers, which their parser checks documents with
// first.
func official(t testing.TB) *jsonschema.Schema {
	t.Helper()
	f, err := os.Open("testdata/asyncapi-3.0.0.json.gz")
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(z)
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("asyncapi.json", doc))
	s, err := c.Compile("asyncapi.json")
	require.NoError(t, err)
	return s
}

// odd is a service that uses everything, with types that contain characters which names in a document may not have.
func odd() flow.Declaration {
	event := func(hop, typ string) flow.Message { return flow.Message{Topic: hop + ".events", Type: typ} }
	return flow.Declaration{
		Hop: "f.odd", Starts: []flow.Message{event("f.odd", "a/b"), event("f.odd", "a~b"), event("f.odd", "a%b")},
		Reactions: []flow.Reaction{
			{
				On: flow.Message{Topic: "f.odd.commands", Type: "Do"}, Success: []flow.Message{event("f.odd", "Did")},
				Failure: []flow.Message{event("f.odd", "Not")},
			},
			{On: event("f.other", "Undo"), Undoes: []string{"Did"}},
			{On: event("f.other", "Did"), Success: []flow.Message{{Topic: "f.other.commands", Type: "Do"}}, Irreversible: "no"},
		},
		Joins: []flow.Join{{
			Name: "both", Await: []flow.Message{event("f.other", "A"), event("f.other", "B")}, Within: "1h",
			Success: []flow.Message{event("f.odd", "Both")}, Expired: []flow.Message{event("f.odd", "Late")},
			Broken: []flow.Message{event("f.other", "NoA")},
		}},
		Expectations: []flow.Expectation{{
			Name: "soon", After: event("f.other", "A"), Expect: []flow.Message{event("f.other", "B")}, Within: "30s",
			Raise: event("f.odd", "Missing"),
		}},
	}
}

func services(t testing.TB) []flow.Declaration {
	t.Helper()
	all := []flow.Declaration{odd()}
	for _, hop := range []string{"order", "payment", "inventory", "shipping"} {
		s, err := flow.Load(filepath.Join("..", "..", "..", "internal", "demo", hop, "reactions.json"))
		require.NoError(t, err)
		all = append(all, s)
	}
	return all
}

// The documents that official.sh has checked with AsyncAPI's own parser are equal to the documents that are written now.
func TestDocumentsAreThoseThatTheOfficialParserTook(t *testing.T) {
	t.Parallel()
	schema := official(t)
	for _, s := range services(t) {
		text, err := asyncapi.Document(s, "")
		require.NoError(t, err)
		path := filepath.Join("testdata", s.Hop+".asyncapi.json")
		if *update {
			require.NoError(t, os.WriteFile(path, text, 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), string(text), "go test ./internal/flow/asyncapi -update && internal/flow/asyncapi/official.sh")
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(doc), s.Hop)
		resolved(t, doc, doc)
	}
	have, err := filepath.Glob("testdata/*.asyncapi.json")
	require.NoError(t, err)
	require.Len(t, have, len(services(t)))
}

// resolved follows every reference, which a JSON Schema does not check.
func resolved(t *testing.T, root, v any) {
	switch v := v.(type) {
	case map[string]any:
		if to, is := v["$ref"].(string); is {
			at := root
			for _, name := range strings.Split(strings.TrimPrefix(to, "#/"), "/") {
				inside, ok := at.(map[string]any)[name]
				require.True(t, ok, to)
				at = inside
			}
		}
		for _, inside := range v {
			resolved(t, root, inside)
		}
	case []any:
		for _, inside := range v {
			resolved(t, root, inside)
		}
	}
}

func TestTheSchemaRefusesWhatIsNoDocument(t *testing.T) {
	t.Parallel()
	text, err := asyncapi.Document(odd(), "2.0.0")
	require.NoError(t, err)
	schema := official(t)
	for was, is := range map[string]string{`"action": "send"`: `"action": "post"`, `"info"`: `"infos"`, `"address"`: `"adress"`} {
		require.Contains(t, string(text), was)
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(strings.ReplaceAll(string(text), was, is)))
		require.NoError(t, err)
		require.Error(t, schema.Validate(doc), is)
	}
}

func TestAnInvalidServiceHasNoDocument(t *testing.T) {
	t.Parallel()
	_, err := asyncapi.Document(flow.Declaration{Hop: "f.odd"}, "")
	require.ErrorContains(t, err, "it takes no part in the flow")
}

func ExampleDocument() {
	text, err := asyncapi.Document(flow.Declaration{
		Hop: "order.order", Starts: []flow.Message{{Topic: "order.order.events", Type: "OrderPlaced", Last: true}},
	}, "1.2.0")
	if err != nil {
		panic(err)
	}
	var d struct {
		AsyncAPI   string
		Info       struct{ Title, Version string }
		Operations map[string]struct{ Action, Summary string }
	}
	if err := json.Unmarshal(text, &d); err != nil {
		panic(err)
	}
	fmt.Println(d.AsyncAPI, d.Info.Title, d.Info.Version)
	for name, op := range d.Operations {
		fmt.Println(name, op.Action, op.Summary)
	}
	// Output:
	// 3.0.0 order.order 1.2.0
	// send.order.order.events.OrderPlaced send Begins a flow, or comes into one of its key.
}
