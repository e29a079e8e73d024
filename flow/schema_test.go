package flow_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/flow"
)

// A node is a part of the schema, with the keywords that the tests read.
type node struct {
	Ref         string     `json:"$ref"`
	Description string     `json:"description"`
	Kind        string     `json:"type"`
	Pattern     string     `json:"pattern"`
	Required    []string   `json:"required"`
	Properties  properties `json:"properties"`
	Items       *node      `json:"items"`
	Additional  *bool      `json:"additionalProperties"`
	Defs        properties `json:"$defs"`
}

// properties keeps the schema's order.
type properties []property

type property struct {
	Name string
	node
}

func (p *properties) UnmarshalJSON(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		one := property{Name: name.(string)}
		if err := dec.Decode(&one.node); err != nil {
			return err
		}
		*p = append(*p, one)
	}
	return nil
}

func schemaTree(t testing.TB) *node {
	t.Helper()
	var root node
	require.NoError(t, json.Unmarshal(flow.Schema(), &root))
	return &root
}

// resolve follows a reference to the definition of a node, and returns its name; "" if the node has no reference.
func (n *node) resolve(t testing.TB, root *node) (string, *node) {
	t.Helper()
	if n.Ref == "" {
		return "", n
	}
	for i, def := range root.Defs {
		if n.Ref == "#/$defs/"+def.Name {
			return def.Name, &root.Defs[i].node
		}
	}
	require.Fail(t, "defined nowhere", n.Ref)
	return "", nil
}

func TestTheSchemaIsOfTheTypes(t *testing.T) {
	t.Parallel()
	w := walker{t: t, root: schemaTree(t), used: make(map[string]bool)}
	w.structure("Service", reflect.TypeFor[flow.Declaration](), w.root)
	for _, def := range w.root.Defs {
		require.NotEmpty(t, def.Description, "%s needs a description", def.Name)
		require.True(t, w.used[def.Name], "$defs/%s is used by no field: strike it out", def.Name)
	}
}

// walker compares Go types with the schema.
type walker struct {
	t    *testing.T
	root *node
	used map[string]bool
}

func (w *walker) structure(path string, typ reflect.Type, n *node) {
	require.Equal(w.t, "object", n.Kind, path)
	require.NotNil(w.t, n.Additional, "%s: it must refuse unknown fields", path)
	require.False(w.t, *n.Additional, path)
	var names, required, have []string
	for i := range typ.NumField() {
		name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
		if options == "" {
			required = append(required, name)
		}
	}
	for _, p := range n.Properties {
		have = append(have, p.Name)
	}
	require.Equal(w.t, names, have, "%s: fields, in order", path)
	require.Equal(w.t, required, n.Required, "%s: which fields must be there", path)
	for i, p := range n.Properties {
		require.NotEmpty(w.t, p.Description, "%s.%s needs a description", path, p.Name)
		w.value(path+"."+p.Name, typ.Field(i).Type, &p.node)
	}
}

func (w *walker) value(path string, typ reflect.Type, n *node) {
	name, n := n.resolve(w.t, w.root)
	seen := w.used[name]
	if name != "" {
		w.used[name] = true
	}
	switch typ.Kind() {
	case reflect.Struct:
		require.Equal(w.t, typ.Name(), name, path)
		if !seen {
			w.structure(name, typ, n)
		}
	case reflect.Slice:
		require.Equal(w.t, "array", n.Kind, path)
		w.value(path+"[]", typ.Elem(), n.Items)
	default:
		want := map[reflect.Kind]string{reflect.String: "string", reflect.Int: "integer", reflect.Bool: "boolean"}
		require.Equal(w.t, want[typ.Kind()], n.Kind, path)
	}
}

func compiled(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(flow.Schema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("reactions.schema.json", doc))
	s, err := c.Compile("reactions.schema.json")
	require.NoError(t, err)
	return s
}

func refusedBySchema(t testing.TB, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return s.Validate(doc)
}

