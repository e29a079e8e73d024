package saga

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/lines"
)

// maxSize limits the JSON of a definition, in bytes.
const maxSize = 1 << 20

// A Mistake is an invalid part of a Spec.
type Mistake struct {
	// Path is the path of the invalid part, such as steps[1].command.input.amount_cents.
	Path string
	// Line is the line of the part in the JSON, counted from 1; 0 if it is not known.
	Line int
	Text string
}

func (m Mistake) Error() string { return lines.Mistake(m.Path, m.Line, m.Text) }

// Mistakes holds all mistakes that Define or Parse found.
type Mistakes []Mistake

// Error lists up to 100 mistakes.
func (ms Mistakes) Error() string { return lines.Mistakes(ms) }

// Parse reads a definition from JSON. Its error is of type Mistakes, with lines and paths. It is a mistake too if the text is not JSON,
// or has a field that does not exist.
func Parse(text []byte) (*Definition, error) {
	if len(text) > maxSize {
		return nil, Mistakes{{Text: fmt.Sprintf("a definition of %d bytes: at most %d", len(text), maxSize)}}
	}
	at, err := lines.Of(text)
	if err != nil {
		return nil, noJSON(err)
	}
	var spec Spec
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&spec); err != nil {
		return nil, Mistakes{decoderMistake(text, at, dec.InputOffset(), err)}
	}
	d, err := Define(spec)
	var found Mistakes
	if errors.As(err, &found) {
		for i, m := range found {
			found[i].Line = at.Of(m.Path)
		}
		return nil, found
	}
	return d, err
}

// noJSON returns the error about a text that is not JSON, as Mistakes.
func noJSON(err error) error {
	var bad lines.Error
	errors.As(err, &bad)
	return Mistakes{{Line: bad.Line, Text: bad.Text}}
}

// decoderMistake converts an error of the decoder to a Mistake with a path and a line. read is the number of bytes that the decoder has
// read.
func decoderMistake(text []byte, at lines.Lines, read int64, err error) Mistake {
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		want := typ.Type.String()
		if typ.Type == reflect.TypeFor[Duration]() {
			want = `a duration in quotes, such as "10m"`
		}
		return Mistake{Path: typ.Field, Line: lines.At(text, typ.Offset), Text: fmt.Sprintf("%s, want %s", typ.Value, want)}
	}
	var bad noDuration
	if errors.As(err, &bad) { // the decoder has read the whole text by now
		path := durationAt(text, at, string(bad))
		return Mistake{Path: path, Line: at.Of(path), Text: bad.Error()}
	}
	return Mistake{Line: lines.At(text, read), Text: strings.TrimPrefix(err.Error(), "json: ")}
}

// longestPath limits the search of durationAt: it does not look into values whose path has more bytes. Each duration of a valid definition
// has a shorter path.
const longestPath = 400

// durationAt returns the path of the first duration in text that has this value.
func durationAt(text []byte, at lines.Lines, value string) (first string) {
	var root any
	if json.Unmarshal(text, &root) != nil {
		return ""
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		if len(path) > longestPath {
			return
		}
		switch v := v.(type) {
		case map[string]any:
			for _, name := range sortedKeys(v) {
				walk(strings.TrimPrefix(path+"."+name, "."), v[name])
			}
		case []any:
			for i, inner := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), inner)
			}
		case string:
			name := strings.ToLower(path[strings.LastIndex(path, ".")+1:]) // as encoding/json compares names
			if v == value && slices.Contains(durations, name) && (first == "" || at.Of(path) < at.Of(first)) {
				first = path
			}
		}
	}
	walk("", root)
	return first
}

// durations has the names of the fields whose values are durations.
var durations = []string{"after", "cap", "initial", "stash", "timeout", "try"}

// canonical returns the JSON of spec that Hash is computed from: equal specs have equal JSON.
func canonical(spec Spec) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(spec); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// sortedKeys returns the keys of a map in order, so that no result depends on a map's order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
