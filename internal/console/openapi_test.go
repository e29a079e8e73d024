package console

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	relays "github.com/troupe-go/troupe/internal/admin/relaydesk"
	"github.com/troupe-go/troupe/internal/admin/repair"
	"github.com/troupe-go/troupe/internal/admin/sagadesk"
	"github.com/troupe-go/troupe/saga"
)

var update = flag.Bool("update", false, "write static/openapi.json")

// The facts of pages, and the responses of actions.
var (
	given = map[string]any{
		"/": overviewFacts{}, "/sagas": sagasFacts{}, "/saga/fixture": fixtureFacts{}, "/sagas/retry": retryFacts{}, "/questions": questionsFacts{}, "/saga/answer": answerFacts{}, "/flows": flowsFacts{}, "/flow": flowFacts{}, "/saga": sagaFacts{}, "/saga/act": actFacts{}, "/dead-letters": causesFacts{},
		"/dead-letters/list": lettersFacts{}, "/dead-letters/act": groupFacts{}, "/dead-letter": letterFacts{}, "/work": Work{}, "/held": heldFacts{}, "/expectations": expectationsFacts{}, "/schedules": schedulesFacts{}, "/rebuilds": rebuildsFacts{},
		"/held/key": heldKeyFacts{}, "/messages": messagesFacts{}, "/relay": relayFacts{},
		"/relay/rows": failedRowsFacts{}, "/relay/row": failedRowFacts{}, "/relay/act": relayActFacts{}, "/actions": actionsFacts{}, "/definitions": definitionsFacts{}, "/definition": definitionFacts{}, "/definition/move": moveFacts{}, "/definition/start": startFacts{},
	}
	done = map[string][]any{
		"/relay/row": {relays.Repaired{}}, "/relay/act": {relayDone{}}, "/saga/act": {actFacts{}}, "/saga/answer": {answerFacts{}}, "/sagas/retry": {Work{}}, "/dead-letters/act": {Work{}}, "/work": {Work{}}, "/definition/move": {Work{}}, "/definition/start": {actFacts{}},
		"/dead-letter": {letterFacts{}, repair.RedriveResult{}, struct {
			Discarded int `json:"discarded"`
		}{}},
		"/held/key": {repair.ReleaseResult{}, struct {
			Retried int `json:"retried"`
		}{}},
	}
)

type object = map[string]any

// document returns the text that static/openapi.json must have: it is generated from the Go types of the responses.
func document(t *testing.T) []byte {
	s := schemer{all: make(object)}
	paths := make(object)
	for _, p := range pages {
		require.Contains(t, given, p.path)
		entry := object{"get": object{
			"summary": p.title, "x-role": p.role(), "parameters": parameters(p.takes), "responses": answers(s.of(reflect.TypeOf(given[p.path]))),
		}}
		if p.act != nil {
			var either []any
			for _, one := range done[p.path] {
				either = append(either, s.of(reflect.TypeOf(one)))
			}
			require.NotEmpty(t, either, p.path)
			fields := object{}
			for name := range strings.FieldsSeq(p.does + " actor reason") {
				field := object{"type": "string"}
				if slices.Contains(strings.Fields(p.adminFields), name) {
					field["x-role"] = Admin
				}
				fields[name] = field
			}
			require.NotEmpty(t, p.actions(), p.path)
			fields["do"] = object{"type": "string", "enum": p.actions()}
			roles := object{}
			for _, do := range p.actions() {
				roles[do], _ = p.roleOf(do)
			}
			entry["post"] = object{
				"summary": p.title + ": act", "x-roles": roles, "security": []any{object{"token": []string{}}}, "responses": answers(object{"anyOf": either}),
				"requestBody": object{"content": object{"application/x-www-form-urlencoded": object{"schema": object{"type": "object", "properties": fields}}}},
			}
		}
		paths[p.path] = entry
	}
	text, err := json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Troupe's console", "version": "1",
			"description": "The facts of each page, for requests with Accept: application/json. Times are RFC 3339; durations are nanoseconds.",
		},
		"paths": paths,
		"components": object{
			"schemas":         s.all,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
	}, "", "  ")
	require.NoError(t, err)
	return append(text, '\n')
}

func parameters(names string) []any {
	all := []any{}
	for name := range strings.FieldsSeq(names) {
		all = append(all, object{"name": name, "in": "query", "schema": object{"type": "string"}})
	}
	return all
}

