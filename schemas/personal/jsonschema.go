package personal

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// markedJSON reads the marks of a JSON Schema.
func markedJSON(text string) (*record, error) {
	var root any
	if err := json.Unmarshal([]byte(text), &root); err != nil {
		return nil, err
	}
	m := jsonMarks{root: root, left: make(map[string]bool), above: make(map[string]bool)}
	m.collect("#", root)
	if len(m.left) == 0 {
		return newRecord(), nil
	}
	r, err := m.record("", "#", root)
	if err != nil {
		return nil, err
	}
	for _, pointer := range slices.Sorted(maps.Keys(m.left)) {
		return nil, fmt.Errorf("%s: only properties of objects, and of arrays of objects, can be personal, outside of anyOf, oneOf, allOf and the like", pointer)
	}
	return r, nil
}

type jsonMarks struct {
	root  any
	left  map[string]bool // pointers to marked schemas that were not reached
	above map[string]bool // pointers to the objects around one
}

// collect finds all marked schemas, wherever they are.
func (m jsonMarks) collect(pointer string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, is := v[property].(string); is {
			m.left[pointer] = true
		}
		for name, inner := range v {
			if !slices.Contains([]string{"default", "examples", "const", "enum"}, name) || strings.HasSuffix(pointer, "/properties") {
				m.collect(pointer+"/"+escape(name), inner)
			}
		}
	case []any:
		for i, inner := range v {
			m.collect(fmt.Sprintf("%s/%d", pointer, i), inner)
		}
	}
}

func escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

func unescape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
}

var errRecursive = errors.New("an object that contains itself cannot have personal fields")

func (m jsonMarks) record(path, pointer string, v any) (*record, error) {
	pointer, object := m.follow(pointer, v)
	r := newRecord()
	if m.above[pointer] {
		if len(m.within(pointer)) > 0 {
			return nil, fmt.Errorf("%s: %w", path, errRecursive)
		}
		return r, nil
	}
	m.above[pointer] = true
	defer delete(m.above, pointer)
	if items, is := object["items"]; is {
		return m.record(path, pointer+"/items", items)
	}
	properties, _ := object["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		at, own := inPath(path, name), pointer+"/properties/"+escape(name)
		field, _ := properties[name].(map[string]any)
		mark, marked := field[property].(string)
		if !marked {
			inner, err := m.record(at, own, properties[name])
			if err != nil {
				return nil, err
			}
			r.nest(name, inner)
			continue
		}
		delete(m.left, own)
		if err := r.set(name, mark); err != nil {
			return nil, fmt.Errorf("property %w", err)
		}
		if err := checkJSON(field, mark); err != nil {
			return nil, fmt.Errorf("property %s: %w", at, err)
		}
	}
	return r, nil
}

// within returns the pointers to marked schemas below one, reached or not.
func (m jsonMarks) within(pointer string) map[string]bool {
	_, v := m.follow(pointer, map[string]any{"$ref": pointer})
	inside := jsonMarks{left: make(map[string]bool)}
	inside.collect(pointer, v)
	return inside.left
}

// follow returns the schema to which a reference within the document points.
func (m jsonMarks) follow(pointer string, v any) (string, map[string]any) {
	object, _ := v.(map[string]any)
	for range 100 {
		ref, is := object["$ref"].(string)
		if !is || !strings.HasPrefix(ref, "#") {
			break
		}
		target := m.root
		for _, name := range strings.Split(ref, "/")[1:] {
			inner, _ := target.(map[string]any)
			target = inner[unescape(name)]
		}
		pointer = ref
		object, _ = target.(map[string]any)
	}
	return pointer, object
}

// checkJSON returns an error if a property cannot have its mark: a ciphertext must fit the schema too, and so must the empty text of
// forgotten data, which a handler passes on.
func checkJSON(field map[string]any, mark string) error {
	allowed := []string{"string"}
	if mark == subjectMark {
		allowed = append(allowed, "integer")
	}
	types, several := field["type"].([]any)
	if !several {
		types = []any{field["type"]}
	}
	found := false
	for _, t := range types {
		word, _ := t.(string)
		if word != "null" && !slices.Contains(allowed, word) {
			return fmt.Errorf("it is marked as %s: want the type %s", mark, strings.Join(allowed, " or "))
		}
		found = found || word != "null"
	}
	if !found {
		return fmt.Errorf("it is marked as %s: want the type %s", mark, strings.Join(allowed, " or "))
	}
	if mark == subjectMark {
		return nil
	}
	for _, keyword := range []string{"pattern", "enum", "const", "minLength", "maxLength", "$ref", "anyOf", "oneOf", "allOf", "not"} {
		if _, has := field[keyword]; has {
			return fmt.Errorf("an encrypted or forgotten text does not fit %s: remove it", keyword)
		}
	}
	return nil
}