func TestEveryReactionsFileHereKeepsTheSchema(t *testing.T) {
	t.Parallel()
	schema, found := compiled(t), 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "reactions.json" {
			return err
		}
		found++
		_, err = flow.Load(path)
		require.NoError(t, err)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, refusedBySchema(t, schema, text), path)
		return nil
	}))
	require.Positive(t, found)
}

// everything returns a service that uses every field.
func everything() flow.Declaration {
	event := func(typ string) flow.Message { return flow.Message{Topic: "order.payment.events", Type: typ} }
	heard := func(typ string) flow.Message { return flow.Message{Topic: "order.shop.events", Type: typ} }
	last := event("Ended")
	last.Last = true
	return flow.Declaration{
		Hop:    "order.payment",
		Starts: []flow.Message{event("Opened")},
		Reactions: []flow.Reaction{
			{On: heard("Placed"), Success: []flow.Message{event("Paid")}, Failure: []flow.Message{event("Refused")}, Attempts: 3},
			{On: heard("Cancelled"), Success: []flow.Message{event("Refunded")}, Undoes: []string{"Paid"}},
			{On: heard("Told"), Success: []flow.Message{last}, Irreversible: "a notice cannot be withdrawn"},
		},
		Joins: []flow.Join{{
			Name: "both", Await: []flow.Message{heard("A"), heard("B")}, Within: "1h30m", Success: []flow.Message{event("Joined")},
			Expired: []flow.Message{event("TooLate")}, Broken: []flow.Message{heard("NoB")},
		}},
		Expectations: []flow.Expectation{{
			Name: "thanks", After: heard("Placed"), Expect: []flow.Message{heard("Thanked")}, Within: "30s", Raise: event("Thankless"), Late: []flow.Message{event("ThankedLate")},
		}},
	}
}

// mutants returns the same JSON with one change each: each value is left out once, and replaced once by one of another kind.
func mutants(t testing.TB, text []byte) map[string][]byte {
	t.Helper()
	var doc any
	require.NoError(t, json.Unmarshal(text, &doc))
	all := make(map[string][]byte)
	add := func(format string, args ...any) {
		text, err := json.Marshal(doc)
		require.NoError(t, err)
		all[fmt.Sprintf(format, args...)] = text
	}
	others := []any{7.5, -1.0, 2000.0, true, "Not A Name\n", "", nil, []any{}, []any{1.0}, map[string]any{"colour": 1.0}}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			v["colour"] = "red"
			add("%s.colour", path)
			delete(v, "colour")
			for name, was := range v {
				delete(v, name)
				add("%s without %s", path, name)
				v[strings.ToUpper(name)] = was
				add("%s with %s in capitals", path, name)
				delete(v, strings.ToUpper(name))
				for i, other := range others {
					v[name] = other
					add("%s.%s = %d", path, name, i)
				}
				v[name] = was
				walk(path+"."+name, was)
			}
		case []any:
			for i, was := range v {
				for k, other := range others {
					v[i] = other
					add("%s[%d] = %d", path, i, k)
				}
				v[i] = was
				walk(fmt.Sprintf("%s[%d]", path, i), was)
			}
		}
	}
	walk("", doc)
	return all
}

func TestParseRefusesWhateverTheSchemaRefuses(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(everything())
	require.NoError(t, err)
	_, err = flow.Parse(text)
	require.NoError(t, err)
	schema := compiled(t)
	require.NoError(t, refusedBySchema(t, schema, text))
	both := 0
	for where, text := range mutants(t, text) {
		if refusedBySchema(t, schema, text) == nil {
			continue // Parse checks more than the schema
		}
		_, err := flow.Parse(text)
		require.Error(t, err, "the schema refuses %s, and Parse takes it: %s", where, text)
		both++
	}
	require.Greater(t, both, 500)
}

func TestTheServiceOfEverythingHasEveryField(t *testing.T) {
	t.Parallel()
	set := make(map[string]bool)
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				name := v.Type().Name() + "." + v.Type().Field(i).Name
				set[name] = set[name] || !v.Field(i).IsZero()
				walk(v.Field(i))
			}
		}
	}
	walk(reflect.ValueOf(everything()))
	for name, is := range set {
		require.True(t, is, "%s is never set", name)
	}
}