func answers(schema any) object {
	body := func(schema any) object { return object{"application/json": object{"schema": schema}} }
	refused := object{"type": "object", "required": []any{"error"}, "properties": object{"error": object{"type": "string"}}}
	return object{
		"200":     object{"description": "the facts", "content": body(schema)},
		"default": object{"description": "why not", "content": body(refused)},
	}
}

// schemer returns schemas of types as encoding/json encodes them.
type schemer struct{ all object }

var own = map[reflect.Type]object{
	reflect.TypeFor[time.Time]():       {"type": "string", "format": "date-time"},
	reflect.TypeFor[time.Duration]():   {"type": "integer"},
	reflect.TypeFor[uuid.UUID]():       {"type": "string", "format": "uuid"},
	reflect.TypeFor[repair.Key]():      {"type": []any{"string", "null"}},
	reflect.TypeFor[repair.Place]():    {"type": "string"},
	reflect.TypeFor[json.RawMessage](): {},
}

func (s schemer) of(t reflect.Type) object {
	if known, ok := own[t]; ok {
		return known
	}
	switch t.Kind() {
	case reflect.Pointer:
		return object{"anyOf": []any{s.of(t.Elem()), object{"type": "null"}}}
	case reflect.Slice:
		return object{"type": []any{"array", "null"}, "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": []any{"object", "null"}, "additionalProperties": s.of(t.Elem())}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Interface:
		return object{}
	}
	if t == reflect.TypeFor[sagadesk.Detail]() { // which has its own MarshalJSON
		return s.of(reflect.TypeFor[struct {
			sagadesk.Row
			State saga.State           `json:"state"`
			Spec  json.RawMessage      `json:"spec"`
			Kept  []sagadesk.KeptEvent `json:"kept,omitempty"`
		}]())
	}
	properties, required := object{}, []any{}
	s.fields(t, properties, &required)
	is := object{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	if t.Name() == "" {
		return is
	}
	name := strings.ReplaceAll(t.String(), "console.", "")
	s.all[name] = is
	return object{"$ref": "#/components/schemas/" + name}
}

func (s schemer) fields(t reflect.Type, properties object, required *[]any) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.fields(f.Type, properties, required)
		case !f.IsExported() || name == "-":
		default:
			if name == "" {
				name = f.Name
			}
			if properties[name] = s.of(f.Type); !strings.Contains(options, "omit") {
				*required = append(*required, name)
			}
		}
	}
}

func TestTheOpenAPIDocumentIsOfThisCode(t *testing.T) {
	t.Parallel()
	want := document(t)
	if *update {
		require.NoError(t, os.WriteFile("static/openapi.json", want, 0o644))
	}
	have, err := os.ReadFile("static/openapi.json")
	require.NoError(t, err)
	require.Equal(t, string(want), string(have), "go test ./internal/console -run OpenAPI -update")
}

