package shapes_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/formats"
	"github.com/troupe-go/troupe/internal/saga/verify"
	"github.com/troupe-go/troupe/internal/shapes"
	"github.com/troupe-go/troupe/saga"
	"github.com/troupe-go/troupe/schemas"
)

// A value is a type in a schema: of kind string, int, bool, double, object, list or map.
type value struct {
	kind   string
	name   string  // of an object
	fields []field // of an object
	of     *value  // of a list or a map
}

type field struct {
	name               string
	optional, nullable bool // nullable: a JSON Schema allows null too
	value
}

var scalars = []string{"string", "int", "bool", "double"}

// A world makes schemas, events and definitions at random.
type world struct {
	*testing.T
	dice   *rand.Rand
	format string
	codec  *schemas.Codec
	client *sr.Client
	shapes map[string]*expr.Shape
	types  map[string]value
	events map[string][]map[string]any // of each type, for bornOut
	n      int
}

func (w *world) maybe(percent int) bool { return w.dice.IntN(100) < percent }

func pick[T any](w *world, all []T) T { return all[w.dice.IntN(len(all))] }

// object makes a type with a field of each scalar kind, and some others.
func (w *world) object(depth int) value {
	w.n++
	v := value{kind: "object", name: fmt.Sprintf("R%d", w.n)}
	kinds := slices.Clone(scalars)
	for range w.dice.IntN(3) {
		kinds = append(kinds, pick(w, scalars))
	}
	if depth < 2 {
		for range w.dice.IntN(3) {
			kinds = append(kinds, pick(w, []string{"object", "list", "map"}))
		}
	}
	for i, kind := range kinds {
		f := field{name: fmt.Sprintf("%s%d", kind, i), optional: w.maybe(40), nullable: w.maybe(50), value: value{kind: kind}}
		switch kind {
		case "object":
			f.value = w.object(depth + 1)
			f.optional = f.optional || w.format == "PROTOBUF"
		case "list", "map":
			of := value{kind: pick(w, scalars)}
			if w.maybe(60) {
				of = w.object(depth + 1)
			}
			f.of = &of
			f.optional = f.optional && w.format != "PROTOBUF"
		}
		v.fields = append(v.fields, f)
	}
	return v
}

