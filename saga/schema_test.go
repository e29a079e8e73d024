package saga_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/saga"
)

// A node is a part of the schema, with the keywords that the tests read.
type node struct {
	Ref         string          `json:"$ref"`
	Description string          `json:"description"`
	Kind        any             `json:"type"`
	Pattern     string          `json:"pattern"`
	Enum        []string        `json:"enum"`
	Required    []string        `json:"required"`
	Properties  properties      `json:"properties"`
	Items       *node           `json:"items"`
	AllOf       []node          `json:"allOf"`
	Additional  json.RawMessage `json:"additionalProperties"`
	Defs        properties      `json:"$defs"`
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

func (p properties) of(name string) *node {
	for i := range p {
		if p[i].Name == name {
			return &p[i].node
		}
	}
	return nil
}

func schemaTree(t testing.TB) *node {
	t.Helper()
	var root node
	require.NoError(t, json.Unmarshal(saga.Schema(), &root))
	return &root
}

// resolve follows references to the definition of a node, and returns its name; "" if the node has no reference.
func (n *node) resolve(t testing.TB, root *node) (string, *node) {
	t.Helper()
	ref := n.Ref
	if ref == "" && len(n.AllOf) > 0 {
		ref = n.AllOf[0].Ref
	}
	if ref == "" {
		return "", n
	}
	name, local := strings.CutPrefix(ref, "#/$defs/")
	require.True(t, local, ref)
	def := root.Defs.of(name)
	require.NotNil(t, def, "%s is defined nowhere", ref)
	return name, def
}

func TestTheSchemaIsOfTheTypes(t *testing.T) {
	t.Parallel()
	root := schemaTree(t)
	walk := walker{t: t, root: root, used: make(map[string]bool)}
	walk.structure("Spec", reflect.TypeFor[saga.Spec](), root)
	for _, def := range root.Defs {
		require.NotEmpty(t, def.Description, "%s needs a description", def.Name)
		require.True(t, walk.used[def.Name], "$defs/%s is used by no field: strike it out", def.Name)
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
	require.JSONEq(w.t, "false", string(n.Additional), "%s: it must refuse unknown fields", path)
	var names, required []string
	for i := range typ.NumField() {
		f := typ.Field(i)
		if !f.IsExported() {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
		if options == "" {
			required = append(required, name)
		}
		in := n.Properties.of(name)
		require.NotNil(w.t, in, "%s.%s is missing in the schema", path, name)
		require.NotEmpty(w.t, in.Description, "%s.%s needs a description", path, name)
		w.value(path+"."+name, f.Type, in)
	}
	var have []string
	for _, p := range n.Properties {
		have = append(have, p.Name)
	}
	require.Equal(w.t, names, have, "%s: fields, in order", path)
	require.Equal(w.t, required, n.Required, "%s: which fields must be there", path)
}

func (w *walker) value(path string, typ reflect.Type, n *node) {
	name, n := n.resolve(w.t, w.root)
	seen := w.used[name]
	if name != "" {
		w.used[name] = true
	}
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch typ {
	case reflect.TypeFor[saga.Duration]():
		require.Equal(w.t, "Duration", name, path)
		return
	case reflect.TypeFor[saga.Mapping](), reflect.TypeFor[saga.Type](), reflect.TypeFor[saga.Join](),
		reflect.TypeFor[saga.Exhausted](), reflect.TypeFor[saga.Then]():
		require.Equal(w.t, typ.Name(), name, path)
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
	case reflect.Map:
		require.Equal(w.t, "object", n.Kind, path)
		var of node
		require.NoError(w.t, json.Unmarshal(n.Additional, &of), path)
		w.value(path+"{}", typ.Elem(), &of)
	case reflect.String:
		require.True(w.t, n.Kind == "string" || len(n.Enum) > 0, "%s: want a string", path)
	case reflect.Int, reflect.Int64:
		require.Equal(w.t, "integer", n.Kind, path)
	case reflect.Bool:
		require.Equal(w.t, "boolean", n.Kind, path)
	default:
		w.t.Errorf("%s: the schema has no word for a %s", path, typ)
	}
}

// constants returns the values of the constants of a type, in the order of the source, without "", which JSON leaves out.
func constants(t *testing.T, folder, typ string) (values []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if of, named := spec.Type.(*ast.Ident); !named || of.Name != typ {
				return true
			}
			for _, v := range spec.Values {
				if literal, ok := v.(*ast.BasicLit); ok && literal.Value != `""` {
					value, err := strconv.Unquote(literal.Value)
					require.NoError(t, err)
					values = append(values, value)
				}
			}
			return true
		})
	}
	return values
}

