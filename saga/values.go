package saga

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/troupe-go/troupe/internal/expr"
	"github.com/troupe-go/troupe/internal/jsontext"
)

// Values of events, variables and deadlines have one form in a decision, in the log and in the stored state:
//
//  - A whole number is an int64.
//  - A double is a float64, even if its value is whole.
//  - A number with more digits than either can hold is a json.Number.
//
// In JSON the point distinguishes the first two: 10 and 10.0. So a decision that is replayed from the log has the same values as the
// first time.
//
// A text of Postgres, and of jsonb, cannot hold the character U+0000, which the bytes of an Avro message often have. It is stored as
// two characters, escape and 0. escape itself is stored as escape and 1.

// escape is U+FDD0, which Unicode reserves for uses inside a program: no text has it.
const escape = "\uFDD0"

var (
	escaped   = strings.NewReplacer("\x00", escape+"0", escape, escape+"1")
	unescaped = strings.NewReplacer(escape+"0", "\x00", escape+"1", escape)
)

func storable(text string) string {
	if strings.IndexByte(text, 0) < 0 && !strings.Contains(text, escape) {
		return text
	}
	return escaped.Replace(text)
}

// fields are values whose JSON is the form of the log and the stored state.
type fields map[string]any

func (f fields) MarshalJSON() ([]byte, error) {
	if f == nil {
		return []byte("null"), nil
	}
	return json.Marshal(pointed(map[string]any(f), storable))
}

// pointed copies v. A double becomes a JSON number that is read as a double again, even after Postgres has reformatted it. Each text t
// becomes text(t).
func pointed(v any, text func(string) string) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for name, inner := range v {
			m[text(name)] = pointed(inner, text)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, inner := range v {
			l[i] = pointed(inner, text)
		}
		return l
	case string:
		return text(v)
	case float32:
		return pointed(float64(v), text)
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			return json.Number(strconv.FormatFloat(v, 'f', -1, 64) + ".0")
		}
	}
	return v
}

// MarshalJSON writes a double in Fields with a decimal point, as 1.0, so that it is read as a double again, and shortens a long Reason.
func (e Event) MarshalJSON() ([]byte, error) {
	type event Event
	e.Reason = cut(e.Reason)
	return json.Marshal(struct {
		event
		Fields fields `json:"fields,omitempty"`
	}{event(e), e.Fields})
}

// MarshalJSON writes doubles in Data so that they differ from whole numbers.
func (s State) MarshalJSON() ([]byte, error) {
	type state State
	return json.Marshal(struct {
		state
		Data  fields `json:"data"`
		Lists fields `json:"lists,omitempty"`
	}{state(s), s.Data, s.Lists})
}

// MarshalJSON writes doubles in Payload so that they differ from whole numbers.
func (a Armed) MarshalJSON() ([]byte, error) {
	type armed Armed
	return json.Marshal(struct {
		armed
		Payload fields `json:"payload,omitempty"`
	}{armed(a), a.Payload})
}

// coerce returns v converted to the type of the variable, or an error if that is not possible.
func (d *Definition) coerce(name string, v any) (any, error) {
	t, known := d.spec.Data[name]
	if !known {
		return nil, fmt.Errorf("saga %s has no variable %s", d.spec.Saga, name)
	}
	v, err := whole(v)
	if err != nil {
		return nil, fmt.Errorf("variable %s: %w", name, err)
	}
	if of, is := valueOf(t, v); is {
		return of, nil
	}
	return nil, fmt.Errorf("variable %s is %s: it cannot be %s", name, t, show(v))
}

// valueOf converts v, a result of whole, to type t, and reports whether v is a value of that type.
func valueOf(t Type, v any) (any, bool) {
	switch t {
	case Any:
		return v, true
	case String:
		if s, ok := v.(string); ok {
			return s, true
		}
	case Bool:
		if b, ok := v.(bool); ok {
			return b, true
		}
	case Int:
		switch n := v.(type) {
		case int64:
			return n, true
		case float64:
			if n == math.Trunc(n) && -1<<63 <= n && n < 1<<63 {
				return int64(n), true
			}
		}
	case Double:
		switch n := v.(type) {
		case int64:
			if f := float64(n); f < 1<<63 && int64(f) == n { // no digit is lost
				return f, true
			}
		case float64:
			return n, true
		}
	}
	return nil, false
}

// whole converts a number from a caller or a JSON decoder to a type that expressions accept. It returns any other value unchanged.
func whole(v any) (any, error) {
	switch v := v.(type) {
	case json.Number:
		return expr.Number(v.String())
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case float32:
		return whole(float64(v))
	case float64:
		return v + 0, nil // makes -0 0, since jsonb has no -0
	}
	return v, nil
}

// maxGrowth limits the number of bytes by which all numbers of one event or state together may become longer when they are stored. The
// stored form has no exponent, so that 1e1000 becomes 1,001 digits. A number that has its stored form already, such as one from the
// database, adds nothing.
const maxGrowth = 4 << 20

