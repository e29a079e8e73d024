package personal

import (
	"cmp"
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
	m := jsonMarks{root: root, above: make(map[string]bool)}
	if has, err := m.collect("#", root, false); !has {
		return newRecord(), nil
	} else if err != nil {
		return nil, err
	}
	return m.record("", "#", root)
}

type jsonMarks struct {
	root  any
	above map[string]bool // pointers to the objects around one
}

// named are the keywords whose value is an object with schemas under names, and data the ones whose value is no schema.
var (
	named = []string{"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
	data  = []string{"default", "examples", "const", "enum"}
)

// collect reports whether the document has marks, wherever they are. Then a reference that follow cannot follow is an error, since it
// may lead to a mark.
func (m jsonMarks) collect(pointer string, v any, names bool) (has bool, err error) {
	switch v := v.(type) {
	case map[string]any:
		if !names {
			_, has = v[property]
			err = m.checkReferences(pointer, v)
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if !names && slices.Contains(data, key) {
				continue
			}
			marked, wrong := m.collect(pointer+"/"+escape(key), v[key], !names && slices.Contains(named, key))
			has, err = has || marked, cmp.Or(err, wrong)
		}
	case []any:
		for i, inner := range v {
			marked, wrong := m.collect(fmt.Sprintf("%s/%d", pointer, i), inner, false)
			has, err = has || marked, cmp.Or(err, wrong)
		}
	}
	return has, err
}

func (m jsonMarks) checkReferences(pointer string, object map[string]any) error {
	for _, keyword := range []string{"$dynamicRef", "$recursiveRef"} {
		if _, has := object[keyword]; has {
			return fmt.Errorf("%s: a schema with personal fields cannot have %s", pointer, keyword)
		}
	}
	if _, has := object["$id"]; has && pointer != "#" {
		return fmt.Errorf("%s: a schema with personal fields may have $id only at its root, since references are resolved against the nearest $id: remove this one", pointer)
	}
	if ref, is := object["$ref"].(string); is && m.at(ref) == nil {
		return fmt.Errorf("%s: the reference %q cannot be followed: want one such as #/$defs/address", pointer, ref)
	}
	return nil
}

func escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

func unescape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
}

var (
	errRecursive = errors.New("an object that contains itself cannot have personal fields")
	errPlace     = errors.New("only properties of objects, and of arrays of objects, can be personal, outside of anyOf, oneOf, allOf and the like")
)

// record reads the marks of a schema of objects, or of an array of them. A definition is read at each place that refers to it, since
// it may be encrypted at one place and not at another.
func (m jsonMarks) record(path, pointer string, v any) (*record, error) {
	pointer, object, err := m.follow(pointer, v)
	if err != nil {
		return nil, err
	}
	r := newRecord()
	if m.above[pointer] {
		if m.marked(pointer, object, false, make(map[string]bool)) != "" {
			return nil, fmt.Errorf("%s: %w", path, errRecursive)
		}
		return r, nil
	}
	m.above[pointer] = true
	defer delete(m.above, pointer)
	if _, marked := object[property]; marked {
		return nil, fmt.Errorf("%s: %w", pointer, errPlace)
	}
	read := "properties"
	if _, is := object["items"].(map[string]any); is { // a list of schemas is refused below, like each keyword that is not read
		read = "items"
	}
	if err := m.refuse(pointer, object, read); err != nil {
		return nil, err
	}
	if read == "items" {
		return m.record(path, pointer+"/items", object["items"])
	}
	properties, _ := object["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		at, own := inPath(path, name), pointer+"/properties/"+escape(name)
		field, _ := properties[name].(map[string]any)
		mark, marked := field[property]
		if !marked {
			inner, err := m.record(at, own, properties[name])
			if err != nil {
				return nil, err
			}
			r.nest(name, inner)
			continue
		}
		word, _ := mark.(string)
		if err := r.set(name, word); err != nil {
			return nil, fmt.Errorf("property %w", err)
		}
		if err := checkJSON(field, word); err != nil {
			return nil, fmt.Errorf("property %s: %w", at, err)
		}
	}
	return r, nil
}

// refuse returns an error if a keyword of a schema, other than one, leads to a mark.
func (m jsonMarks) refuse(pointer string, object map[string]any, except string) error {
	for _, keyword := range slices.Sorted(maps.Keys(object)) {
		if keyword == except {
			continue
		}
		if at := m.marked(pointer, map[string]any{keyword: object[keyword]}, false, make(map[string]bool)); at != "" {
			return fmt.Errorf("%s: %w", at, errPlace)
		}
	}
	return nil
}

// marked returns the pointer to a mark of personal data in a schema, or in one that it refers to, or "".
func (m jsonMarks) marked(pointer string, v any, names bool, seen map[string]bool) string {
	switch v := v.(type) {
	case []any:
		for i, inner := range v {
			if found := m.marked(fmt.Sprintf("%s/%d", pointer, i), inner, false, seen); found != "" {
				return found
			}
		}
	case map[string]any:
		if ref, is := v["$ref"].(string); is && !names && !seen[ref] {
			seen[ref] = true
			if found := m.marked(ref, m.at(ref), false, seen); found != "" {
				return found
			}
		}
		if mark, is := v[property]; is && !names && mark != subjectMark {
			return pointer
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if !names && (slices.Contains(data, key) || key == "$defs" || key == "definitions") {
				continue // no schema, or one that counts only where it is referred to
			}
			if found := m.marked(pointer+"/"+escape(key), v[key], !names && slices.Contains(named, key), seen); found != "" {
				return found
			}
		}
	}
	return ""
}

// at returns the schema to which a reference within the document points, or nil.
func (m jsonMarks) at(ref string) any {
	if ref != "#" && !strings.HasPrefix(ref, "#/") {
		return nil
	}
	target := m.root
	for _, name := range strings.Split(ref, "/")[1:] {
		object, _ := target.(map[string]any)
		target = object[unescape(name)]
	}
	return target
}

// follow returns the schema that applies: the one itself, or the one to which it refers.
func (m jsonMarks) follow(pointer string, v any) (string, map[string]any, error) {
	object, _ := v.(map[string]any)
	for range 100 {
		ref, is := object["$ref"].(string)
		if !is {
			break
		}
		if err := m.refuse(pointer, object, "$ref"); err != nil {
			return "", nil, err
		}
		pointer = ref
		object, _ = m.at(ref).(map[string]any)
	}
	return pointer, object, nil
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