func TestTheSchemasChoicesAreThoseOfTheTypes(t *testing.T) {
	t.Parallel()
	root := schemaTree(t)
	for typ, folder := range map[string]string{"Type": "../internal/expr", "Join": ".", "Exhausted": ".", "Then": "."} {
		require.Equal(t, constants(t, folder, typ), root.Defs.of(typ).Enum, typ)
	}
	for _, name := range root.Defs.of("Type").Enum {
		require.True(t, expr.Type(name).Valid(), name)
	}
}

func compiled(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(saga.Schema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("saga.schema.json", doc))
	s, err := c.Compile("saga.schema.json")
	require.NoError(t, err)
	return s
}

func refusedBySchema(t testing.TB, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return s.Validate(doc)
}

func TestEveryDefinitionHereKeepsTheSchema(t *testing.T) {
	t.Parallel()
	schema, found := compiled(t), 0
	require.NoError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".saga.json") {
			return err
		}
		found++
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		if !strings.Contains(path, ".bad.") { // the verifier's bad examples; one of them has an expression that does not compile
			_, err = saga.Parse(text)
			require.NoError(t, err, path)
		}
		require.NoError(t, refusedBySchema(t, schema, text), path)
		return nil
	}))
	require.Positive(t, found)
}

// everything returns a definition that uses every field.
func everything() saga.Spec {
	minute := saga.Duration(time.Minute)
	set := func(name string) []saga.Answer {
		return []saga.Answer{{Event: "Done", Hop: "pay", When: "event.ok == true", Set: saga.Mapping{name: "event.x"}}}
	}
	retry := &saga.Retry{Attempts: 3, Initial: minute, Cap: 2 * minute, Try: minute}
	told := []saga.Emit{{Event: "Told", Hop: "pay", Failure: true, Input: saga.Mapping{"id": "data.id"}}}
	return saga.Spec{
		Saga: "everything", Version: 2, Description: "every field", Key: "id",
		Data: map[string]saga.Type{"id": saga.String, "guests": saga.Any, "rooms": saga.Any, "a": saga.Any, "b": saga.Int, "c": saga.Bool, "d": saga.Double},
		Lock: "data.id", Timeout: 600 * minute, Stash: minute,
		Start: []saga.Start{{Hop: "shop", Event: "Ordered", When: "event.n > 0", Set: saga.Mapping{"id": "event.id"}}},
		Steps: []saga.Step{
			{
				Name: "pay", Command: &saga.Command{Hop: "pay", Type: "Pay", Input: saga.Mapping{"id": "data.id"}},
				Success: set("a"), Failure: []saga.Answer{{Event: "Refused", Reason: "event.why"}},
				Timeout: minute, Retry: retry, Exhausted: saga.CompensateThen, When: "data.id != ''",
				Compensation: &saga.Compensation{
					Command: &saga.Command{Hop: "pay", Type: "Refund"}, Success: []saga.Answer{{Event: "Refunded"}},
					Timeout: minute, Retry: retry,
				},
			},
			{
				Name: "reserve",
				Call: &saga.Call{Hop: "hotel", Method: "POST", Endpoint: "/rooms/{id}", Body: saga.Mapping{"a": "data.id"}},
				Compensation: &saga.Compensation{
					Call: &saga.Call{Hop: "hotel", Method: "DELETE", Endpoint: "/rooms/{id}"},
				},
			},
			{
				Name: "room", ForEach: &saga.ForEach{List: "data.guests", As: "guest", Max: 4, Parallel: 2},
				Command: &saga.Command{Hop: "hotel", Type: "Room", Input: saga.Mapping{"of": "guest.name", "at": "index"}},
				Success: []saga.Answer{{Event: "Booked", Set: saga.Mapping{"rooms": "event.room"}}}, Irreversible: "rooms are free",
			},
			{
				Name: "wait", Needs: []string{"pay", "reserve"}, AtLeast: 1, Optional: true, Success: []saga.Answer{{
					Event: "Checked", Hop: "check", By: &saga.Association{Variable: "id", Field: "application"},
					Form: &saga.Form{Title: "Check it", Fields: []saga.Field{
						{Name: "n", Type: saga.Int, Title: "Number", Optional: true, Min: limit(1), Max: limit(9), Personal: true},
						{Name: "how", Type: saga.String, OneOf: []string{"well", "badly"}},
					}},
				}},
			},
			{
				Name: "send", Needs: []string{"pay", "wait"}, Join: saga.Merge, Pivot: true, Retriable: true,
				Command: &saga.Command{Hop: "post", Type: "Send"}, Success: []saga.Answer{{Event: "Sent"}}, Irreversible: "gone",
			},
		},
		Deadlines: []saga.Deadline{{
			Name: "reminder", After: minute, Since: "pay", Until: []string{"wait"}, Payload: saga.Mapping{"n": "1"},
			Emit: told, Then: saga.ThenPark,
		}},
		Ends: []saga.End{{When: "data.c", Then: saga.ThenComplete, Reason: "'c'", Emit: told}},
		Cancel: &saga.Cancel{
			Before: "send", Events: []saga.Answer{{Event: "Cancel", Hop: "shop", When: "event.ok == true", Reason: "event.why"}}, Operator: true, Refused: told,
		},
		Completed: told, Compensated: told,
	}
}

