package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/twmb/avro"

	"github.com/troupe-go/troupe/internal/avsc"
)

// findMistake returns where text, which goavro refused, first differs from the schema. It returns nil if it finds no
// difference: then goavro's own error is used. It accepts at least everything that goavro accepts.
func findMistake(root *avro.SchemaNode, text []byte) error {
	_, err := searchFor(root, text, maxValues)
	return err
}

// checkNested returns the mistake of a text for a recursive schema. goavro prints each list around a mistake, at each level: eight megabytes within
// 90 levels took gigabytes.
func checkNested(root *avro.SchemaNode, text []byte) error {
	if len(text) <= smallText {
		return nil
	}
	whole, err := searchFor(root, text, 4*maxValues)
	if err == nil && !whole {
		err = fmt.Errorf("more than %d values, with the branches of unions that they are compared with", 4*maxValues)
	}
	return err
}

// searchFor returns the first mistake of a text. whole reports whether it needed no more visits than it may make.
func searchFor(root *avro.SchemaNode, text []byte, visits int) (whole bool, err error) {
	var value any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return true, nil
	}
	s := search{named: make(map[string]*avro.SchemaNode), meant: make(map[*avro.SchemaNode]*avro.SchemaNode), left: visits}
	s.collect(root, "")
	err = s.at("", root, value)
	return s.left >= 0, err
}

// search walks a schema and a value together.
type search struct {
	named map[string]*avro.SchemaNode
	meant map[*avro.SchemaNode]*avro.SchemaNode // definitions of names that are used again
	left  int                                   // remaining visits: branches of nested unions are tried many times
}

// collect walks in the order of the text, in which a name is defined before it is used again.
func (s *search) collect(n *avro.SchemaNode, within string) {
	if n == nil {
		return
	}
	if n.Name != "" {
		within = avsc.NamespaceOf(n)
		s.named[avsc.FullName(n)] = n
	} else if known := s.named[within+"."+n.Type]; known != nil {
		s.meant[n] = known
	} else if known := s.named[n.Type]; known != nil {
		s.meant[n] = known
	}
	for i := range n.Fields {
		s.collect(&n.Fields[i].Type, within)
	}
	for i := range n.Branches {
		s.collect(&n.Branches[i], within)
	}
	s.collect(n.Items, within)
	s.collect(n.Values, within)
}

func (s *search) at(path string, n *avro.SchemaNode, value any) error {
	if s.left--; s.left < 0 {
		return nil
	}
	if known := s.meant[n]; known != nil {
		n = known
	}
	fits := true
	switch n.Type {
	case "null":
		fits = value == nil
	case "boolean":
		_, fits = value.(bool)
	case "int", "long":
		return s.whole(path, n, value)
	case "float", "double":
		_, fits = value.(json.Number)
		fits = fits || value == nil // ToJSON writes NaN as null
	case "string", "bytes", "fixed":
		_, fits = value.(string)
	case "enum":
		text, ok := value.(string)
		if ok && !slices.Contains(n.Symbols, text) {
			return mistake(path, fmt.Sprintf("%.40q is none of %v", text, n.Symbols))
		}
		fits = ok
	case "record", "error":
		if object, ok := value.(map[string]any); ok {
			return s.record(path, n, object)
		}
		fits = false
	case "map":
		object, ok := value.(map[string]any)
		for _, key := range sorted(object) {
			if err := s.at(avsc.InPath(path, key), n.Values, object[key]); err != nil {
				return err
			}
		}
		fits = ok
	case "array":
		list, ok := value.([]any)
		for i, item := range list {
			if err := s.at(avsc.AtIndex(path, i), n.Items, item); err != nil {
				return err
			}
		}
		fits = ok
	case "union":
		return s.union(path, n, value)
	}
	if !fits {
		return mistake(path, fmt.Sprintf("want %s, got %s", wanted(n), jsonKindOf(value)))
	}
	return nil
}

func (s *search) whole(path string, n *avro.SchemaNode, value any) error {
	number, ok := value.(json.Number)
	if !ok {
		return mistake(path, fmt.Sprintf("want %s, got %s", wanted(n), jsonKindOf(value)))
	}
	bits := 64
	if n.Type == "int" {
		bits = 32
	}
	if _, err := strconv.ParseInt(number.String(), 10, bits); err == nil {
		return nil
	}
	limit := math.Ldexp(1, bits-1)
	if f, err := number.Float64(); err == nil && f == math.Trunc(f) && f >= -limit && f < limit {
		return nil // such as 1e3
	}
	return mistake(path, fmt.Sprintf("want %s, got %.40s", wanted(n), number))
}

func (s *search) record(path string, n *avro.SchemaNode, object map[string]any) error {
	known := make(map[string]bool, len(n.Fields))
	for i := range n.Fields {
		f := &n.Fields[i]
		known[f.Name] = true
		value, there := object[f.Name]
		switch {
		case !there && !f.HasDefault:
			return mistake(avsc.InPath(path, f.Name), "is missing")
		case there:
			if err := s.at(avsc.InPath(path, f.Name), &f.Type, value); err != nil {
				return err
			}
		}
	}
	for _, key := range sorted(object) {
		if !known[key] {
			return mistake(avsc.InPath(path, key), "the record has no such field")
		}
	}
	return nil
}

// union checks a value that names its branch against that branch; a bare value must fit one of the branches.
func (s *search) union(path string, n *avro.SchemaNode, value any) error {
	var names []string
	var only *avro.SchemaNode // the only branch other than null: its mistake is reported
	for i := range n.Branches {
		b := &n.Branches[i]
		if known := s.meant[b]; known != nil {
			b = known
		}
		name := b.Type
		if full := avsc.FullName(b); full != "" {
			name = full
		}
		names = append(names, name)
		if object, ok := value.(map[string]any); ok && len(object) == 1 {
			for _, tag := range []string{name, b.Type + "." + b.LogicalType} { // goavro writes the logical type, too
				if inner, tagged := object[tag]; tagged {
					return s.at(avsc.InPath(path, tag), b, inner)
				}
			}
		}
		if s.at(path, b, value) == nil {
			return nil
		}
		if b.Type != "null" && len(n.Branches) <= 2 {
			only = b
		}
	}
	if only != nil && value != nil {
		return s.at(path, only, value)
	}
	return mistake(path, fmt.Sprintf("want one of %v, got %s", names, jsonKindOf(value)))
}

func mistake(path, what string) error {
	if path == "" {
		path = "the value"
	}
	return fmt.Errorf("%s: %s", path, what)
}

func sorted(object map[string]any) []string {
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func wanted(n *avro.SchemaNode) string {
	if n.Type == "int" || n.Type == "array" || n.Type == "enum" || n.Type == "error" {
		return "an " + n.Type
	}
	return "a " + n.Type
}

func jsonKindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case json.Number:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "a list"
	}
	return "an object"
}