// The JSON of every page and every action matches the document that the console serves.
func TestEveryPagesJSONIsAsTheOpenAPIDocumentSays(t *testing.T) {
	t.Parallel()
	d := watched(t)
	ids := d.letters()
	d.Order("o-1001", saga.Completed)
	parked, other := d.parked("o-1002"), d.parked("o-1003")
	row, another := d.FailedRow("shop.none.commands", "parked", "no such topic"), d.FailedRow("shop.none.commands", "parked", "no such topic")
	d.Leads()
	served := d.get("/openapi.json").Body.Bytes()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(served))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	require.NoError(t, compiler.AddResource("console.json", doc))
	checked := make(map[string]bool)
	check := func(method, path string, body []byte) {
		t.Helper()
		at := "console.json#/paths/" + strings.ReplaceAll(path, "/", "~1") + "/" + method + "/responses/200/content/application~1json/schema"
		schema, err := compiler.Compile(at)
		require.NoError(t, err)
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(value), "%s %s: %s", method, path, body)
		checked[method+" "+path] = true
	}
	get := func(path, address string) []byte {
		t.Helper()
		w := d.get(address)
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", address, w.Body)
		check("get", path, w.Body.Bytes())
		return w.Body.Bytes()
	}
	act := func(path string, values ...string) []byte {
		t.Helper()
		w := d.post(path, form(append(values, "reason", "ticket 7")...))
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", path, w.Body)
		check("post", path, w.Body.Bytes())
		return w.Body.Bytes()
	}
	d.Expect("shipped", "o-1")
	for range 2 { // before the actions, and after
		get("/", "/")
		get("/sagas", "/sagas")
		get("/saga", at("/saga", "db", "order", "id", parked))
		get("/saga/fixture", at("/saga/fixture", "db", "order", "id", parked))
		get("/flows", "/flows")
		get("/flow", "/flow?id=w-2")
		get("/dead-letters", "/dead-letters")
		get("/dead-letters/list", "/dead-letters/list?db=order&status=any")
		get("/dead-letter", at("/dead-letter", "db", "order", "id", ids[0]))
		get("/held", "/held")
		get("/expectations", "/expectations")
		get("/schedules", "/schedules")
		get("/rebuilds", "/rebuilds")
		get("/actions", "/actions")
		get("/messages", "/messages")
		get("/messages", "/messages?q=o-1002")
		get("/messages", "/messages?q=charge-0")
		get("/relay", "/relay")
		get("/relay/rows", "/relay/rows?db=order")
		get("/definitions", "/definitions")
		if checked["post /work"] {
			break
		}
		get("/held/key", at("/held/key", "db", "order", "place", "shop.billing.commands/0/9"))
		get("/definition", "/definition?db=order&hash=order")
		get("/definition/start", "/definition/start?db=order&hash=order")
		get("/definition/start", at("/definition/start", "db", "order", "hash", "order", "key", "o-5", "input", "{}"))
		act("/definition/start", "db", "order", "hash", "order", "key", "o-1002", "do", "start")
		from, to := facts[definitionsFacts](d, "/definitions").Databases[0].Definitions[0].Definition, d.Parcels()
		get("/definition/move", at("/definition/move", "db", "order", "from", from, "to", to))
		d.work(decoded[Work](t, act("/definition/move", "db", "order", "from", from, "to", to, "do", "migrate")).ID)
		get("/saga/act", at("/saga/act", "db", "order", "id", parked, "do", "compensate"))
		loan := d.Loan("l-1")
		get("/questions", "/questions?db=order")
		get("/saga", at("/saga", "db", "order", "id", loan))
		get("/saga/answer", at("/saga/answer", "db", "order", "id", loan, "step", "approval"))
		answer := []string{"db", "order", "id", loan, "step", "approval", "event", "LoanApproved", "values", `{"cents": 5}`}
		act("/saga/answer", append(answer, "do", "preview")...)
		act("/saga/answer", append(answer, "do", "answer")...)
		cause := facts[lettersFacts](d, "/dead-letters/list?db=order").Letters[0].Cause
		get("/dead-letters/act", at("/dead-letters/act", "db", "order", "do", "discard", "cause", cause))

		get("/relay/row", at("/relay/row", "db", "order", "id", row))
		get("/relay/act", at("/relay/act", "db", "order", "do", "retry", "topic", "shop.none.commands"))
		get("/relay/act", at("/relay/act", "db", "order", "do", "pause"))
		act("/relay/row", "db", "order", "id", row, "do", "retry")
		act("/relay/row", "db", "order", "id", another, "do", "discard")
		act("/relay/act", "db", "order", "do", "retry", "topic", "shop.none.commands")
		act("/relay/act", "db", "order", "do", "pause")

		act("/saga/act", "db", "order", "id", parked, "do", "compensate")
		d.Await(parked, saga.Compensated)
		act("/saga/act", "db", "order", "id", other, "do", "abandon")
		d.parked("o-1004")
		get("/sagas/retry", at("/sagas/retry", "db", "order", "saga", "order"))
		d.work(decoded[Work](t, act("/sagas/retry", "db", "order", "saga", "order", "do", "retry", "count", "1")).ID)
		act("/dead-letter", "db", "order", "id", ids[0], "do", "edit", "payload", `{"currency": "EUR"}`)
		act("/dead-letter", "db", "order", "id", ids[0], "do", "redrive")
		act("/dead-letter", "db", "order", "id", ids[1], "do", "discard")
		act("/held/key", "db", "order", "place", "shop.billing.commands/0/9", "do", "retry")
		act("/held/key", "db", "order", "place", "shop.billing.commands/0/9", "do", "dead-letter")
		begun := decoded[Work](t, act("/dead-letters/act", "db", "order", "do", "discard", "cause", cause, "count", "1"))
		d.work(begun.ID)
		get("/work", at("/work", "id", begun.ID))
		act("/work", "id", begun.ID, "do", "stop")
	}
	var want []string
	for _, p := range pages {
		want = append(want, "get "+p.path)
		if p.act != nil {
			want = append(want, "post "+p.path)
		}
	}
	require.ElementsMatch(t, want, slices.Collect(maps.Keys(checked)))
}
