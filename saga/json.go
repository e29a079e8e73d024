package saga

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-go/troupe/internal/lines"
)

// maxSize of a definition, in bytes.
const maxSize = 1 << 20

// A Mistake is something in a Spec that cannot be meant.
type Mistake struct {
	// Path is where it stands, such as steps[1].command.input.amount_cents.
	Path string
	// Line of the JSON, counted from 1; 0 where there is none.
	Line int
	Text string
}

func (m Mistake) Error() string {
	text := m.Text
	if m.Path != "" {
		text = m.Path + ": " + text
	}
	if m.Line > 0 {
		text = fmt.Sprintf("line %d: %s", m.Line, text)
	}
	return text
}

// Mistakes are all that Define or Parse found.
type Mistakes []Mistake

func (ms Mistakes) Error() string {
	all := make([]string, len(ms))
	for i, m := range ms {
		all[i] = m.Error()
	}
	return strings.Join(all, "\n")
}

// Parse reads a definition from JSON. Its error, but for one about the syntax, is Mistakes, with lines and paths. Unknown
// fields are mistakes.
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
		return nil, Mistakes{said(text, dec.InputOffset(), err)}
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

// LineOf is the line of a JSON definition at which path stands, such as steps[1].timeout, or the nearest thing around it;
// 0 where text is no JSON.
func LineOf(text []byte, path string) int {
	at, err := lines.Of(text)
	if err != nil {
		return 0
	}
	return at.Of(path)
}

// noJSON is a text that is none, as a mistake.
func noJSON(err error) error {
	var bad lines.Error
	errors.As(err, &bad)
	return Mistakes{{Line: bad.Line, Text: bad.Text}}
}

// said is a decoder's error with its place.
func said(text []byte, read int64, err error) Mistake {
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		return Mistake{Path: typ.Field, Line: lines.At(text, typ.Offset), Text: fmt.Sprintf("%s, want %s", typ.Value, typ.Type)}
	}
	return Mistake{Line: lines.At(text, read), Text: strings.TrimPrefix(err.Error(), "json: ")}
}

// canonical is the one form that equal specs have.
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

// sortedKeys of a mapping, so that nothing depends on a map's order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
