// Package lines knows on which line of a JSON text each thing in it stands, so that what is wrong with a value can be told
// with its place.
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

// An Error is what keeps a text from being one JSON value in which no name stands twice.
type Error struct {
	// Line is counted from 1.
	Line int
	Text string
}

func (e Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// Lines are where the paths of a JSON text stand, such as steps[1].timeout.
type Lines map[string]int

// Of reads a text. Its error is an Error.
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

// At is the line of an offset.
func At(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(offset, int64(len(text)))], []byte("\n"))
}

// Of is the line of path, or of the nearest thing around it.
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
				return fmt.Errorf("%s stands there twice", inside)
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