func quoted(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

var names = map[string]map[string]string{
	"AVRO":     {"string": "string", "int": "long", "bool": "boolean", "double": "double"},
	"JSON":     {"string": "string", "int": "integer", "bool": "boolean", "double": "number", "object": "object", "list": "array", "map": "object"},
	"PROTOBUF": {"string": "string", "int": "int64", "bool": "bool", "double": "double"},
}

func avroOf(v value) any {
	switch v.kind {
	case "object":
		fields := []any{}
		for _, f := range v.fields {
			one := map[string]any{"name": f.name, "type": avroOf(f.value)}
			if f.optional {
				one["type"], one["default"] = []any{"null", one["type"]}, nil
			}
			fields = append(fields, one)
		}
		return map[string]any{"type": "record", "name": v.name, "fields": fields}
	case "list":
		return map[string]any{"type": "array", "items": avroOf(*v.of)}
	case "map":
		return map[string]any{"type": "map", "values": avroOf(*v.of)}
	}
	return names["AVRO"][v.kind]
}

func jsonOf(v value, nullable bool) map[string]any {
	s := map[string]any{"type": names["JSON"][v.kind]}
	if nullable {
		s["type"] = []any{s["type"], "null"}
	}
	switch v.kind {
	case "object":
		required, properties := []any{}, map[string]any{}
		for _, f := range v.fields {
			properties[f.name] = jsonOf(f.value, f.optional && f.nullable)
			if !f.optional {
				required = append(required, f.name)
			}
		}
		s["required"], s["properties"] = required, properties
	case "list":
		s["items"] = jsonOf(*v.of, false)
	case "map":
		s["additionalProperties"] = jsonOf(*v.of, false)
	}
	return s
}

// protoOf writes the message of a type, and the messages in it.
func protoOf(v value, b *strings.Builder) string {
	if v.kind != "object" {
		return names["PROTOBUF"][v.kind]
	}
	var own strings.Builder
	for i, f := range v.fields {
		label, of := "", f.value
		switch {
		case f.kind == "list":
			label, of = "repeated ", *f.of
		case f.kind == "map":
			of = *f.of
		case f.optional && f.kind != "object":
			label = "optional "
		}
		typ := protoOf(of, b)
		if f.kind == "map" {
			typ = "map<string, " + typ + ">"
		}
		fmt.Fprintf(&own, "%s%s %s = %d; ", label, typ, f.name, i+1)
	}
	fmt.Fprintf(b, "message %s { %s}\n", v.name, own.String())
	return v.name
}

// declare registers a schema for messages of a type.
func (w *world) declare(name string, v value) {
	v.name = name
	w.types[name] = v
	var text string
	var err error
	switch w.format {
	case "AVRO":
		text = quoted(avroOf(v))
		w.shapes[name], err = shapes.Avro(text)
	case "JSON":
		s := jsonOf(v, false)
		s["title"] = name
		text = quoted(s)
		w.shapes[name], err = shapes.JSON(text)
	default:
		var b strings.Builder
		protoOf(v, &b)
		text = "syntax = \"proto3\";\n" + b.String()
		all, wrong := formats.Of("b.proto").Declare(fstest.MapFS{"b.proto": &fstest.MapFile{Data: []byte(text)}}, "b.proto")
		require.NoError(w, wrong)
		for _, d := range all {
			if d.Name == name {
				w.shapes[name] = shapes.Protobuf(d.Message.(protoreflect.MessageDescriptor))
			}
		}
	}
	require.NoError(w, err)
	require.NotNil(w, w.shapes[name])
	var kind sr.SchemaType
	require.NoError(w, kind.UnmarshalText([]byte(w.format)))
	_, err = w.client.CreateSchema(w.Context(), name, sr.Schema{Schema: text, Type: kind})
	require.NoError(w, err)
}

// sample returns a value of a type. Lists and maps are never empty, since the verifier does not check indexes and keys.
func (w *world) sample(v value) any {
	switch v.kind {
	case "string":
		return pick(w, []string{"a", "b", "2026-11-27"})
	case "int":
		return w.dice.IntN(4)
	case "bool":
		return w.maybe(50)
	case "double":
		if w.format == "JSON" && w.maybe(50) {
			return w.dice.IntN(3)
		}
		return float64(w.dice.IntN(3)) + 0.5
	case "list":
		return []any{w.sample(*v.of), w.sample(*v.of)}
	case "map":
		return map[string]any{"a": w.sample(*v.of)}
	}
	fields := make(map[string]any)
	for _, f := range v.fields {
		switch {
		case !f.optional || w.maybe(50):
			fields[f.name] = w.sample(f.value)
		case w.format == "JSON" && f.nullable && w.maybe(50):
			fields[f.name] = nil
		}
	}
	return fields
}

// event returns the fields of a message as a coordinator reads them.
func (w *world) event(name string) map[string]any {
	encoded, err := w.codec.FromValues(w.Context(), name, []byte(quoted(w.sample(w.types[name]))))
	require.NoError(w, err)
	_, read, err := w.codec.Values(w.Context(), encoded.Payload)
	require.NoError(w, err)
	fields := read.(map[string]any)
	require.NoError(w, saga.Canonical(fields))
	return fields
}

// A path is the text of a value in an event, with the conditions under which it is there.
type path struct {
	text   string
	guards []string
	value
}

// paths returns all values in an object, without the ones in a list of which not all elements have them.
func paths(at path, all *[]path) {
	*all = append(*all, at)
	switch at.kind {
	case "object":
		for _, f := range at.fields {
			inner := path{at.text + "." + f.name, slices.Clone(at.guards), f.value}
			if f.optional {
				inner.guards = append(inner.guards, fmt.Sprintf("has(%s) && %s != null", inner.text, inner.text))
			}
			paths(inner, all)
		}
	case "list":
		paths(path{at.text + "[0]", at.guards, *at.of}, all)
	case "map":
		paths(path{at.text + "['a']", at.guards, *at.of}, all)
	}
}

// path returns a value of a kind in an event, and sometimes another one, or one that is not there.
func (w *world) path(kind string, all []path) path {
	right := slices.DeleteFunc(slices.Clone(all), func(p path) bool { return p.kind != kind })
	p := pick(w, right)
	switch {
	case w.maybe(2):
		p = pick(w, all)
	case w.maybe(1) && !strings.HasSuffix(p.text, "]"):
		p.text += "x"
	}
	return p
}

var constants = map[string]string{"string": "'c'", "int": "7", "bool": "true", "double": "1.5"}

// expression returns a text that is mostly of a kind, over the values of an event.
func (w *world) expression(kind string, all []path, depth int) string {
	p := w.path(kind, all)
	text := p.text
	again := func(kind string) string { return "(" + w.expression(kind, all, depth+1) + ")" }
	if depth < 2 {
		switch roll := w.dice.IntN(12); {
		case kind == "string" && roll == 0:
			text = "string(" + again("int") + ")"
		case kind == "string" && roll == 1:
			text += " + '-x'"
		case kind == "int" && roll == 0:
			text += " + 1"
		case kind == "int" && roll == 1:
			if l := w.path("list", append(all, path{text: "[1, 2]", value: value{kind: "list"}})); l.kind == "list" {
				text, p.guards = l.text+".size()", l.guards
			}
		case kind == "double" && roll == 0:
			text += " * 2.0"
		case kind == "bool" && roll == 0:
			text = again("int") + pick(w, []string{" > 1", " <= 2", " == 1"})
		case kind == "bool" && roll == 1:
			text = again("string") + pick(w, []string{" == 'a'", " != ''", " < '2026-12-01'"})
		case kind == "bool" && roll == 2:
			text = again("bool") + pick(w, []string{" && ", " || "}) + again("bool")
		case kind == "bool" && roll == 3:
			text = again("double") + " > 1.0"
		case roll == 4:
			text = "(" + again("bool") + " ? " + again(kind) + " : " + constants[kind] + ")"
		}
		if kind != "object" && w.maybe(15) {
			lists := slices.DeleteFunc(slices.Clone(all), func(p path) bool {
				return p.kind != "list" || p.of.kind != "object" || !slices.ContainsFunc(p.of.fields, func(f field) bool { return f.kind == kind })
			})
			if len(lists) > 0 {
				l := pick(w, lists)
				var within []path
				paths(path{"e", nil, *l.of}, &within)
				inner := w.expression(kind, within, depth+2)
				text, p.guards = fmt.Sprintf("%s.map(e, %s)[0]", l.text, inner), l.guards
			}
		}
	}
	for _, guard := range slices.Backward(p.guards) {
		if w.maybe(92) {
			text = fmt.Sprintf("(%s ? %s : %s)", guard, text, constants[kind])
		}
	}
	return text
}

// definition returns a saga that an event starts, with two steps whose answers set variables, and an event at its end.
func (w *world) definition() (*saga.Definition, error) {
	of := func(event string) (all []path) {
		paths(path{"event", nil, w.types[event]}, &all)
		return all[1:]
	}
	spec := saga.Spec{Saga: "random", Version: 1, Key: "id", Data: map[string]saga.Type{"id": saga.String}}
	kinds := map[string]string{}
	set := func(event string, names ...string) saga.Mapping {
		m := saga.Mapping{}
		for _, name := range names {
			m[name] = w.expression(kinds[name], of(event), 0)
		}
		return m
	}
	variables := func(prefix string) (names []string) {
		for i := range 3 {
			name := fmt.Sprintf("%s%d", prefix, i)
			kinds[name] = pick(w, scalars)
			spec.Data[name] = saga.Type(kinds[name])
			names = append(names, name)
		}
		return names
	}
	known := variables("s")
	begin := set("Begun", known...)
	begin["id"] = "'x'"
	spec.Start = []saga.Start{{Hop: "shop", Event: "Begun", Set: begin}}
	input := func(message string) saga.Mapping {
		m := saga.Mapping{}
		for _, f := range w.types[message].fields {
			if f.optional && w.maybe(50) || w.maybe(2) || constants[f.kind] == "" {
				continue
			}
			m[f.name] = constants[f.kind]
			if fits := slices.DeleteFunc(slices.Clone(known), func(v string) bool { return kinds[v] != f.kind }); len(fits) > 0 {
				m[f.name] = "data." + pick(w, fits)
			}
			if w.maybe(2) {
				m[f.name] = "data." + pick(w, known)
			}
		}
		return m
	}
	for i, name := range []string{"first", "second"} {
		done, refused := fmt.Sprintf("Done%d", i), fmt.Sprintf("Refused%d", i)
		command, own := input("Do"), variables(name)
		known = append(known, own...)
		st := saga.Step{
			Name: name, Timeout: saga.Duration(1e9), Irreversible: "a test", Command: &saga.Command{Hop: "hop", Type: "Do", Input: command},
			Success: []saga.Answer{{Event: done, Set: set(done, own...)}}, Failure: []saga.Answer{{Event: refused, Reason: w.expression("string", of(refused), 0)}},
		}
		if w.maybe(50) {
			st.Success = append([]saga.Answer{{Event: done, When: w.expression("bool", of(done), 0), Set: set(done, own...)}}, st.Success...)
		}
		if i > 0 {
			st.Needs = []string{"first"}
		}
		spec.Steps = append(spec.Steps, st)
	}
	spec.Completed = []saga.Emit{{Event: "Ended", Input: input("Ended")}}
	return saga.Define(spec)
}

// flatten makes a type of scalars only, for the messages that a saga sends.
func (w *world) flatten(v value) value {
	v.fields = slices.DeleteFunc(v.fields, func(f field) bool { return constants[f.kind] == "" })
	return v
}

// run runs the saga with random events. It returns why it fails, or "".
func (w *world) run(d *saga.Definition) string {
	begun := w.event("Begun")
	data, starts, err := d.StartedBy("shop", "Begun", begun, nil)
	if err != nil || !starts {
		return fmt.Sprintf("it does not start: %v %v", err, quoted(begun))
	}
	s, fx := saga.Decide(d, saga.State{}, saga.Event{Kind: saga.Started, Fields: data}, now)
	for range 4 {
		for _, m := range fx.Events {
			if _, err := w.codec.FromValues(w.Context(), m.Type, []byte(quoted(m.Fields))); err != nil {
				return fmt.Sprintf("%s: %s", m.Type, err)
			}
		}
		if s.Status == saga.Parked {
			return s.Reason
		}
		if s.Ended() {
			return ""
		}
		require.Len(w, fx.Commands, 1)
		c := fx.Commands[0]
		if _, err := w.codec.FromValues(w.Context(), c.Type, []byte(quoted(c.Fields))); err != nil {
			return fmt.Sprintf("%s: %s", c.Type, err)
		}
		i := slices.IndexFunc(d.Spec().Steps, func(st saga.Step) bool { return st.Name == c.Step })
		e := saga.Event{Kind: saga.Answered, Step: c.Step, Operation: c.Operation, Hop: "hop", Type: fmt.Sprintf("Done%d", i), Outcome: "success"}
		if w.maybe(15) {
			e.Type, e.Outcome = fmt.Sprintf("Refused%d", i), "failure"
		}
		e.Fields = w.event(e.Type)
		before := s
		if s, fx = saga.Decide(d, s, e, now); s.Status == saga.Parked {
			return fmt.Sprintf("%s, after %s %s with %s", s.Reason, e.Type, quoted(e.Fields), quoted(before.Data))
		}
	}
	return "it does not end"
}

// bornOut reports whether the expression of a finding fails for one of some events. It does not try fields that there are not, and operands of && and
// ||, whose failure the other operand may hide.
func (w *world) bornOut(d *saga.Definition, f verify.Finding) bool {
	var i int
	message := "Begun"
	if n, _ := fmt.Sscanf(f.Path, "steps[%d]", &i); n == 1 {
		message = fmt.Sprintf("Done%d", i)
	}
	if strings.HasSuffix(f.Path, ".reason") {
		message = fmt.Sprintf("Refused%d", i)
	}
	if strings.Contains(f.Path, ".input") || strings.Contains(f.Text, "has no field") || strings.Contains(f.Text, "want true or false") {
		return true
	}
	want := saga.String
	if at := strings.LastIndex(f.Path, ".set."); at >= 0 {
		want = d.Spec().Data[f.Path[at+len(".set."):]]
	} else if strings.HasSuffix(f.Path, ".when") {
		want = saga.Bool
	}
	for _, e := range w.events[message] {
		v, err := d.Expr(f.Path).Eval(map[string]any{"event": e})
		fits := false
		switch v := v.(type) {
		case string:
			fits = want == saga.String
		case bool:
			fits = want == saga.Bool
		case int64:
			fits = want == saga.Int || want == saga.Double
		case float64:
			fits = want == saga.Double || want == saga.Int && v == float64(int64(v))
		}
		if err != nil || !fits {
			return true
		}
	}
	return false
}

// TestARandomDefinitionWithoutFindingsParksNoSaga compares the findings for random definitions, with random schemas, with runs of them.
func TestARandomDefinitionWithoutFindingsParksNoSaga(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"AVRO", "JSON", "PROTOBUF"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			const schemata, definitions, runs = 10, 15, 25
			clean, failed := 0, 0
			for seed := range uint64(schemata) {
				w := newWorld(t, format, seed)
				for range definitions {
					d, err := w.definition()
					if err != nil {
						require.NotContains(t, err.Error(), "Syntax")
						continue // the expression is of another type
					}
					var found []string
					for _, f := range verify.Definition(d, verify.Options{Types: w.shapes}) {
						if strings.HasPrefix(f.Rule, "message-") {
							found = append(found, f.String())
							require.True(t, w.bornOut(d, f), "seed %d: %s\n%s", seed, f, d.JSON())
						}
					}
					why := ""
					for range runs {
						if why = w.run(d); why != "" {
							break
						}
					}
					if len(found) == 0 {
						clean++
						require.Empty(t, why, "seed %d: no finding for %s", seed, d.JSON())
					} else if why != "" {
						failed++
					}
				}
			}
			require.Greater(t, clean, schemata)
			require.Greater(t, failed, schemata)
		})
	}
}

func newWorld(t *testing.T, format string, seed uint64) *world {
	server := srfake.New()
	t.Cleanup(server.Close)
	client, err := sr.NewClient(sr.URLs(server.URL()))
	require.NoError(t, err)
	registry, err := schemas.NewRegistry(server.URL())
	require.NoError(t, err)
	codec, err := schemas.New(t.Context(), schemas.Config{Registry: registry, Formats: formats.All()})
	require.NoError(t, err)
	w := &world{
		T: t, dice: rand.New(rand.NewPCG(seed, 7)), format: format, codec: codec, client: client, shapes: map[string]*expr.Shape{}, types: map[string]value{}, events: map[string][]map[string]any{},
	}
	for _, name := range []string{"Begun", "Done0", "Done1", "Refused0", "Refused1"} {
		w.declare(name, w.object(0))
		for range 150 {
			w.events[name] = append(w.events[name], w.event(name))
		}
	}
	for _, name := range []string{"Do", "Ended"} {
		w.declare(name, w.flatten(w.object(0)))
	}
	return w
}
