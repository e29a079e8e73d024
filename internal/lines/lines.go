// Package lines finds the line of each value in a JSON text, so that an error about a value can name its line.
package lines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const maxNesting = 21

// maxPath limits the bytes of a path in Lines. The path of a part has the names of all values around it: without a limit the paths of a text
// of a megabyte, with one long name, would take gigabytes.
const maxPath = 400

// An Error is why a text is not one JSON value without duplicate names.
type Error struct {
	// Line is counted from 1.
	Line int
	Text string
}

func (e Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Lines maps the paths of a JSON text, such as steps[1].timeout, to their lines. It has no path of more than 400 bytes.
type Lines map[string]int

// Of parses a text. Its error is an Error.
func Of(text []byte) (Lines, error) {
	r := &reader{dec: json.NewDecoder(bytes.NewReader(text)), text: text, lines: make(Lines), line: 1}
	r.dec.UseNumber()
	if err := r.value("", 0); err != nil {
		return nil, Error{At(text, r.dec.InputOffset()), strings.TrimPrefix(err.Error(), "json: ")}
	}
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, Error{At(text, r.dec.InputOffset()), "something follows the JSON value"}
	}
	return r.lines, nil
}

// At returns the line of an offset.
func At(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(offset, int64(len(text)))], []byte("\n"))
}

// Of returns the line of path, or of the nearest value around it.
func (l Lines) Of(path string) int {
	for path != "" {
		if line, ok := l[path]; ok {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 1
}

// reader reads a text from its beginning to its end.
type reader struct {
	dec   *json.Decoder
	text  []byte
	lines Lines
	// line is the line of the offset at.
	line int
	at   int64
}

// found records the line of the token that was read last as the line of path, unless path has one.
func (r *reader) found(path string) {
	offset := r.dec.InputOffset()
	r.line += bytes.Count(r.text[r.at:offset], []byte("\n"))
	r.at = offset
	if len(path) <= maxPath && r.lines[path] == 0 {
		r.lines[path] = r.line
	}
}

func (r *reader) value(path string, depth int) error {
	if depth > maxNesting {
		return errors.New("nested too deeply")
	}
	token, err := r.dec.Token()
	if err != nil {
		return err
	}
	r.found(path)
	switch token {
	case json.Delim('{'):
		seen := make(map[string]bool)
		for r.dec.More() {
			token, err := r.dec.Token()
			if err != nil {
				return err
			}
			name, _ := token.(string)
			inside := below(path, "."+name)
			if seen[name] {
				return fmt.Errorf("%s is set twice", inside)
			}
			seen[name] = true
			r.found(inside)
			if err := r.value(inside, depth+1); err != nil {
				return err
			}
		}
		_, err = r.dec.Token()
	case json.Delim('['):
		for i := 0; r.dec.More(); i++ {
			if err := r.value(below(path, "["+strconv.Itoa(i)+"]"), depth+1); err != nil {
				return err
			}
		}
		_, err = r.dec.Token()
	}
	return err
}

// below returns the path of a part of the value at path. If path is too long to be in Lines, it returns path.
func below(path, part string) string {
	if len(path) > maxPath {
		return path
	}
	return strings.TrimPrefix(path+part, ".")
}