// plain applies whole to v and to all values inside it, in place. growth is the number of bytes by which the numbers may still become
// longer. plain reduces it, and returns an error if it becomes negative.
func plain(v any, growth *int) (_ any, err error) {
	switch v := v.(type) {
	case []any:
		for i := range v {
			if v[i], err = plain(v[i], growth); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = plain(v[k], growth); err != nil {
				return nil, within(k, err)
			}
		}
	}
	read, err := whole(v)
	if err != nil {
		return nil, err
	}
	if *growth -= max(0, storedLen(read)-givenLen(v)); *growth < 0 {
		return nil, fmt.Errorf("the numbers are more than %d bytes longer when they are written without exponents", maxGrowth)
	}
	return read, nil
}

// maxWithin limits the text of an error about a value inside others. Each level copies the text of the level below, and JSON may have 10,000
// levels: a name of a megabyte at the last of them would take ten gigabytes.
const maxWithin = 200

// within adds the name of a value to an error about it, unless the text becomes too long.
func within(name string, err error) error {
	if len(name)+len(err.Error()) > maxWithin {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// storedLen returns the approximate length of a number in its stored form, or 0 if that has at most 24 characters. The result is at
// most the length of the text that jsonb returns for a double, so that a double from the database adds nothing.
func storedLen(v any) int {
	switch v := v.(type) {
	case json.Number:
		return len(v)
	case float64:
		switch size := math.Abs(v); {
		case 1e21 <= size && !math.IsInf(v, 0):
			return len("-.0") + 1 + int(math.Log10(size))
		case 0 < size && size < 1e-21:
			return len("0.") + int(-math.Log10(size))
		}
	}
	return 0
}

// givenLen returns the length of a number before plain converts it: the length of the text of a json.Number, else 8, the bytes of a
// double.
func givenLen(v any) int {
	if n, is := v.(json.Number); is {
		return len(n)
	}
	return 8
}

// WriteFields writes f as a JSON object from which ReadFields reads the same numbers.
func WriteFields(f map[string]any) ([]byte, error) {
	if f == nil {
		return []byte("null"), nil
	}
	return json.Marshal(pointed(f, func(text string) string { return text }))
}

// Canonical converts the numbers in f, such as the json.Number of a decimal, to the form of Event.Fields, in place. It returns an error
// if all numbers together become more than 4 MiB longer.
func Canonical(f map[string]any) error {
	growth := maxGrowth
	_, err := plain(f, &growth)
	return err
}

// size returns the approximate number of bytes of v as JSON.
func size(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		n = 2
		for name, inner := range v {
			n += len(name) + 4 + size(inner)
		}
	case []any:
		n = 2
		for _, inner := range v {
			n += 1 + size(inner)
		}
	case string:
		n = 2 + len(v)
	case json.Number:
		n = len(v)
	default:
		n = 8
	}
	return n
}

// unescape reverses storable: in each text and each field name of v it replaces the escaped characters by the ones that they stand for. It
// changes maps and lists in place.
func unescape(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = unescape(v[i])
		}
	case map[string]any:
		var renamed map[string]any // added at the end, since a new name may equal an old one
		for name, inner := range v {
			v[name] = unescape(inner)
			if strings.Contains(name, escape) {
				if renamed == nil {
					renamed = make(map[string]any)
				}
				renamed[unescaped.Replace(name)] = v[name]
				delete(v, name)
			}
		}
		maps.Copy(v, renamed)
	case string:
		if strings.Contains(v, escape) {
			return unescaped.Replace(v)
		}
	}
	return v
}

// ReadFields reads a JSON object into the form of Event.Fields. Whole numbers stay whole. A number with more digits than an int64 or a
// float64 can hold becomes a json.Number with all its digits. It is an error if a number has more than 1,100 digits, or if all numbers
// together become more than 4 MiB longer when they are written without exponents, or if there are more than 1,048,576 values.
func ReadFields(text []byte) (map[string]any, error) {
	if err := jsontext.CheckValues(text); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var fields map[string]any
	if err := dec.Decode(&fields); err != nil {
		return nil, fmt.Errorf("want a JSON object: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("want a JSON object, and nothing after it")
	}
	if err := Canonical(fields); err != nil {
		return nil, err
	}
	return fields, nil
}

// ReadState reads a State of d from JSON. Each variable is converted to the type that d declares.
func (d *Definition) ReadState(text []byte) (State, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var s State
	if err := dec.Decode(&s); err != nil {
		return State{}, err
	}
	if s.Definition != d.hash || !d.fits(s) {
		return State{}, fmt.Errorf("saga %s is of another definition than %s", s.ID(), d)
	}
	stored := func(f map[string]any) error {
		unescape(f)
		return Canonical(f)
	}
	err := errors.Join(stored(s.Data), stored(s.Lists))
	for i := range s.Deadlines {
		if err == nil {
			err = stored(s.Deadlines[i].Payload)
		}
	}
	for name, v := range s.Data {
		if err == nil {
			s.Data[name], err = d.coerce(name, v)
		}
	}
	if err != nil {
		return State{}, fmt.Errorf("saga %s: %w", s.ID(), err)
	}
	return s, nil
}

// ReadEvent reads an Event from JSON. Whole numbers stay whole.
func ReadEvent(text []byte) (Event, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var e Event
	if err := dec.Decode(&e); err != nil {
		return e, err
	}
	unescape(e.Fields)
	return e, Canonical(e.Fields)
}
