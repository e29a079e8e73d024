package schemas

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/twmb/avro"

	"github.com/troupe-go/troupe/internal/avsc"
)

// Values decodes a payload in wire format to Go values, each in one form that depends on its type in the schema: float and
// double are float64 even if they are whole, int and long are int64, a union is the value of its branch or nil, a record and
// a map are a map[string]any, an array is a []any. Times are the int64 on the wire. A decimal is a json.Number with all digits
// of its scale, such as 12.50, and a UUID is its text, also where it is 16 bytes. All other types are the text that ToJSON writes
// for them: an enum its symbol, bytes, a fixed and a duration a character for each byte. A float that is NaN or infinite is nil.
// FromValues converts the JSON of such values back.
//
// It also returns the name that ToJSON returns. Errors are the same as ToJSON's.
//
// Protobuf is in the same form: all numbers of up to 64 bits are int64 (a larger uint64 is a json.Number), a message is a
// map[string]any with the names of the .proto file, a field without a value that can tell so is nil and any other has its default,
// enums and bytes are the text that ToJSON writes, and so are times. For a JSON Schema the numbers are json.Number.
func (c *Codec) Values(ctx context.Context, payload []byte) (schemaName string, value any, err error) {
	id, body, err := cutConvertible(payload)
	if err != nil {
		return "", nil, err
	}
	s, err := c.schema(ctx, id)
	if err != nil {
		return "", nil, err
	}
	err = avsc.Guard(func() error {
		schemaName, value, err = s.Values(body)
		return err
	})
	if err != nil {
		return schemaName, nil, poison(schemaName, s.safe(err))
	}
	return schemaName, value, nil
}

// Values returns the values of an Avro body.
func (g *avroSchema) Values(body []byte) (name string, value any, err error) {
	name, text, err := g.ToJSON(body)
	if err != nil {
		return name, nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&value); err != nil {
		return name, nil, err
	}
	value, err = g.types.value(g.root, value)
	return name, value, err
}

// value converts v, which ToJSON wrote with schema n, to the form that Values promises.
func (t tree) value(n *avro.SchemaNode, v any) (any, error) {
	n = t.Follow(n)
	if m, ok := v.(map[string]any); ok && avsc.KindOf(n) == "record" {
		for i := range n.Fields {
			f := &n.Fields[i]
			if err := t.within(m, f.Name, &f.Type); err != nil {
				return nil, err
			}
		}
		return m, nil
	}
	switch v := v.(type) {
	case map[string]any:
		if n.Type == "union" {
			return t.branch(n, v)
		}
		for name := range v {
			if err := t.within(v, name, n.Values); err != nil {
				return nil, err
			}
		}
		return v, nil
	case []any:
		for i := range v {
			var err error
			if v[i], err = t.value(n.Items, v[i]); err != nil {
				return nil, err
			}
		}
		return v, nil
	case json.Number:
		if n.Type == "int" || n.Type == "long" {
			return v.Int64()
		}
		f, _ := v.Float64()
		if math.IsInf(f, 0) {
			return nil, nil
		}
		return f, nil
	case string:
		if isDecimal(n) {
			return numberOf(n, v)
		}
		if isUUID(n) {
			return uuidOf(v)
		}
	}
	return v, nil
}

func (t tree) within(m map[string]any, name string, n *avro.SchemaNode) (err error) {
	m[name], err = t.value(n, m[name])
	return err
}

// branch unwraps a union's value, which names its branch.
func (t tree) branch(n *avro.SchemaNode, v map[string]any) (any, error) {
	for name, inner := range v {
		if b := t.branchOf(n, name); b != nil {
			return t.value(b, inner)
		}
		return nil, fmt.Errorf("the union has no branch %q", name)
	}
	return nil, fmt.Errorf("a union's value without its branch")
}

// branchOf returns the branch of a union that JSON names so, or nil.
func (t tree) branchOf(n *avro.SchemaNode, name string) *avro.SchemaNode {
	for i := range n.Branches {
		b := t.Follow(&n.Branches[i])
		if name == avsc.FullName(b) || name == b.Type || name == b.Type+"."+b.LogicalType {
			return b
		}
	}
	return nil
}
