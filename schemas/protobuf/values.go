package protobuf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"
)

func (s *schema) Values(body []byte) (name string, value any, err error) {
	m, err := s.read(body)
	if m != nil {
		name = string(m.Descriptor().FullName())
	}
	if err != nil {
		return name, nil, err
	}
	value, err = s.ofMessage(m)
	return name, value, err
}

// ofMessage returns a message as a map of all its fields, and a standard message as its JSON has it: a time as a text, a wrapper as its
// value, a google.protobuf.Value as any value.
func (s *schema) ofMessage(m protoreflect.Message) (any, error) {
	of := m.Descriptor()
	if isWrapper(of) {
		f := of.Fields().ByName("value")
		return scalar(f, m.Get(f)), nil
	}
	if isStandard(of) {
		text, err := s.json(m.Interface())
		if err != nil {
			return nil, err
		}
		var value any
		err = json.Unmarshal(text, &value)
		return value, err
	}
	fields := make(map[string]any, of.Fields().Len())
	for i := range of.Fields().Len() {
		f := of.Fields().Get(i)
		value, err := s.ofField(m, f)
		if err != nil {
			return nil, err
		}
		fields[string(f.Name())] = value
	}
	return fields, nil
}

func (s *schema) ofField(m protoreflect.Message, f protoreflect.FieldDescriptor) (any, error) {
	if f.HasPresence() && !m.Has(f) {
		return nil, nil
	}
	value := m.Get(f)
	switch {
	case f.IsMap():
		entries := make(map[string]any, value.Map().Len())
		var err error
		value.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			entries[k.String()], err = s.ofValue(f.MapValue(), v)
			return err == nil
		})
		return entries, err
	case f.IsList():
		items := make([]any, value.List().Len())
		for i := range items {
			var err error
			if items[i], err = s.ofValue(f, value.List().Get(i)); err != nil {
				return nil, err
			}
		}
		return items, nil
	}
	return s.ofValue(f, value)
}

func (s *schema) ofValue(f protoreflect.FieldDescriptor, v protoreflect.Value) (any, error) {
	if f.Message() != nil {
		return s.ofMessage(v.Message())
	}
	return scalar(f, v), nil
}

// scalar returns a number as an int64 or a float64, and everything else as in JSON.
func scalar(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return v.Bool()
	case protoreflect.EnumKind:
		if known := f.Enum().Values().ByNumber(v.Enum()); known != nil {
			return string(known.Name())
		}
		return int64(v.Enum())
	case protoreflect.StringKind:
		return v.String()
	case protoreflect.BytesKind:
		var text string
		quoted, _ := json.Marshal(v.Bytes()) // base64, as in Protobuf's JSON
		_ = json.Unmarshal(quoted, &text)
		return text
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		n := v.Float()
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return nil
		}
		return n
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		if n := v.Uint(); n > math.MaxInt64 {
			return json.Number(strconv.FormatUint(n, 10))
		}
		return int64(v.Uint())
	}
	return v.Int()
}

// isStandard reports whether a message has a JSON form of its own.
func isStandard(of protoreflect.MessageDescriptor) bool {
	if of.ParentFile().Package() != "google.protobuf" {
		return false
	}
	switch of.Name() {
	case "Any", "Duration", "Empty", "FieldMask", "ListValue", "Struct", "Timestamp", "Value":
		return true
	}
	return isWrapper(of)
}

func isWrapper(of protoreflect.MessageDescriptor) bool {
	return of.ParentFile().Path() == "google/protobuf/wrappers.proto"
}

// FromValues converts the JSON of values. It refuses null for a field that always has a value: it is there only for a number that JSON
// does not have, and would become zero.
func (s *schema) FromValues(name string, text []byte) ([]byte, error) {
	of, at := s.message(name)
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, err
	}
	if err := noNulls(of, value, ""); err != nil {
		return nil, err
	}
	return s.write(of, appendIndexes(nil, at), text)
}

func noNulls(of protoreflect.MessageDescriptor, value any, path string) error {
	fields, ok := value.(map[string]any)
	if !ok || isStandard(of) {
		return nil
	}
	for name, v := range fields {
		f := of.Fields().ByTextName(name)
		if f == nil {
			f = of.Fields().ByJSONName(name)
		}
		if f == nil {
			continue // write refuses it
		}
		at := name
		if path != "" {
			at = path + "." + name
		}
		if v == nil && !f.HasPresence() && !f.IsList() && !f.IsMap() {
			return fmt.Errorf("%s: want a %s, got null", at, f.Kind())
		}
		if err := noNullsWithin(f, v, at); err != nil {
			return err
		}
	}
	return nil
}

func noNullsWithin(f protoreflect.FieldDescriptor, v any, at string) error {
	inner := f
	var all []any
	switch v := v.(type) {
	case []any:
		if f.IsList() {
			all = v
		}
	case map[string]any:
		if f.IsMap() {
			inner = f.MapValue()
			for _, one := range v {
				all = append(all, one)
			}
		} else {
			all = []any{v}
		}
	}
	for _, one := range all {
		if inner.Message() == nil {
			if one == nil {
				return fmt.Errorf("%s: want %ss, got null", at, inner.Kind())
			}
			continue
		}
		if err := noNulls(inner.Message(), one, at); err != nil {
			return err
		}
	}
	return nil
}
