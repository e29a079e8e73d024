package flow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/lines"
)

// maxSize limits a file, in bytes.
const maxSize = 1 << 20

// A Mistake is an invalid part of a Declaration.
type Mistake struct {
	// Path is the path of the part, such as reactions[1].on.topic.
	Path string
	// Line is its line in the JSON, counted from 1; 0 if unknown.
	Line int
	Text string
}

func (m Mistake) Error() string { return lines.Mistake(m.Path, m.Line, m.Text) }

// Mistakes holds all mistakes that Parse or Check found.
type Mistakes []Mistake

// Error lists up to 100 mistakes.
func (ms Mistakes) Error() string { return lines.Mistakes(ms) }

// Load parses a file. Its error names the file.
func Load(path string) (Declaration, error) {
	f, err := os.Open(path)
	if err != nil {
		return Declaration{}, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return Declaration{}, fmt.Errorf("%s: %w", path, err)
	}
	s, err := Parse(text)
	if err != nil {
		return Declaration{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Parse reads a reactions.json. Its error is of type Mistakes, with lines and paths. Unknown fields, nulls, and everything that
// Check finds are mistakes.
func Parse(text []byte) (Declaration, error) {
	if len(text) > maxSize {
		return Declaration{}, Mistakes{{Text: fmt.Sprintf("more than the %d bytes that reactions may have: is it the right file?", maxSize)}}
	}
	at, err := lines.Of(text)
	if err != nil {
		var bad lines.Error
		errors.As(err, &bad)
		return Declaration{}, Mistakes{{Line: bad.Line, Text: bad.Text}}
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return Declaration{}, Mistakes{{Text: strings.TrimPrefix(err.Error(), "json: ")}}
	}
	var s Declaration
	found := strange("", tree, reflect.TypeFor[Declaration]())
	if len(found) == 0 {
		found = decoded(text, &s)
	}
	if len(found) == 0 {
		found = s.mistakes()
	}
	if len(found) == 0 {
		return s, nil
	}
	for i, m := range found {
		found[i].Line = at.Of(m.Path)
	}
	slices.SortStableFunc(found, func(a, b Mistake) int { return a.Line - b.Line })
	return Declaration{}, found
}

func decoded(text []byte, s *Declaration) Mistakes {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(s)
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typ):
		return Mistakes{{Path: typ.Field, Text: fmt.Sprintf("%s, want %s", typ.Value, typ.Type)}}
	case err != nil:
		return Mistakes{{Text: strings.TrimPrefix(err.Error(), "json: ")}}
	}
	return nil
}

// kinds names the types as people who write JSON do.
var kinds = map[reflect.Kind]string{
	reflect.Struct: "an object", reflect.Slice: "a list", reflect.String: "a text", reflect.Int: "a whole number", reflect.Bool: "true or false",
}

// strange finds the parts of a tree that do not match a type: other fields, nulls, and values of another kind. encoding/json
// would silently accept nulls, and fields in another case, and it would stop at the first of the other mistakes.
func strange(path string, tree any, typ reflect.Type) (found Mistakes) {
	other := Mistakes{{Path: path, Text: fmt.Sprintf("%s, want %s", describe(tree), kinds[typ.Kind()])}}
	switch v := tree.(type) {
	case nil:
		return Mistakes{{Path: path, Text: "null says nothing: leave the field out"}}
	case map[string]any:
		if typ.Kind() != reflect.Struct {
			return other
		}
		fields := fieldsOf(typ)
		for name, inside := range v {
			at := strings.TrimPrefix(path+"."+name, ".")
			i := slices.Index(fields, name)
			if i < 0 {
				found = append(found, Mistake{Path: at, Text: "no such field: want one of " + strings.Join(fields, ", ")})
				continue
			}
			found = append(found, strange(at, inside, typ.Field(i).Type)...)
		}
	case []any:
		if typ.Kind() != reflect.Slice {
			return other
		}
		for i, inside := range v {
			found = append(found, strange(fmt.Sprintf("%s[%d]", path, i), inside, typ.Elem())...)
		}
	case string:
		if typ.Kind() != reflect.String {
			return other
		}
	case bool:
		if typ.Kind() != reflect.Bool {
			return other
		}
	case float64:
		if typ.Kind() != reflect.Int || v != float64(int(v)) {
			return other
		}
	}
	slices.SortFunc(found, func(a, b Mistake) int { return strings.Compare(a.Path, b.Path) })
	return found
}

// describe returns a value in a few words.
func describe(tree any) string {
	switch v := tree.(type) {
	case map[string]any:
		return kinds[reflect.Struct]
	case []any:
		return kinds[reflect.Slice]
	case string:
		return kinds[reflect.String]
	default:
		return fmt.Sprint(v)
	}
}

// fieldsOf returns the JSON names of a type's fields, in order.
func fieldsOf(typ reflect.Type) []string {
	names := make([]string, typ.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(typ.Field(i).Tag.Get("json"), ",")
	}
	return names
}
