package saga

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
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
	lines := make([]string, len(ms))
	for i, m := range ms {
		lines[i] = m.Error()
	}
	return strings.Join(lines, "\n")
}

// Parse reads a definition from JSON. Its error, but for one about the syntax, is Mistakes, with lines and paths. Unknown
// fields are mistakes.
func Parse(text []byte) (*Definition, error) {
	if len(text) > maxSize {
		return nil, Mistakes{{Text: fmt.Sprintf("a definition of %d bytes: at most %d", len(text), maxSize)}}
	}
	lines, err := linesOf(text)
	if err != nil {
		return nil, err
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
			found[i].Line = lines.of(m.Path)
		}
		return nil, found
	}
	return d, err
}

// LineOf is the line of a JSON definition at which path stands, such as steps[1].timeout, or the nearest thing around it;
// 0 where text is no JSON.
func LineOf(text []byte, path string) int {
	lines, err := linesOf(text)
	if err != nil {
		return 0
	}
	return lines.of(path)
}

// said is a decoder's error with its place.
func said(text []byte, read int64, err error) Mistake {
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		return Mistake{Path: typ.Field, Line: lineAt(text, typ.Offset), Text: fmt.Sprintf("%s, want %s", typ.Value, typ.Type)}
	}
	return Mistake{Line: lineAt(text, read), Text: strings.TrimPrefix(err.Error(), "json: ")}
}

func lineAt(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(offset, int64(len(text)))], []byte("\n"))
}

// lines are where the paths of a JSON text stand.
type lines map[string]int

// of is the line of path, or of the nearest thing around it.
func (l lines) of(path string) int {
	for path != "" {
		if line, ok := l[path]; ok {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 1
}

func linesOf(text []byte) (lines, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	l := make(lines)
	if err := l.value(dec, text, ""); err != nil {
		return nil, Mistakes{said(text, dec.InputOffset(), err)}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, Mistakes{{Line: lineAt(text, dec.InputOffset()), Text: "something follows the definition"}}
	}
	return l, nil
}

const maxNesting = 20

func (l lines) value(dec *json.Decoder, text []byte, path string) error {
	if strings.Count(path, ".")+strings.Count(path, "[") > maxNesting {
		return errors.New("nested too deeply")
	}
	token, err := dec.Token()
	if err != nil {
		return err
	}
	if l[path] == 0 {
		l[path] = lineAt(text, dec.InputOffset())
	}
	switch token {
	case json.Delim('{'):
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				return err
			}
			inside := strings.TrimPrefix(fmt.Sprintf("%s.%s", path, name), ".")
			if l[inside] != 0 {
				return fmt.Errorf("%s stands there twice", inside)
			}
			l[inside] = lineAt(text, dec.InputOffset())
			if err := l.value(dec, text, inside); err != nil {
				return err
			}
		}
		_, err = dec.Token()
	case json.Delim('['):
		for i := 0; dec.More(); i++ {
			if err := l.value(dec, text, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		_, err = dec.Token()
	}
	return err
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
