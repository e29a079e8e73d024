// Package lines finds the line of each value in a JSON text, so that an error about a value can name its line.
package lines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

const maxNesting = 20

// An Error is why a text is not one JSON value without duplicate names.
type Error struct {
	// Line is counted from 1.
	Line int
	Text string
}

func (e Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Lines maps the paths of a JSON text, such as steps[1].timeout, to their lines.
type Lines map[string]int

// Of parses a text. Its error is an Error.
func Of(text []byte) (Lines, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	l := make(Lines)
	if err := l.value(dec, text, ""); err != nil {
		return nil, Error{At(text, dec.InputOffset()), strings.TrimPrefix(err.Error(), "json: ")}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, Error{At(text, dec.InputOffset()), "something follows the JSON value"}
	}
	return l, nil
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

func (l Lines) value(dec *json.Decoder, text []byte, path string) error {
	if strings.Count(path, ".")+strings.Count(path, "[") > maxNesting {
		return errors.New("nested too deeply")
	}
	token, err := dec.Token()
	if err != nil {
		return err
	}
	if l[path] == 0 {
		l[path] = At(text, dec.InputOffset())
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
				return fmt.Errorf("%s is set twice", inside)
			}
			l[inside] = At(text, dec.InputOffset())
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
