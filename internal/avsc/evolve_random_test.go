package avsc_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/avro"

	"github.com/troupe-go/troupe/internal/avsc"
)

// A maker makes random schemas of few names and types, so that two of them are often nearly compatible.
type maker struct {
	*rand.Rand
	defined map[string]bool
}

type object = map[string]any

func (m *maker) typ(depth int) any {
	primitives := []string{"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
	if depth == 0 {
		return primitives[m.IntN(len(primitives))]
	}
	switch m.IntN(9) {
	case 0:
		return object{"type": "array", "items": m.typ(depth - 1)}
	case 1:
		return object{"type": "map", "values": m.typ(depth - 1)}
	case 2, 3:
		return m.union(depth)
	case 4:
		return m.name("E", object{"type": "enum", "symbols": []string{"A", "B", "C"}[:1+m.IntN(3)]}, "default", "A")
	case 5:
		return m.name("X", object{"type": "fixed", "size": 2 + m.IntN(2)}, "", nil)
	case 6:
		return m.record(depth - 1)
	}
	return primitives[m.IntN(len(primitives))]
}

// name gives the type one of few names, and sometimes an alias and an option. A name means one type within a schema.
func (m *maker) name(prefix string, o object, option string, value any) any {
	name := fmt.Sprintf("%s.%s%d", []string{"one", "two"}[m.IntN(2)], prefix, m.IntN(2))
	if m.defined[name] {
		return name
	}
	m.defined[name] = true
	o["name"] = name
	if m.IntN(3) == 0 {
		o["aliases"] = []string{[]string{"one.", "two.", ""}[m.IntN(3)] + fmt.Sprint(prefix, m.IntN(3))}
	}
	if option != "" && m.IntN(3) == 0 {
		o[option] = value
	}
	return o
}

func (m *maker) record(depth int) any {
	o := object{"type": "record"}
	named := m.name("R", o, "", nil)
	if _, reference := named.(string); reference {
		return named
	}
	var list []object
	for _, name := range []string{"a", "b", "c"} {
		if m.IntN(3) == 0 {
			continue
		}
		f := object{"name": name, "type": m.typ(depth)}
		if m.IntN(3) == 0 {
			f["type"], f["default"] = []any{"null", "int"}, nil
		}
		if union, ok := f["type"].([]any); ok && union[0] == "null" {
			f["default"] = nil // otherwise the decoder assumes null, which the specification does not
		}
		if m.IntN(5) == 0 {
			f["aliases"] = []string{"d"}
		}
		list = append(list, f)
	}
	if m.IntN(4) == 0 {
		list = append(list, object{"name": "d", "type": "int"})
	}
	o["fields"] = list
	if list == nil {
		o["fields"] = []object{}
	}
	return o
}

func (m *maker) union(depth int) any {
	var branches []any
	seen := make(map[string]bool)
	for range 1 + m.IntN(3) {
		b := m.typ(depth - 1)
		id, _ := b.(string)
		if o, ok := b.(object); ok {
			id = fmt.Sprint(o["type"], o["name"])
		}
		if _, union := b.([]any); !union && !seen[id] {
			seen[id] = true
			branches = append(branches, b)
		}
	}
	if branches == nil {
		return "null"
	}
	return branches
}

// The same schemas each time, so that a test that fails is not the next one's luck. To look further:
//
//	go test ./schemas -run RandomSchemas -seed 7
var seed = flag.Uint64("seed", 1, "of the random schemas")

// The library resolves, and this package walks the schemas itself: they must not disagree on any pair.
func TestRandomSchemasAreJudgedAsTheDecoderDoes(t *testing.T) {
	t.Parallel()
	m := &maker{Rand: rand.New(rand.NewPCG(*seed, 0))}
	var last []string
	verdicts := make(map[bool]int)
	for range 1500 {
		m.defined = make(map[string]bool)
		text, err := json.Marshal(object{"type": "record", "name": "shop.Root", "fields": []object{{"name": "f", "type": m.typ(3)}}})
		require.NoError(t, err)
		reader, err := avro.Parse(string(text))
		if err != nil {
			continue // such as a name defined twice in ways that avro counts
		}
		for _, before := range last {
			writer := avro.MustParse(before)
			want := avro.CheckCompatibility(writer, reader)
			found, err := avsc.Check(avsc.Backward, avsc.Version{Avsc: string(text)}, avsc.Version{Avsc: before})
			require.NoError(t, err)
			require.Equal(t, want == nil, len(found) == 0, "writer %s\nreader %s\ndecoder: %v\ncheck: %v", before, text, want, found)
			verdicts[want == nil]++
		}
		last = append(last, string(text))
		last = last[max(0, len(last)-8):]
	}
	require.Greater(t, verdicts[true], 200)
	require.Greater(t, verdicts[false], 200)
}
