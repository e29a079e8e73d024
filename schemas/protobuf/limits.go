package protobuf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Limits on one payload, besides maxLevels. An empty message has two bytes, and in memory all fields of its type: a megabyte could become
// gigabytes, as JSON, as values or as Go structs. The bytes in a google.protobuf.Any are decoded once more, so they count at each level:
// 20,000 of them within each other have 900 kB, and would take 9 GB as JSON.
const (
	maxValues = 1 << 20  // fields of the types of all messages, and elements of lists and maps, as package schemas counts them
	anyBytes  = 64       // bytes in an Any that count as a value
	smallBody = 16 << 10 // a body of at most so many bytes is not counted
	anyName   = "google.protobuf.Any"
)

// resolver finds the types that a decoder finds.
type resolver interface {
	FindMessageByURL(url string) (protoreflect.MessageType, error)
	FindExtensionByNumber(message protoreflect.FullName, field protoreflect.FieldNumber) (protoreflect.ExtensionType, error)
}

var (
	errValues = fmt.Errorf("more than %d values", maxValues)
	errLevels = fmt.Errorf("more than %d levels deep", maxLevels)
)

// counter counts the values of a message without decoding it.
type counter struct {
	left  int
	types resolver
	inAny bool // the value of an Any is decoded, too
}

// maxAnyReads limits how often the bytes of a JSON text are read because they are in a google.protobuf.Any: the library reads each Any to its
// end to find its type, and then its value. A megabyte within 180 of them took about 40 times as long as within one.
const maxAnyReads = 8

var errAny = fmt.Errorf("more than %d levels of %s", maxAnyReads, anyName)

// checkAny returns an error for a JSON text whose bytes are, on average, in more than maxAnyReads Any messages within each other, and for a text with
// a mistake: the decoder skips some, such as the number 1e, and reads on. A text that ends too early is left to the decoder.
func checkAny(text []byte) error {
	if len(text) <= smallBody || !bytes.Contains(text, []byte(`@type`)) && !bytes.Contains(text, []byte(`\u`)) {
		return nil
	}
	type level struct {
		begin         int64
		object, isAny bool
		tokens        int
	}
	levels := []level{{}}
	dec := json.NewDecoder(bytes.NewReader(text))
	for left := maxAnyReads * int64(len(text)); left >= 0; {
		token, err := dec.Token()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		at := &levels[len(levels)-1]
		switch token {
		case json.Delim('{'), json.Delim('['):
			at.tokens++
			levels = append(levels, level{begin: dec.InputOffset(), object: token == json.Delim('{')})
		case json.Delim('}'), json.Delim(']'):
			if at.isAny {
				left -= dec.InputOffset() - at.begin
			}
			levels = levels[:len(levels)-1]
		default:
			at.isAny = at.isAny || at.object && at.tokens%2 == 0 && token == "@type"
			at.tokens++
		}
	}
	return errAny
}

// checkValues returns an error for a message of type of that is above the limits. Bytes that cannot be read are left to the decoder.
func checkValues(of protoreflect.MessageDescriptor, body []byte, types resolver, inAny bool) error {
	if len(body) <= smallBody {
		return nil
	}
	c := counter{left: maxValues, types: types, inAny: inAny}
	return c.message(of, body, 1)
}

func (c *counter) count(n int) error {
	if c.left -= n; c.left < 0 {
		return errValues
	}
	return nil
}

func (c *counter) message(of protoreflect.MessageDescriptor, body []byte, level int) error {
	if level > maxLevels {
		return errLevels
	}
	if err := c.count(1 + of.Fields().Len()); err != nil {
		return err
	}
	var url string
	var content []byte
	for len(body) > 0 {
		number, kind, size := protowire.ConsumeTag(body)
		if size < 0 {
			return nil
		}
		body = body[size:]
		if size = protowire.ConsumeFieldValue(number, kind, body); size < 0 {
			return nil
		}
		value := body[:size]
		body = body[size:]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		if err := c.field(c.fieldOf(of, number), kind, value, level); err != nil {
			return err
		}
		switch {
		case of.FullName() != anyName || kind != protowire.BytesType:
		case number == 1:
			url = string(value)
		case number == 2:
			content = value
		}
	}
	if !c.inAny || len(content) == 0 {
		return nil
	}
	t, err := c.types.FindMessageByURL(url)
	if err != nil {
		return nil // the decoder refuses it
	}
	if err := c.count(len(content) / anyBytes); err != nil {
		return err
	}
	return c.message(t.Descriptor(), content, level+1)
}

// field counts what a field has besides its place in the message: messages, and elements of a list or a map. value is without its length.
func (c *counter) field(f protoreflect.FieldDescriptor, kind protowire.Type, value []byte, level int) error {
	switch {
	case f == nil: // kept as bytes
		return nil
	case f.IsMap() && kind == protowire.BytesType:
		return c.message(f.Message(), value, level) // an entry is no level of its own
	case f.Kind() == protoreflect.MessageKind && kind == protowire.BytesType:
		return c.message(f.Message(), value, level+1)
	case f.Kind() == protoreflect.GroupKind && kind == protowire.StartGroupType:
		inner, _ := protowire.ConsumeGroup(f.Number(), value)
		return c.message(f.Message(), inner, level+1)
	case f.IsList() && kind == protowire.BytesType:
		return c.count(elements(f.Kind(), value))
	case f.IsList():
		return c.count(1)
	}
	return nil // counted with its message
}

// elements returns the number of elements of a list in packed form, or 1 for a text or bytes.
func elements(kind protoreflect.Kind, packed []byte) int {
	switch kind {
	case protoreflect.StringKind, protoreflect.BytesKind:
		return 1
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return len(packed) / 4
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return len(packed) / 8
	}
	n := 0
	for _, b := range packed {
		if b < 0x80 { // the last byte of a number
			n++
		}
	}
	return n
}

func (c *counter) fieldOf(of protoreflect.MessageDescriptor, number protowire.Number) protoreflect.FieldDescriptor {
	if f := of.Fields().ByNumber(number); f != nil || !of.ExtensionRanges().Has(number) {
		return f
	}
	if x, err := c.types.FindExtensionByNumber(of.FullName(), number); err == nil {
		return x.TypeDescriptor()
	}
	return nil
}

var _ resolver = protoregistry.GlobalTypes