// A mutant is a definition's JSON with one change.
type mutant struct {
	where string
	text  []byte
}

// mutants leaves out each value once, and replaces each value once by one of another kind.
func mutants(t testing.TB, text []byte) (all []mutant) {
	t.Helper()
	var doc any
	require.NoError(t, json.Unmarshal(text, &doc))
	add := func(format string, args ...any) {
		text, err := json.Marshal(doc)
		require.NoError(t, err)
		all = append(all, mutant{fmt.Sprintf(format, args...), text})
	}
	others := []any{7.5, -1.0, true, "Not A Name\n", []any{1.0}, map[string]any{"colour": 1.0}}
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
				for _, other := range others {
					v[name] = other
					add("%s.%s = %v", path, name, other)
				}
				v[name] = was
				walk(path+"."+name, was)
			}
		case []any:
			for i, was := range v {
				for _, other := range others {
					v[i] = other
					add("%s[%d] = %v", path, i, other)
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
	d, err := saga.Define(everything())
	require.NoError(t, err)
	schema := compiled(t)
	require.NoError(t, refusedBySchema(t, schema, d.JSON()))
	spelledOut := []string{"retry without initial"} // the schema requires a wait of zero to be written
	both := 0
	for _, m := range mutants(t, d.JSON()) {
		if refusedBySchema(t, schema, m.text) == nil {
			continue // Parse checks more than the schema
		}
		if _, err := saga.Parse(m.text); err == nil {
			require.True(t, slices.ContainsFunc(spelledOut, func(s string) bool { return strings.HasSuffix(m.where, s) }),
				"the schema refuses %s, and Parse takes it", m.where)
			continue
		}
		both++
	}
	require.Greater(t, both, 500)
}

func TestTheDefinitionOfEverythingHasEveryField(t *testing.T) {
	t.Parallel()
	set := make(map[string]bool)
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if !v.Type().Field(i).IsExported() {
					continue
				}
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
