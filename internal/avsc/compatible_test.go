package avsc_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/avro"

	"github.com/troupe-go/troupe/internal/avsc"
)

// field returns a record with one field f of that type, which is JSON.
func field(typ string) string {
	return `{"type":"record","name":"shop.R","fields":[{"name":"f","type":` + typ + `}]}`
}

func fields(list ...string) string {
	return `{"type":"record","name":"shop.R","fields":[` + strings.Join(list, ",") + `]}`
}

// evolution is a step from one version to the next: the problem for new readers, and the problem for old ones. Empty means
// none; otherwise it begins with the path.
type evolution struct {
	what              string
	old, next         string
	backward, forward string
	stricter          bool // stricter than the library that decodes, on purpose
	logical           bool // about logical types, or marks of personal data, which registries ignore
}

// evolutions follow the specification's section "Schema Resolution", rule by rule.
func evolutions() []evolution {
	a, b := `{"name":"a","type":"int"}`, `{"name":"b","type":"string"}`
	withDefault := `{"name":"b","type":"string","default":"x"}`
	enum := func(more string, symbols ...string) string {
		return fmt.Sprintf(`{"type":"enum","name":"shop.E","symbols":["%s"]%s}`, strings.Join(symbols, `","`), more)
	}
	fixed := func(name string, size int) string {
		return fmt.Sprintf(`{"type":"fixed","name":"%s","size":%d}`, name, size)
	}
	inner := func(name, more string, list ...string) string {
		return fmt.Sprintf(`{"type":"record","name":"%s"%s,"fields":[%s]}`, name, more, strings.Join(list, ","))
	}
	logical := func(typ, name string) string { return fmt.Sprintf(`{"type":"%s","logicalType":"%s"}`, typ, name) }
	decimal := func(precision, scale int) string {
		return fmt.Sprintf(`{"type":"bytes","logicalType":"decimal","precision":%d,"scale":%d}`, precision, scale)
	}
	list := func(value string) string {
		return fmt.Sprintf(`{"type":"record","name":"shop.Node","fields":[{"name":"value","type":%s},{"name":"next","type":["null","Node"]}]}`, value)
	}
	rows := []evolution{
		// Records
		{what: "the same", old: fields(a, b), next: fields(a, b)},
		{what: "another order of fields", old: fields(a, b), next: fields(b, a)},
		{what: "a field added with a default", old: fields(a), next: fields(a, withDefault)},
		{what: "a field added without one", old: fields(a), next: fields(a, b), backward: "b: it is new and has no default"},
		{what: "a field removed that had none", old: fields(a, b), next: fields(a), forward: "b: it was removed"},
		{what: "a field removed that had one", old: fields(a, withDefault), next: fields(a)},
		{what: "a default taken away", old: fields(a, withDefault), next: fields(a, b)},
		{what: "a field renamed", old: fields(a), next: fields(`{"name":"z","type":"int"}`), backward: "z: it is new", forward: "a: it was removed"},
		{what: "a field renamed with an alias", old: fields(a), next: fields(`{"name":"z","aliases":["a"],"type":"int"}`), forward: "a: it was removed"},
		{what: "the record renamed", old: inner("shop.R", "", a), next: inner("shop.S", "", a),
			backward: `: record shop.R cannot be read as shop.S: another name; keep the name, or add "aliases": ["shop.R"]`, forward: ": record shop.S cannot be read as shop.R"},
		{what: "the record renamed with an alias", old: inner("shop.R", "", a), next: inner("shop.S", `,"aliases":["shop.R"]`, a), forward: ": record shop.S"},
		{what: "the record renamed with an alias in its namespace", old: inner("shop.R", "", a), next: inner("shop.S", `,"aliases":["R"]`, a), forward: ": record shop.S"},
		{what: "an alias in another namespace", old: inner("shop.R", "", a), next: inner("shop.S", `,"aliases":["other.R"]`, a), backward: ": record shop.R", forward: ": record shop.S"},
		{what: "another namespace", old: inner("shop.R", "", a), next: inner("store.R", "", a)},
		{what: "a namespace inherited", old: `{"type":"record","name":"R","namespace":"shop","fields":[{"name":"f","type":{"type":"fixed","name":"X","size":2}}]}`,
			next: `{"type":"record","name":"shop.R","fields":[{"name":"f","type":{"type":"fixed","name":"shop.X","size":2}}]}`},
		{what: "a field deep inside", old: field(`{"type":"array","items":{"type":"map","values":` + inner("shop.L", "", a) + `}}`),
			next:     field(`{"type":"array","items":{"type":"map","values":` + inner("shop.L", "", a, b) + `}}`),
			backward: "f[]{}.b: it is new"},

		// Enums
		{what: "a symbol added", old: field(enum("", "A")), next: field(enum("", "A", "B")), forward: "f: symbols are new, and readers' enum shop.E has no default for them: B"},
		{what: "symbols removed", old: field(enum("", "A", "B", "C")), next: field(enum("", "A")), backward: "f: symbols were removed from enum shop.E, which has no default: B, C"},
		{what: "symbols removed and a default", old: field(enum("", "A", "B")), next: field(enum(`,"default":"A"`, "A"))},
		{what: "a symbol added where there is a default", old: field(enum(`,"default":"A"`, "A")), next: field(enum(`,"default":"A"`, "A", "B"))},
		{what: "another order of symbols", old: field(enum("", "A", "B")), next: field(enum("", "B", "A"))},

		// Unions
		{what: "null allowed", old: field(`"string"`), next: field(`["null","string"]`), forward: "f: readers want string and cannot read null"},
		{what: "null forbidden", old: field(`["null","string"]`), next: field(`"string"`), backward: "f: null cannot be read as string"},
		{what: "a field added that may be null, without a default", old: fields(a), next: fields(a, `{"name":"n","type":["null","int"]}`), backward: "n: it is new", stricter: true},
		{what: "a branch added", old: field(`["null","string"]`), next: field(`["null","string","int"]`), forward: "f: readers have no branch for int"},
		{what: "a branch removed", old: field(`["null","string","int"]`), next: field(`["null","string"]`), backward: "f: int is written, and no branch of the union reads it"},
		{what: "another order of branches", old: field(`["null","string"]`), next: field(`["string","null"]`)},
		{what: "a branch widened", old: field(`["null","int"]`), next: field(`["null","long"]`), forward: "f: readers have no branch for long"},
		{what: "a type into a wider branch", old: field(`"int"`), next: field(`["null","double"]`), forward: "f: readers want int"},
		{what: "a union of one", old: field(`["int"]`), next: field(`"int"`)},
		{what: "a record in a union", old: field(`["null",` + inner("shop.L", "", a) + `]`), next: field(`["null",` + inner("shop.L", "", a, b) + `]`), backward: "f.b: it is new"},
		{what: "one of two records in a union", old: field(`[` + inner("shop.L", "", a) + `,` + inner("shop.M", "", b) + `]`),
			next: field(`[` + inner("shop.M", "", b) + `,` + inner("shop.L", "", `{"name":"a","type":"string"}`) + `]`), backward: "f.a: int cannot be read as string", forward: "f.a: readers want int"},
		{what: "the same name in two namespaces", old: field(inner("one.L", "", a)), next: field(`[` + inner("two.L", "", b) + `,` + inner("one.L", "", a) + `]`),
			forward: "f.a: it was removed"},
		{what: "a fixed in a union by its size", old: field(fixed("shop.X", 2)), next: field(`["null",` + fixed("shop.X", 4) + `]`),
			backward: "f: fixed shop.X of 2 bytes is written, and no branch", forward: "f: readers want"},

		// Arrays, maps, fixed
		{what: "items widened", old: field(`{"type":"array","items":"int"}`), next: field(`{"type":"array","items":"long"}`), forward: "f[]: readers want int and cannot read long"},
		{what: "values widened", old: field(`{"type":"map","values":"float"}`), next: field(`{"type":"map","values":"double"}`), forward: "f{}: readers want float"},
		{what: "an array made a map", old: field(`{"type":"array","items":"int"}`), next: field(`{"type":"map","values":"int"}`),
			backward: "f: array of int cannot be read as map of int", forward: "f: readers want array of int"},
		{what: "another size", old: field(fixed("shop.X", 2)), next: field(fixed("shop.X", 4)), backward: "f: a fixed of 2 bytes", forward: "f: a fixed of 4 bytes"},
		{what: "another name of a fixed", old: field(fixed("shop.X", 2)), next: field(fixed("shop.Y", 2)), backward: "f: fixed shop.X", forward: "f: fixed shop.Y"},

		// Recursive types
		{what: "a list as it is", old: list(`"int"`), next: list(`"int"`)},
		{what: "a list of wider values", old: list(`"int"`), next: list(`"long"`), forward: "value: readers want int"},
		{what: "a list of something else", old: list(`"int"`), next: list(`"string"`), backward: "value: int cannot be read as string", forward: "value: readers want int"},

		// Logical types
		{what: "a mark of personal data added", old: fields(`{"name":"m","type":"string"}`), next: fields(`{"name":"m","type":"string","personal":"email"}`)},
		{what: "another kind of personal data", old: fields(`{"name":"m","type":"string","personal":"email"}`), next: fields(`{"name":"m","type":"string","personal":"mail"}`),
			backward: "m: values that were marked as personal (email) cannot be read as mail", forward: "m: values that were marked as personal (mail)", stricter: true, logical: true},
		{what: "a logical type added", old: field(`"long"`), next: field(logical("long", "timestamp-millis"))},
		{what: "milliseconds made microseconds", old: field(logical("long", "timestamp-millis")), next: field(logical("long", "timestamp-micros")),
			backward: "f: a timestamp-millis would be read as timestamp-micros", forward: "f: a timestamp-micros would be read as timestamp-millis", stricter: true, logical: true},
		{what: "a decimal of another scale", old: field(decimal(9, 2)), next: field(decimal(9, 4)),
			backward: "f: a decimal 9,2 would be read as decimal 9,4", forward: "f: a decimal 9,4", logical: true},
		{what: "an unknown logical type", old: field(`"string"`), next: field(logical("string", "shop-sku"))},
	}
	// Promotions: the written type, and the types that read it.
	primitives := []string{"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
	wider := map[string]string{"int": "long float double", "long": "float double", "float": "double", "string": "bytes", "bytes": "string"}
	for _, from := range primitives {
		for _, to := range primitives {
			e := evolution{what: from + " to " + to, old: field(`"` + from + `"`), next: field(`"` + to + `"`)}
			if from != to && !strings.Contains(" "+wider[from]+" ", " "+to+" ") {
				e.backward = fmt.Sprintf("f: %s cannot be read as %s", from, to)
			}
			if from != to && !strings.Contains(" "+wider[to]+" ", " "+from+" ") {
				e.forward = fmt.Sprintf("f: readers want %s and cannot read %s", from, to)
			}
			rows = append(rows, e)
		}
	}
	return rows
}

func TestCompatibilityFollowsTheSpecification(t *testing.T) {
	t.Parallel()
	for _, e := range evolutions() {
		for direction, want := range map[avsc.Level]string{avsc.Backward: e.backward, avsc.Forward: e.forward} {
			found, err := avsc.Check(direction, avsc.Version{Avsc: e.next}, avsc.Version{Label: "version 1", Avsc: e.old})
			require.NoError(t, err, e.what)
			if want == "" {
				require.Empty(t, found, "%s, %s", e.what, direction)
				continue
			}
			require.NotEmpty(t, found, "%s, %s", e.what, direction)
			p := found[0]
			require.Contains(t, p.Path+": "+p.Reason+"; "+p.Remedy, want, "%s, %s", e.what, direction)
			require.True(t, strings.HasPrefix(p.Path+": ", want[:strings.Index(want, ":")+1]), "%s, %s: %s", e.what, direction, p.Path)
			require.Equal(t, direction, p.Direction, e.what)
			require.Equal(t, "version 1", p.Earlier, e.what)
			require.NotEmpty(t, p.Remedy, e.what)
		}
		both, err := avsc.Check(avsc.Full, avsc.Version{Avsc: e.next}, avsc.Version{Avsc: e.old})
		require.NoError(t, err)
		require.Equal(t, e.backward == "" && e.forward == "", len(both) == 0, e.what)
		require.NoError(t, none(e))
	}
}

func none(e evolution) error {
	found, err := avsc.Check(avsc.None, avsc.Version{Avsc: e.next}, avsc.Version{Avsc: e.old})
	if len(found) > 0 {
		return fmt.Errorf("%s: NONE finds %v", e.what, found)
	}
	return err
}

// The library that decodes must be able to resolve every step that Check accepts, and must refuse every step that Check
// refuses.
func TestTheDecoderAgreesWithTheCheck(t *testing.T) {
	t.Parallel()
	for _, e := range evolutions() {
		if e.stricter {
			continue
		}
		old, next := avro.MustParse(e.old), avro.MustParse(e.next)
		require.Equal(t, e.backward == "", avro.CheckCompatibility(old, next) == nil, e.what)
		require.Equal(t, e.forward == "", avro.CheckCompatibility(next, old) == nil, e.what)
	}
}

func TestEveryProblemIsNamed(t *testing.T) {
	t.Parallel()
	old := `{"type":"record","name":"shop.Order","fields":[
		{"name":"id","type":"string"},
		{"name":"cents","type":"int"},
		{"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[{"name":"sku","type":"string"}]}}},
		{"name":"state","type":{"type":"enum","name":"State","symbols":["OPEN","PAID"]}}]}`
	next := `{"type":"record","name":"shop.Order","fields":[
		{"name":"cents","type":"string"},
		{"name":"currency","type":"string"},
		{"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[{"name":"sku","type":"string"},{"name":"buyer","type":["null","string"]}]}}},
		{"name":"state","type":{"type":"enum","name":"State","symbols":["OPEN","SENT"]}}]}`
	found, err := avsc.Check(avsc.Full, avsc.Version{Label: "Order.avsc", Avsc: next}, avsc.Version{Label: "version 3", Avsc: old})
	require.NoError(t, err)
	var lines []string
	for _, p := range found {
		lines = append(lines, p.String())
	}
	require.Equal(t, []string{
		"the new version cannot read version 3: field cents: int cannot be read as string; keep the type, widen it (int, long, float, double; string and bytes), or make it a new field with a default",
		`the new version cannot read version 3: field currency: it is new and has no default for messages that do not have it; give it one, such as "default": ""; or, if it is id under a new name, "aliases": ["id"]`,
		`the new version cannot read version 3: field lines[].buyer: it is new and has no default for messages that do not have it; give it one, such as "default": null`,
		`the new version cannot read version 3: field state: symbols were removed from enum shop.State, which has no default: PAID; keep them, or give the enum a "default" symbol`,
		"version 3 cannot read the new version: field id: it was removed, and readers have no default for it; keep it, and remove it only after a version in which it has a default",
		"version 3 cannot read the new version: field cents: readers want int and cannot read string; keep the type, or make it a new field with a default",
		`version 3 cannot read the new version: field state: symbols are new, and readers' enum shop.State has no default for them: SENT; first roll out an enum with a "default" symbol to all readers, then add symbols`,
	}, lines)
}

// Each version is compatible with the one before it, and the last one is not with the first.
func TestTransitiveLevelsLookAtAllVersions(t *testing.T) {
	t.Parallel()
	id := `{"name":"id","type":"string"}`
	first := avsc.Version{Label: "version 1", Avsc: fields(id)}
	second := avsc.Version{Label: "version 2", Avsc: fields(id, `{"name":"note","type":"string","default":""}`)}
	third := avsc.Version{Label: "version 3", Avsc: fields(id, `{"name":"note","type":"string"}`)}
	for level, want := range map[avsc.Level]int{
		avsc.Backward: 0, avsc.BackwardTransitive: 1, avsc.Forward: 0, avsc.ForwardTransitive: 0, avsc.Full: 0, avsc.FullTransitive: 1, avsc.None: 0,
	} {
		found, err := avsc.Check(level, third, first, second)
		require.NoError(t, err)
		require.Len(t, found, want, level)
		for _, p := range found {
			require.Equal(t, "version 1", p.Earlier)
		}
		found, err = avsc.Check(level, third)
		require.NoError(t, err)
		require.Empty(t, found, "nothing came before")
	}
}

func TestSchemasThatCannotBeCheckedAreNamed(t *testing.T) {
	t.Parallel()
	good, bad := avsc.Version{Label: "good.avsc", Avsc: field(`"int"`)}, avsc.Version{Label: "bad.avsc", Avsc: field(`"integer"`)}
	_, err := avsc.Check(avsc.Full, bad, good)
	require.ErrorContains(t, err, "bad.avsc: ")
	_, err = avsc.Check(avsc.Full, good, bad)
	require.ErrorContains(t, err, "bad.avsc: ")
	_, err = avsc.Check("FULLY", good)
	require.ErrorContains(t, err, `"FULLY"`)
	_, err = avsc.ParseLevel("sideways")
	require.ErrorContains(t, err, `"sideways": want one of BACKWARD, BACKWARD_TRANSITIVE`)
	level, err := avsc.ParseLevel("full-transitive")
	require.NoError(t, err)
	require.Equal(t, avsc.FullTransitive, level)
	_, err = avsc.Subject(`"string"`)
	require.ErrorContains(t, err, "want a record")
	name, err := avsc.Subject(`{"type":"record","name":"R","namespace":"shop","fields":[]}`)
	require.NoError(t, err)
	require.Equal(t, "shop.R", name)
}
